"""Score matrices that are never held in memory: blocks in float32, single entries in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError

HALF_ULP = 2.0**-24  # relative rounding error of one float32 operation
EXACT_CHUNK = 1 << 22  # values gathered at once when single entries are computed
Indices = NDArray[np.int64]


class Scores(Protocol):
    """A matrix of scores ``(rows, columns)``, larger is better.

    ``block`` is fast and float32; ``exact`` is the float64 value of single entries. ``tolerance`` bounds the difference
    of the two. Entries whose exact values differ by less than ``resolution``, the rounding error of float64, count as
    equal.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def tolerance(self) -> float:
        """The largest possible ``|block - exact|``."""

    @property
    def resolution(self) -> float:
        """The rounding error of ``exact`` itself."""

    @property
    def largest(self) -> float:
        """An upper bound of the absolute scores."""

    def block(self, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Return a block of scores, which the caller may modify."""

    def exact(self, rows: Indices, columns: Indices) -> NDArray[np.float64]:
        """Return the scores ``(n,)`` of single entries."""

    def wide(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        """Return a block in float64, within half of ``resolution`` of ``exact``."""

    def select(self, rows: Indices, columns: Indices) -> Scores:
        """Return the scores of some rows and columns."""

    @property
    def T(self) -> Scores:
        """The transposed scores."""


@dataclass(frozen=True, eq=False)
class DotScores:
    """``left @ right.T`` for ``left (R, D)`` and ``right (C, D)``: the cosine of unit vectors.

    A dot product of D terms in float32 is off by at most ``(D + 4) 2^-24 |a| |b|``, in whatever order BLAS adds.
    """

    left: NDArray[Any]
    right: NDArray[Any]
    names: tuple[str, str] = ("left", "right")  # for messages

    def __post_init__(self) -> None:
        for name, called in (("left", self.names[0]), ("right", self.names[1])):
            object.__setattr__(self, name, checked_vectors(called, getattr(self, name)))
        if self.left.shape[1] != self.right.shape[1]:
            raise InputError(f"vectors of {self.left.shape[1]} and of {self.right.shape[1]} dimensions have no scores")

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.left), len(self.right)

    @cached_property
    def _scale(self) -> float:
        return _longest(self.left) * _longest(self.right)

    @property
    def largest(self) -> float:
        return self._scale

    @property
    def tolerance(self) -> float:
        return (self.left.shape[1] + 4) * HALF_ULP * self._scale

    @property
    def resolution(self) -> float:
        return 4 * self.left.shape[1] * float(np.finfo(np.float64).eps) * self._scale

    @cached_property
    def _quick(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return _single(self.left), _single(self.right)

    def block(self, rows: slice, columns: slice) -> NDArray[np.float32]:
        left, right = self._quick
        return left[rows] @ right[columns].T

    def exact(self, rows: Indices, columns: Indices) -> NDArray[np.float64]:
        out = np.empty(len(rows))
        step = max(1, EXACT_CHUNK // max(1, self.left.shape[1]))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            left, right = self.left[rows[part]], self.right[columns[part]]
            np.multiply(left, right, dtype=np.float64).sum(axis=1, out=out[part])  # products of float32 are exact
        return out

    def wide(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        return self.left[rows].astype(np.float64) @ self.right[columns].astype(np.float64).T

    def select(self, rows: Indices, columns: Indices) -> DotScores:
        return DotScores(self.left[rows], self.right[columns], self.names)

    @property
    def T(self) -> DotScores:
        turned = object.__new__(DotScores)  # checked and measured already
        left, right = self._quick
        turned.__dict__.update(
            left=self.right, right=self.left, names=self.names[::-1], _scale=self._scale, _quick=(right, left)
        )
        return turned


@dataclass(frozen=True)
class MeanScores:
    """The mean of several score matrices: an ensemble."""

    members: tuple[Scores, ...]

    def __init__(self, members: Sequence[Scores]) -> None:
        if not members:
            raise InputError("an ensemble needs at least one member")
        shapes = {member.shape for member in members}
        if len(shapes) > 1:
            raise InputError(f"the members of an ensemble have score matrices of different shapes: {sorted(shapes)}")
        object.__setattr__(self, "members", tuple(members))

    @property
    def shape(self) -> tuple[int, int]:
        return self.members[0].shape

    @property
    def tolerance(self) -> float:
        rounding = (len(self.members) + 1) * HALF_ULP * self.largest  # the additions and the division
        return max(member.tolerance for member in self.members) + rounding

    @property
    def resolution(self) -> float:
        rounding = 2 * len(self.members) * float(np.finfo(np.float64).eps) * self.largest
        return max(member.resolution for member in self.members) + rounding

    @property
    def largest(self) -> float:
        return max(member.largest for member in self.members)

    def block(self, rows: slice, columns: slice) -> NDArray[np.float32]:
        first, *others = self.members
        total = first.block(rows, columns)
        for member in others:
            total = total + member.block(rows, columns)
        return total / np.float32(len(self.members))

    def exact(self, rows: Indices, columns: Indices) -> NDArray[np.float64]:
        return np.mean([member.exact(rows, columns) for member in self.members], axis=0)

    def wide(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        return np.mean([member.wide(rows, columns) for member in self.members], axis=0)

    def select(self, rows: Indices, columns: Indices) -> MeanScores:
        return MeanScores([member.select(rows, columns) for member in self.members])

    @property
    def T(self) -> MeanScores:
        return MeanScores([member.T for member in self.members])


@dataclass(frozen=True, eq=False)
class MatrixScores:
    """A given score matrix; a memory-mapped one stays on disk."""

    values: NDArray[Any]

    def __post_init__(self) -> None:
        if hasattr(self.values, "detach"):
            object.__setattr__(self, "values", self.values.detach().cpu().numpy())
        if not isinstance(self.values, np.ndarray):
            raise InputError(f"scores must be an array (queries, candidates), got {type(self.values).__name__}")
        if self.values.ndim != 2 or not np.issubdtype(self.values.dtype, np.floating):
            raise InputError(
                f"scores must be numbers (queries, candidates), got {self.values.dtype} {self.values.shape}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @cached_property
    def _largest(self) -> float:
        if not self.values.size:
            return 0.0
        largest = 0.0
        for start in range(0, len(self.values), 1024):
            rows = np.abs(self.values[start : start + 1024]).max(axis=1)
            if not np.isfinite(rows).all():
                row = start + int((~np.isfinite(rows)).argmax())
                raise InputError(f"scores[{row}] holds NaN or infinite values: they cannot be ranked")
            largest = max(largest, float(rows.max()))
        if largest > np.finfo(np.float32).max:
            raise InputError(f"scores up to {largest:.1g} are beyond float32: scale them down")
        return largest

    @property
    def largest(self) -> float:
        return self._largest

    @property
    def tolerance(self) -> float:
        return 0.0 if self.values.dtype.itemsize <= 4 and self._largest >= 0 else 2 * HALF_ULP * self._largest

    @property
    def resolution(self) -> float:
        return 0.0

    def block(self, rows: slice, columns: slice) -> NDArray[np.float32]:
        return np.array(self.values[rows, columns], dtype=np.float32)

    def exact(self, rows: Indices, columns: Indices) -> NDArray[np.float64]:
        return np.asarray(self.values[rows, columns], dtype=np.float64)

    def wide(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        return np.asarray(self.values[rows, columns], dtype=np.float64)

    def select(self, rows: Indices, columns: Indices) -> MatrixScores:
        return MatrixScores(self.values[np.ix_(rows, columns)])

    @property
    def T(self) -> MatrixScores:
        return MatrixScores(self.values.T)


def checked_vectors(name: str, vectors: Any) -> NDArray[Any]:
    """Return ``vectors`` (an array or a tensor) as a floating ``(n, D)`` array; raise InputError for NaN."""
    if hasattr(vectors, "detach"):  # a torch tensor, without importing torch
        vectors = vectors.detach().cpu()
        wide = vectors.element_size() == 8 or not vectors.is_floating_point()
        vectors = (vectors.double() if wide else vectors.float()).numpy()  # numpy has no bfloat16
    try:
        array = np.asarray(vectors)
    except ValueError:
        raise InputError(f"{name} must be vectors (n, D), all of one length") from None
    if array.ndim != 2 or not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise InputError(f"{name} must be vectors (n, D), got {array.dtype} of shape {array.shape}")
    if not np.issubdtype(array.dtype, np.floating) or array.dtype.itemsize < 4:
        array = array.astype(np.float32 if array.dtype.itemsize < 4 else np.float64)
    for start in range(0, len(array), 4096):
        finite = np.isfinite(array[start : start + 4096]).all(axis=1)
        if not finite.all():
            row = start + int((~finite).argmax())
            raise InputError(f"{name}[{row}] holds NaN or infinite values: a score that is no number cannot be ranked")
    return array


def _single(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, dtype=np.float32)


def _longest(array: NDArray[Any]) -> float:
    """Return an upper bound of the longest vector's length, with a margin above rounding errors."""
    with np.errstate(over="ignore", under="ignore"):
        squares = np.einsum("ij,ij->i", array, array)
    longest = 1.001 * float(np.sqrt(squares.max(initial=0.0)))
    if longest > 1e18 or (longest < 1e-15 and array.any()):
        raise InputError(f"vectors of length {longest:.1g} have scores beyond float32: normalise them to unit length")
    return longest
