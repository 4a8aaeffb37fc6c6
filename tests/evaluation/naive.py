"""The evaluation a second time: slow, one score at a time, in float64, straight from the definitions.

Nothing here imports ``vse``. A matrix of scores is a list of rows, right candidates are one set for each query. The
second half draws problems to try both implementations on: exact ties, near ties, duplicates, many scales and dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

Matrix = list[list[float]]
Right = list[set[int]]
EPS = 2.0**-52


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def score_matrix(left: Any, right: Any) -> Matrix:
    rights = [[float(x) for x in row] for row in right]
    return [[dot([float(x) for x in row], other) for other in rights] for row in left]


def mean_matrix(matrices: Sequence[Matrix]) -> Matrix:
    return [
        [math.fsum(entries) / len(matrices) for entries in zip(*rows, strict=True)]
        for rows in zip(*matrices, strict=True)
    ]


def transposed(matrix: Matrix, columns: int) -> Matrix:
    return [[row[c] for row in matrix] for c in range(columns)]


def seen_from_candidates(right: Right, candidates: int) -> Right:
    return [{q for q, found in enumerate(right) if c in found} for c in range(candidates)]


def both_ways(matrix: Matrix, right: Right) -> tuple[tuple[Matrix, Right], tuple[Matrix, Right]]:
    """The problem as it stands, and seen from the candidates."""
    columns = len(matrix[0])
    return (matrix, right), (transposed(matrix, columns), seen_from_candidates(right, columns))


def rank(row: Sequence[float], right: set[int], slack: float, *, optimistic: bool, out: int | None = None) -> int:
    """The place of the first right candidate after sorting by hand; scores within ``slack`` of it are equal to it."""
    if not right:
        return 0
    best = max(row[c] for c in right)
    before = 0
    for c, score in enumerate(row):
        if c in right or c == out:
            continue
        tied = abs(score - best) <= slack
        if (tied and not optimistic) or (not tied and score > best):
            before += 1
    return before + 1


def ranks(matrix: Matrix, right: Right, slack: float, *, optimistic: bool = False, no_self: bool = False) -> list[int]:
    return [
        rank(row, right[q], slack, optimistic=optimistic, out=q if no_self else None) for q, row in enumerate(matrix)
    ]


def largest_score(left: Any, right: Any) -> float:
    """No score is larger: the longest vector of each side, multiplied."""
    longest = [max((math.sqrt(dot(row, row)) for row in side), default=0.0) for side in (left, right)]
    return longest[0] * longest[1]


def undecided(matrix: Matrix, right: Right, noise: float, slack: float) -> bool:
    """Whether a score is so near to the best right one, without being it, that float64 cannot tell which is larger."""
    for row, found in zip(matrix, right, strict=True):
        best = max((row[c] for c in found), default=math.inf)
        if any(noise < abs(score - best) < slack for score in row):
            return True
    return False


def recall(found: Sequence[int], cutoff: int) -> float:
    asked = [rank for rank in found if rank > 0]
    return 100 * sum(rank <= cutoff for rank in asked) / len(asked)


def median(found: Sequence[int]) -> float:
    asked = sorted(rank for rank in found if rank > 0)
    half = len(asked) // 2
    return float(asked[half]) if len(asked) % 2 else (asked[half - 1] + asked[half]) / 2


def mean(found: Sequence[int]) -> float:
    asked = [rank for rank in found if rank > 0]
    return sum(asked) / len(asked)


@dataclass(frozen=True)
class Problem:
    """Vectors of both sides and the right texts of each image."""

    images: Any
    texts: Any
    right: Right

    @property
    def matrix(self) -> Matrix:
        return score_matrix(self.images, self.texts)

    @property
    def slack(self) -> float:
        """From here on scores differ, whatever the order of the additions; see ``clear``."""
        return 1e-13 * self.images.shape[1] * largest_score(self.images, self.texts)

    @property
    def noise(self) -> float:
        """What rounding alone may put between equal scores."""
        return 0.5 * EPS * self.images.shape[1] * largest_score(self.images, self.texts)

    @property
    def lists(self) -> list[list[int]]:
        return [sorted(found) for found in self.right]

    @property
    def text_to_image(self) -> list[int]:
        return [next(iter(owners)) for owners in seen_from_candidates(self.right, len(self.texts))]

    @property
    def clear(self) -> bool:
        """Whether every comparison is either a tie or a difference beyond the noise of float64, both ways."""
        return not any(undecided(*way, self.noise, self.slack) for way in both_ways(self.matrix, self.right))

    def ranks(self, *, optimistic: bool = False) -> tuple[list[int], list[int]]:
        """Ranks of the images' first right texts, and of the texts' first right images."""
        one, other = both_ways(self.matrix, self.right)
        return ranks(*one, self.slack, optimistic=optimistic), ranks(*other, self.slack, optimistic=optimistic)


KINDS = ("whole", "duplicates", "near", "scaled", "random", "nothing")


def vectors(kind: str, rows: int, width: int, dtype: str, rng: np.random.Generator) -> Any:
    """``(rows, width)`` vectors of a kind: the fewer distinct ones, the more ties."""
    if kind == "nothing":
        made = np.zeros((rows, width))
    elif kind == "whole":
        made = rng.integers(-2, 3, (rows, width)).astype(np.float64)
    elif kind == "random":
        made = rng.standard_normal((rows, width))
    else:
        few = rng.standard_normal((3, width)) if kind == "near" else rng.integers(-3, 4, (3, width)).astype(np.float64)
        made = few[rng.integers(0, 3, rows)]
        if kind == "near":  # below what float32 resolves, far above what float64 does
            size = rng.choice([0.0, 1e-9, 1e-7], (rows, 1))
            made = made * (1 + size * rng.integers(-3, 4, (rows, width)))
        elif kind == "scaled":
            made = made * rng.choice([0.25, 1.0, 1.0, 3.0, 64.0], (rows, 1))
    return made.astype(dtype)


def laid_out(array: Any, layout: str) -> Any:
    """The same values, elsewhere in memory."""
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "strided":
        wide = np.full((len(array) * 2, array.shape[1] * 3), np.nan, dtype=array.dtype)
        wide[::2, ::3] = array
        return wide[::2, ::3]
    return array[::-1].copy()[::-1] if layout == "backwards" else array


def shared_texts(images: int, texts: int, rng: np.random.Generator) -> Right:
    """Any text for any image: some for several, some for none."""
    share = rng.uniform(0, 0.5)
    return [set(np.flatnonzero(rng.random(texts) < share).tolist()) for _ in range(images)]


def own_texts(images: int, rng: np.random.Generator) -> Right:
    """From none to seven texts of its own for each image, in any order, and at least one in all."""
    counts = rng.integers(0, 8, images)
    counts[0] = max(1, counts[0]) if counts.sum() == 0 else counts[0]
    order = rng.permutation(int(counts.sum())).tolist()
    ends = np.cumsum(counts).tolist()
    return [set(order[end - count : end]) for end, count in zip(ends, counts.tolist(), strict=True)]


@st.composite
def problems(draw: st.DrawFn, *, shared: bool | None = None, kinds: Sequence[str] = KINDS) -> Problem:
    """Up to 7 images with texts of their own, or ``shared`` texts."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    images, width = draw(st.integers(1, 7)), draw(st.sampled_from([1, 2, 3, 5, 24]))
    if draw(st.booleans()) if shared is None else shared:
        texts = draw(st.integers(1, 16))
        right = shared_texts(images, texts, rng)
    else:
        right = own_texts(images, rng)
        texts = sum(map(len, right))
    both = _drawn_vectors(draw, images + texts, width, rng, kinds)  # together, so that the sides share duplicates
    return Problem(both[:images], both[images:], right)


@st.composite
def self_problems(draw: st.DrawFn) -> Problem:
    """A set of vectors that is searched in itself; nothing is right for itself."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.integers(1, 9))
    right = [found - {q} for q, found in enumerate(shared_texts(size, size, rng))]
    both = _drawn_vectors(draw, size, draw(st.sampled_from([1, 2, 5])), rng, KINDS)
    return Problem(both, both, right)


def _drawn_vectors(draw: st.DrawFn, rows: int, width: int, rng: np.random.Generator, kinds: Sequence[str]) -> Any:
    dtype = draw(st.sampled_from(["float64", "float32", "float16"]))
    layout = draw(st.sampled_from(["plain", "fortran", "strided", "backwards"]))
    return laid_out(vectors(draw(st.sampled_from(kinds)), rows, width, dtype, rng), layout)
