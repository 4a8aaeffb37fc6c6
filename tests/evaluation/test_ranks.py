"""Ranks by counting in blocks, against a naive float64 implementation that sorts every score by hand."""

from __future__ import annotations

import importlib
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.evaluation import naive

from vse.errors import InputError
from vse.evaluation import DotScores, MatrixScores, MeanScores, Positives, ranks, ranks_both_ways

MODULE = importlib.import_module("vse.evaluation.ranks")  # the package's attribute of this name is the function
TIES = st.sampled_from(["pessimistic", "optimistic"])


@contextmanager
def blocks(rows: int, columns: int, dense: float) -> Iterator[None]:
    """Blocks smaller than the data; ``dense`` 0 always sums over a block, 1 always lists what it found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "BLOCK_ROWS", rows)
        patch.setattr(MODULE, "BLOCK_COLUMNS", columns)
        patch.setattr(MODULE, "DENSE", dense)
        yield


BLOCKS = st.sampled_from([(3, 4, 0.0), (3, 4, 1.0), (1, 1, 0.0), (4, 3, 1.0), (1024, 4096, 0.0), (1024, 4096, 0.02)])


def positives_of(problem: naive.Problem) -> Positives:
    return Positives.from_lists(problem.lists, len(problem.texts))


def both_ways(scores: object, positives: Positives, ties: str = "pessimistic") -> tuple[list[int], list[int]]:
    rows, columns = ranks_both_ways(scores, positives, ties=ties)
    return rows.tolist(), columns.tolist()


@settings(max_examples=2000)
@given(problem=naive.problems() | naive.problems(kinds=["near"]), ties=TIES, sizes=BLOCKS)
def test_ranks_are_those_of_float64(problem, ties, sizes):
    """Both directions equal the naive ranks: exact ties, near ties, duplicates, scales, dtypes, layouts, any block."""
    assume(problem.clear)
    with blocks(*sizes):
        found = both_ways(DotScores(problem.images, problem.texts), positives_of(problem), ties)
    assert found == problem.ranks(optimistic=ties == "optimistic")


def test_a_lead_of_one_part_in_a_billion_wins():
    """The right text is ahead by 1e-9, then behind by 1e-9: rank 1, then 2, under both tie rules."""
    image = np.array([[0.6, 0.8]])
    for lead, rank in ((1e-9, 1), (-1e-9, 2)):
        texts = np.array([[0.6, 0.8 + lead], [0.6, 0.8]])
        for ties in ("pessimistic", "optimistic"):
            assert ranks(DotScores(image, texts), Positives.from_lists([[0]], 2), ties=ties).tolist() == [rank]


@pytest.mark.parametrize("dense", [0.0, 1.0])
def test_ranks_beyond_a_byte_are_counted(dense):
    """Thousands of better candidates make a rank of thousands, whichever way a block is counted."""
    texts = np.arange(5000.0).reshape(5000, 1)
    with blocks(1024, 4096, dense):
        rows, columns = both_ways(DotScores(np.ones((300, 1)), texts), Positives.from_lists([[0, 7]] * 300, 5000))
    assert rows == [4993] * 300
    assert columns == [1] + [0] * 6 + [1] + [0] * 4992


def test_the_order_of_additions_makes_no_difference():
    """Texts whose scores are equal on paper are tied, though float64 gives them different last bits."""
    rng = np.random.default_rng(5)
    image, text = np.ones((1, 300)), rng.standard_normal(300)
    texts = np.stack([rng.permutation(text) for _ in range(64)])
    scores, right = DotScores(image, texts), Positives.from_lists([[0]], 64)
    assert len({float(x) for x in scores.exact(np.zeros(64, int), np.arange(64))}) > 1
    assert ranks(scores, right).tolist() == [64]
    assert ranks(scores, right, ties="optimistic").tolist() == [1]


@settings(max_examples=400)
@given(problem=naive.problems(), ties=TIES, sizes=BLOCKS)
def test_one_pass_gives_what_two_would(problem, ties, sizes):
    """Both directions at once equal each direction alone, the second on the transposed problem."""
    scores, positives = DotScores(problem.images, problem.texts), positives_of(problem)
    with blocks(*sizes):
        together = both_ways(scores, positives, ties)
        alone = ranks(scores, positives, ties=ties).tolist(), ranks(scores.T, positives.T, ties=ties).tolist()
        swapped = both_ways(DotScores(problem.texts, problem.images), positives.T, ties)
    assert together == alone == swapped[::-1]


@settings(max_examples=500)
@given(problem=naive.self_problems(), ties=TIES, sizes=BLOCKS)
def test_a_query_may_be_left_out_of_its_own_candidates(problem, ties, sizes):
    """With exclude_self the query's own vector is no candidate, whatever its score."""
    assume(problem.clear)
    options = {"optimistic": ties == "optimistic", "no_self": True}
    with blocks(*sizes):
        found = ranks(DotScores(problem.images, problem.texts), positives_of(problem), exclude_self=True, ties=ties)
    assert found.tolist() == naive.ranks(problem.matrix, problem.right, problem.slack, **options)


@settings(max_examples=300)
@given(problem=naive.problems(), seed=st.integers(0, 999), sizes=BLOCKS)
def test_the_order_of_candidates_makes_no_difference(problem, seed, sizes):
    """Shuffled texts give every image the same rank."""
    order = np.random.default_rng(seed).permutation(len(problem.texts))
    place = np.argsort(order)
    shuffled = Positives.from_lists([place[found].tolist() for found in problem.lists], len(order))
    with blocks(*sizes):
        before = ranks(DotScores(problem.images, problem.texts), positives_of(problem))
        after = ranks(DotScores(problem.images, problem.texts[order]), shuffled)
    assert before.tolist() == after.tolist()


@settings(max_examples=300)
@given(problem=naive.problems(), power=st.sampled_from([-40, -12, 9, 40]), ties=TIES)
def test_the_length_of_the_vectors_makes_no_difference(problem, power, ties):
    """Vectors multiplied by a power of two keep their ranks."""
    images, texts = problem.images.astype(np.float64), problem.texts.astype(np.float64)
    usual = both_ways(DotScores(images, texts), positives_of(problem), ties)
    assert both_ways(DotScores(images * 2.0**power, texts), positives_of(problem), ties) == usual


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e-30, 1e-22, 3e-20, 1e20, 1e30])
def test_scores_outside_float32_are_refused_or_right(size, dtype):
    """Where float32 overflows or loses its digits, the ranks are still those of float64, or it is an InputError."""
    rng = np.random.default_rng(0)
    images, texts = rng.standard_normal((6, 8)), rng.standard_normal((40, 8))
    lists = [[q, q + 6] for q in range(6)]
    small, large = (images * size).astype(dtype), (texts * size).astype(dtype)
    right = [set(found) for found in lists]
    wanted = naive.ranks(naive.score_matrix(small, large), right, 1e-13 * naive.largest_score(small, large))
    try:
        found = ranks(DotScores(small, large), Positives.from_lists(lists, 40)).tolist()
    except InputError:
        return
    assert found == wanted


@settings(max_examples=300)
@given(problem=naive.problems(), ties=TIES, number=st.integers(1, 4), seed=st.integers(0, 999), sizes=BLOCKS)
def test_an_ensemble_ranks_by_the_mean_of_its_matrices(problem, ties, number, seed, sizes):
    """MeanScores over dot products equals the naive mean of the members' matrices."""
    rng = np.random.default_rng(seed)
    pairs = [(problem.images, problem.texts)]
    for _ in range(number - 1):
        rows = len(problem.images) + len(problem.texts)
        made = naive.vectors(str(rng.choice(["whole", "near", "random"])), rows, 3, "float32", rng)
        pairs.append((made[: len(problem.images)], made[len(problem.images) :]))
    matrix = naive.mean_matrix([naive.score_matrix(*pair) for pair in pairs])
    largest = max(naive.largest_score(*pair) for pair in pairs)
    slack, noise = 1e-12 * largest, naive.EPS * largest
    ways = naive.both_ways(matrix, problem.right)
    assume(not any(naive.undecided(*way, noise, slack) for way in ways))
    with blocks(*sizes):
        found = both_ways(MeanScores([DotScores(*pair) for pair in pairs]), positives_of(problem), ties)
    assert found == tuple(naive.ranks(*way, slack, optimistic=ties == "optimistic") for way in ways)


@settings(max_examples=300)
@given(
    problem=naive.problems(),
    ties=TIES,
    sizes=BLOCKS,
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    close=st.sampled_from([0.0, 1e-9, 1e-3]),
)
def test_a_given_matrix_is_ranked_as_it_stands(problem, ties, sizes, dtype, close):
    """MatrixScores compares the very values: what differs at all differs, in float64 below float32's resolution too."""
    rng = np.random.default_rng(len(problem.texts))
    shape = len(problem.images), len(problem.texts)
    values = (rng.integers(-1, 2, shape) + close * rng.integers(-2, 3, shape)).astype(dtype)
    ways = naive.both_ways(values.tolist(), problem.right)
    with blocks(*sizes):
        found = both_ways(MatrixScores(values), positives_of(problem), ties)
    assert found == tuple(naive.ranks(*way, 0.0, optimistic=ties == "optimistic") for way in ways)


def test_a_matrix_on_disk_is_ranked_like_one_in_memory(tmp_path):
    """A memory-mapped matrix gives the ranks of its copy."""
    values = np.random.default_rng(0).integers(-3, 4, (30, 50)).astype(np.float32)
    np.save(tmp_path / "scores.npy", values)
    mapped = np.load(tmp_path / "scores.npy", mmap_mode="r", allow_pickle=False)
    positives = Positives.from_lists([[q, q + 20] for q in range(30)], 50)
    with blocks(7, 11, 0.02):
        assert both_ways(MatrixScores(mapped), positives) == both_ways(MatrixScores(values), positives)


@pytest.mark.parametrize("make", [np.zeros, np.ones])
@pytest.mark.parametrize("dense", [0.0, 1.0])
def test_equal_scores_give_the_worst_rank(make, dense):
    """A model that scores every pair alike finds the right ones last, both ways; first only if asked to."""
    positives = Positives.from_lists([[0, 1, 2], [3], [], [4, 5]], 6)
    kinds = [DotScores(make((4, 3)), make((6, 3))), MatrixScores(make((4, 6))), MatrixScores(make((4, 6), "float32"))]
    with blocks(3, 4, dense):
        for scores in [*kinds, MeanScores(kinds)]:
            assert both_ways(scores, positives) == ([4, 6, 0, 5], [4] * 6)
            assert both_ways(scores, positives, "optimistic") == ([1, 1, 0, 1], [1] * 6)


def test_a_query_without_right_candidates_has_rank_zero():
    """Zero is no rank: whoever measures skips these queries, also where nobody has any."""
    scores = DotScores(np.eye(3), np.eye(3))
    assert ranks(scores, Positives.from_lists([[], [1], []], 3)).tolist() == [0, 1, 0]
    assert both_ways(scores, Positives.from_lists([[], [], []], 3)) == ([0, 0, 0], [0, 0, 0])


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_nothing_to_rank_gives_no_ranks(shape):
    """Without images or without texts there are zero ranks on one side and no query with an answer on the other."""
    scores = DotScores(np.zeros((shape[0], 2)), np.zeros((shape[1], 2)))
    assert both_ways(scores, Positives.from_lists([[]] * shape[0], shape[1])) == ([0] * shape[0], [0] * shape[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_are_ranked_like_arrays(dtype):
    """A tensor, with a gradient or not, gives the ranks of the array with its values, in its own precision."""
    rng = np.random.default_rng(1)
    images = torch.tensor(naive.vectors("near", 12, 4, "float64", rng), requires_grad=True).to(dtype)
    texts = torch.tensor(naive.vectors("near", 40, 4, "float64", rng)).to(dtype)
    positives = Positives.from_lists([[q, q + 12] for q in range(12)], 40)
    arrays = DotScores(images.detach().double().numpy(), texts.double().numpy())
    assert both_ways(DotScores(images, texts), positives) == both_ways(arrays, positives)


def test_memory_stays_far_below_the_whole_matrix():
    """Ranking 3,000 images and 15,000 texts holds less than half of what their score matrix would take."""
    rng = np.random.default_rng(0)
    images, texts = (rng.standard_normal((n, 16)).astype(np.float32) for n in (3000, 15000))
    positives = Positives.from_pairs(np.arange(15000) // 5, np.arange(15000), (3000, 15000))
    tracemalloc.start()
    try:
        ranks_both_ways(DotScores(images, texts), positives)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3000 * 15000 * 4 / 2


class Recorder:
    """A reporter that remembers what it was told."""

    def __init__(self) -> None:
        self.total, self.done, self.finished = -1, 0, 0

    def start(self, total: int, description: str) -> None:
        assert description
        self.total = total

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        self.done += steps

    def note(self, message: str) -> None: ...

    def finish(self) -> None:
        self.finished += 1


@pytest.mark.parametrize("run", [ranks, ranks_both_ways])
def test_progress_counts_to_its_total(run):
    """As many steps are reported as announced, then the end."""
    report = Recorder()
    with blocks(3, 4, 0.02):
        run(DotScores(np.eye(11), np.eye(11)), Positives.from_lists([[q] for q in range(11)], 11), progress=report)
    assert report.total == report.done > 1
    assert report.finished == 1


@pytest.mark.parametrize("run", [ranks, ranks_both_ways])
def test_positives_of_another_size_are_refused(run):
    """The error names both sizes."""
    with pytest.raises(InputError, match=r"2 queries and 5 candidates.* 3 and 5"):
        run(DotScores(np.eye(3, 4), np.eye(5, 4)), Positives.from_lists([[0], [1]], 5))


@pytest.mark.parametrize("run", [ranks, ranks_both_ways])
def test_an_unknown_tie_rule_is_named(run):
    """The error shows the value and the valid ones."""
    with pytest.raises(InputError, match=r"'random'.*'pessimistic', 'optimistic'"):
        run(DotScores(np.eye(2), np.eye(2)), Positives.from_lists([[0], [1]], 2), ties="random")


def test_exclude_self_needs_one_set_of_vectors():
    """Different numbers of queries and candidates, or a query that is right for itself, are errors."""
    with pytest.raises(InputError, match=r"exclude_self.*2 and 3"):
        ranks(DotScores(np.eye(2, 3), np.eye(3)), Positives.from_lists([[0], [1]], 3), exclude_self=True)
    with pytest.raises(InputError, match="its own right candidates"):
        ranks(DotScores(np.eye(2), np.eye(2)), Positives.from_lists([[0], [0]], 2), exclude_self=True)
