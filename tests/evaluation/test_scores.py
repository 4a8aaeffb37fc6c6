"""Scores: blocks in float32 that stay within a proven distance of single entries in float64, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.evaluation import naive

from vse.errors import InputError
from vse.evaluation import DotScores, MatrixScores, MeanScores, Positives, Scores, ranks

ALL = slice(None)
SIZES = st.tuples(st.integers(1, 8), st.integers(1, 8), st.sampled_from([1, 2, 3, 7, 16, 65, 300, 1025]))
DTYPES = st.sampled_from(["float16", "float32", "float64"])


def everything(scores: Scores) -> np.ndarray:
    """Every exact entry, ``(rows, columns)``."""
    rows, columns = scores.shape
    return scores.exact(np.repeat(np.arange(rows), columns), np.tile(np.arange(columns), rows)).reshape(rows, columns)


def farthest(scores: Scores) -> float:
    """The largest distance of a block from the exact entries."""
    return float(np.abs(scores.block(ALL, ALL).astype(np.float64) - everything(scores)).max())


def unkind_vectors(kind: str, rows: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Vectors whose rounding errors are large or all point one way."""
    if kind == "one sign":
        return rng.uniform(0.5, 1.0, (rows, width))
    if kind == "halfway":  # half a unit in the last place of float32: every input is rounded by as much as can be
        return 1.0 + 2.0**-24 * rng.choice([0.999, 1.001, 2.999, 3.001], (rows, width))
    if kind == "cancelling":
        made = rng.standard_normal((rows, width))
        made[:, width // 2 :] *= -1
        return made
    return rng.standard_normal((rows, width)) * 10.0 ** rng.uniform(-4, 4, (rows, width))


KINDS = st.sampled_from(["one sign", "halfway", "cancelling", "many scales"])


@settings(max_examples=500)
@given(sizes=SIZES, kind=KINDS, dtype=DTYPES, power=st.integers(-12, 12), seed=st.integers(0, 2**32 - 1))
def test_a_block_is_never_farther_off_than_the_tolerance(sizes, kind, dtype, power, seed):
    """|block - exact| <= tolerance for vectors of any size and scale, and the bound is not an idle one."""
    rows, columns, width = sizes
    rng = np.random.default_rng(seed)
    scale = 2.0**power if dtype != "float16" else 2.0**-3
    left, right = (unkind_vectors(kind, n, width, rng).astype(dtype) * np.array(scale, dtype) for n in (rows, columns))
    assume(np.isfinite(left).all() and np.isfinite(right).all())
    scores = DotScores(left, right)
    assert farthest(scores) <= scores.tolerance
    assert scores.tolerance <= 1e-6 * (width + 10) * naive.largest_score(left, right)


@settings(max_examples=200)
@given(sizes=SIZES, kind=KINDS, number=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_the_block_of_an_ensemble_keeps_its_tolerance(sizes, kind, number, seed):
    """The bound holds for the mean of dot products."""
    rows, columns, width = sizes
    rng = np.random.default_rng(seed)
    made = [[unkind_vectors(kind, n, width, rng) for n in (rows, columns)] for _ in range(number)]
    scores = MeanScores([DotScores(*pair) for pair in made])
    assert farthest(scores) <= scores.tolerance


@settings(max_examples=200)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    number=st.integers(1, 5),
    dtypes=st.lists(DTYPES, min_size=5, max_size=5),
    size=st.sampled_from([1e-2, 1.0, 1e3]),
    with_vectors=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_block_of_given_matrices_keeps_its_tolerance(shape, number, dtypes, size, with_vectors, seed):
    """The bound holds for a matrix of any precision, for the mean of several, and beside dot products."""
    rng = np.random.default_rng(seed)
    members = [MatrixScores((size * rng.uniform(0.5, 1, shape)).astype(dtype)) for dtype in dtypes[:number]]
    for member in members:
        assert farthest(member) <= member.tolerance
    if with_vectors:
        members.append(DotScores(*(rng.standard_normal((n, 3)) for n in shape)))
    scores = MeanScores(members)
    assert farthest(scores) <= scores.tolerance


@settings(max_examples=200)
@given(sizes=SIZES, kind=KINDS, dtype=DTYPES, seed=st.integers(0, 2**32 - 1))
def test_an_entry_is_known_to_its_resolution(sizes, kind, dtype, seed):
    """|exact - correctly rounded sum| <= resolution, which itself is millions of times below what float32 resolves."""
    rows, columns, width = (min(n, limit) for n, limit in zip(sizes, (3, 3, 300), strict=True))
    rng = np.random.default_rng(seed)
    left, right = (unkind_vectors(kind, n, width, rng).astype(dtype) for n in (rows, columns))
    scores = DotScores(left, right)
    assert np.abs(everything(scores) - np.array(naive.score_matrix(left, right))).max() <= scores.resolution
    assert scores.resolution <= 1e-14 * width * naive.largest_score(left, right)


def every_kind() -> list[Scores]:
    """Scores of each kind, of one shape, with values that nobody rounds."""
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-4, 5, (n, 3)).astype(np.float64) for n in (5, 7))
    dots, single = DotScores(left, right), MatrixScores(rng.integers(-9, 9, (5, 7)).astype(np.float32))
    double = MatrixScores(rng.integers(-9, 9, (5, 7)).astype(np.float64))
    return [dots, single, double, MeanScores([dots, single]), MeanScores([dots, single, double, double])]


@pytest.mark.parametrize("scores", every_kind(), ids=lambda scores: type(scores).__name__)
def test_a_part_is_a_part_of_the_whole(scores):
    """Blocks, transposition and selection are views of one matrix."""
    whole = everything(scores)
    assert scores.shape == (5, 7)
    assert scores.block(ALL, ALL).dtype == np.float32
    np.testing.assert_array_equal(scores.block(slice(1, 3), slice(2, 99)), whole[1:3, 2:].astype(np.float32))
    assert scores.T.shape == (7, 5)
    np.testing.assert_array_equal(everything(scores.T), whole.T)
    np.testing.assert_array_equal(scores.T.block(slice(0, 2), ALL), whole.T[:2].astype(np.float32))
    np.testing.assert_array_equal(everything(scores.T.T), whole)
    rows, columns = np.array([4, 0, 4]), np.array([6, 1])
    chosen = scores.select(rows, columns)
    assert chosen.shape == (3, 2)
    np.testing.assert_array_equal(everything(chosen), whole[np.ix_(rows, columns)])
    assert scores.exact(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("scores", every_kind(), ids=lambda scores: type(scores).__name__)
@pytest.mark.parametrize("number", [1, 2])
def test_a_block_belongs_to_the_caller(scores, number):
    """Whoever writes into a block changes neither the scores nor the next block; ranking leaves them alone too."""
    for kind in (scores, scores.T, MeanScores([scores] * number)):
        before, quick = everything(kind), kind.block(ALL, ALL)
        kind.block(ALL, ALL)[:] = np.nan
        ranks(kind, Positives.from_lists([[0]] * kind.shape[0], kind.shape[1]))
        np.testing.assert_array_equal(everything(kind), before)
        np.testing.assert_array_equal(kind.block(ALL, ALL), quick)


def test_a_transposed_matrix_keeps_the_precision_of_its_vectors():
    """Turning dot products around turns neither the exact values nor the bounds into those of float32."""
    left, right = np.array([[1 + 1e-9, 1.0]]), np.array([[1.0, 1.0], [1.0, 1e-9]])
    scores = DotScores(left, right)
    np.testing.assert_array_equal(everything(scores.T), everything(scores).T)
    assert (scores.T.tolerance, scores.T.resolution) == (scores.tolerance, scores.resolution)


def test_many_entries_are_gathered_in_portions(monkeypatch):
    """The portion in which single entries are computed does not show."""
    rng = np.random.default_rng(0)
    scores = DotScores(rng.standard_normal((20, 6)), rng.standard_normal((30, 6)))
    whole = everything(scores)
    monkeypatch.setattr("vse.evaluation.scores.EXACT_CHUNK", 20)
    np.testing.assert_array_equal(everything(scores), whole)


def test_an_ensemble_is_the_mean_of_its_members():
    """Each entry is the mean; a single member is itself."""
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 2.0], [0.0, -4.0]])
    np.testing.assert_array_equal(everything(MeanScores([MatrixScores(a), MatrixScores(b)])), (a + b) / 2)
    np.testing.assert_array_equal(everything(MeanScores([MatrixScores(a)])), a)


def test_an_ensemble_needs_members_of_one_shape():
    """No members, or members of several shapes, are errors that say so."""
    with pytest.raises(InputError, match="at least one member"):
        MeanScores([])
    with pytest.raises(InputError, match=r"\(2, 2\), \(2, 3\)"):
        MeanScores([MatrixScores(np.ones((2, 2))), MatrixScores(np.ones((2, 3)))])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint32])
def test_whole_numbers_are_vectors_too(dtype):
    """Integer vectors are scored without overflow and without rounding."""
    left, right = np.array([[100, 27], [3, 0]], dtype=dtype), np.array([[100, 100], [1, 2]], dtype=dtype)
    np.testing.assert_array_equal(everything(DotScores(left, right)), [[12700.0, 154.0], [300.0, 3.0]])


def test_large_whole_numbers_keep_their_digits():
    """A 32-bit whole number does not fit float32 and is not squeezed into it."""
    assert everything(DotScores(np.array([[2**24 + 1]], dtype=np.int32), np.ones((1, 1)))).item() == 2**24 + 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 7, 5000])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("tensor", [False, True])
def test_a_vector_that_is_no_number_is_named(bad, row, side, tensor):
    """NaN and infinity are an InputError with the array and the row, for arrays and tensors."""
    sides = {"left": np.ones((5001, 2), dtype=np.float32), "right": np.ones((5001, 2), dtype=np.float32)}
    sides[side][row, 1] = bad
    values = [torch.from_numpy(array) if tensor else array for array in sides.values()]
    with pytest.raises(InputError, match=rf"{side}\[{row}\].*NaN or infinite"):
        DotScores(*values)


@pytest.mark.parametrize(
    "wrong",
    [
        np.ones(3),
        np.ones((2, 3, 4)),
        np.float64(3.0),
        [],
        [["a", "b"]],
        np.ones((2, 2), complex),
        np.ones((2, 2), bool),
    ],
    ids=["one-dimension", "three", "number", "empty-list", "text", "complex", "bool"],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_scores_refuse_invalid_embeddings(wrong, side):
    """The error names the array, its type and its shape."""
    shape = str(np.asarray(wrong).shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(InputError, match=rf"{side} must be vectors \(n, D\).*{np.asarray(wrong).dtype}.*{shape}"):
        DotScores(*((wrong, np.ones((2, 2))) if side == "left" else (np.ones((2, 2)), wrong)))


def test_vectors_of_different_widths_are_refused():
    """The error names both widths."""
    with pytest.raises(InputError, match=r"3 and of 4 dimensions"):
        DotScores(np.ones((2, 3)), np.ones((2, 4)))


@pytest.mark.parametrize("wrong", [np.ones(3), np.ones((2, 2, 2)), np.ones((2, 2), int), np.ones((2, 2), complex)])
def test_scores_refuse_invalid_matrix(wrong):
    """The error names type and shape."""
    with pytest.raises(InputError, match=rf"scores must be.*{wrong.dtype}"):
        MatrixScores(wrong)


@settings(max_examples=300)
@given(
    problem=naive.problems(),
    ties=st.sampled_from(["pessimistic", "optimistic"]),
    number=st.integers(2, 4),
    size=st.sampled_from([1.0, 1e3]),
)
def test_an_ensemble_of_given_matrices_ranks_by_their_mean(problem, ties, number, size):
    """The mean of float32 matrices is taken in float64: what float32 would round together stays apart."""
    rng = np.random.default_rng(len(problem.texts) + number)
    shape = len(problem.images), len(problem.texts)
    members = [np.full(shape, size, dtype=np.float32)]
    members += [(rng.integers(-3, 4, shape) * 2.0**-18).astype(np.float32) for _ in range(number - 1)]
    matrix = naive.mean_matrix([values.tolist() for values in members])
    scores = MeanScores([MatrixScores(values) for values in members])
    positives = Positives.from_lists(problem.lists, shape[1])
    wanted = naive.ranks(matrix, problem.right, 1e-12 * size, optimistic=ties == "optimistic")
    assert ranks(scores, positives, ties=ties).tolist() == wanted


def test_an_ensemble_of_vectors_and_matrices_is_exact():
    """Matrices of large scores beside short vectors: the vectors decide, as in float64."""
    texts = np.linspace(0, 3e-5, 50).reshape(50, 1)
    matrices = [MatrixScores(np.full((1, 50), value, dtype=np.float32)) for value in (100.1, 33.3, 77.7, -60.6)]
    scores = MeanScores([DotScores(np.ones((1, 1)), texts), *matrices])
    for right in range(50):
        assert ranks(scores, Positives.from_lists([[right]], 50)).tolist() == [50 - right]


@pytest.mark.parametrize("row", [0, 3, 1500])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_matrix_with_nan_is_refused(row, dtype, bad):
    """Wherever in the matrix it stands, a value that is no number is an error, not a rank."""
    values = np.ones((1501, 2), dtype=dtype)
    values[row, 1] = bad
    with pytest.raises(InputError, match="NaN or infinite"):
        ranks(MatrixScores(values), Positives.from_lists([[0]] * 1501, 2))
