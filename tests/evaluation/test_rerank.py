"""Re-ranking in both directions, against a naive sort of every query's candidates."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vse.errors import InputError
from vse.evaluation.positives import Positives
from vse.evaluation.ranks import ranks_both_ways
from vse.evaluation.rerank import PairCache, RerankedScores, rerank, top_candidates
from vse.evaluation.scores import DotScores, MatrixScores

MODULE = importlib.import_module("vse.evaluation.rerank")  # the module has a function of its name


def naive_ranks(first: np.ndarray, second: np.ndarray, right: list[set[int]], depth: int, optimistic: bool) -> list:
    """Sort the candidates of each row by hand: the first stage, then the first ``depth`` of them again."""
    found = []
    for row, (scores, again) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        late = [c in right[row] for c in range(len(scores))]
        tie = [not each for each in late] if optimistic else late
        order = sorted(range(len(scores)), key=lambda c: (-scores[c], tie[c], c))
        head = sorted(order[:depth], key=lambda c: -again[c])
        places = [place for place, c in enumerate(head + order[depth:], 1) if late[c]]
        found.append(min(places, default=0))
    return found


@st.composite
def problems(draw):
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    levels = draw(st.integers(1, 4))  # few values: many ties
    numbers = st.integers(0, levels)
    matrix = st.lists(st.lists(numbers, min_size=columns, max_size=columns), min_size=rows, max_size=rows)
    right = [draw(st.sets(st.integers(0, columns - 1))) for _ in range(rows)]
    first, second = (np.array(draw(matrix), dtype=np.float64) / 3 for _ in range(2))
    return first, second, right, draw(st.integers(0, 8))


@settings(max_examples=200)
@given(problem=problems(), optimistic=st.booleans(), block=st.sampled_from([1, 5, 1 << 22]))
def test_reranked_ranks_equal_a_sort_by_hand_in_both_directions(problem, optimistic, block):
    """Ties of either stage, any depth, any block: the rank of the first right candidate is that of sorted lists."""
    first, second, right, depth = problem
    positives = Positives.from_lists([sorted(each) for each in right], first.shape[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "BLOCK", block)
        rows, columns = rerank(
            MatrixScores(first),
            lambda r, c: second[r, c],
            depth,
            positives,
            ties="optimistic" if optimistic else "pessimistic",
        )
    turned = [{row for row, each in enumerate(right) if column in each} for column in range(first.shape[1])]
    assert rows.tolist() == naive_ranks(first, second, right, depth, optimistic)
    assert columns.tolist() == naive_ranks(first.T, second.T, turned, depth, optimistic)


def embeddings(items: int = 40, texts: int = 90) -> tuple[DotScores, np.ndarray, Positives]:
    draw = np.random.default_rng(0)
    scores = DotScores(draw.normal(size=(items, 8)).astype(np.float32), draw.normal(size=(texts, 8)).astype(np.float32))
    owners = draw.integers(0, items, texts)
    return scores, draw.normal(size=(items, texts)), Positives.from_pairs(owners, np.arange(texts), (items, texts))


def test_depth_zero_is_the_first_stage_and_full_depth_the_reranker():
    """Without candidates the pairs are not asked for; with all of them the first stage does not matter."""
    scores, second, positives = embeddings()

    def unasked(rows, columns):
        raise AssertionError

    for found, wanted in zip(rerank(scores, unasked, 0, positives), ranks_both_ways(scores, positives), strict=True):
        assert np.array_equal(found, wanted)
    whole = ranks_both_ways(MatrixScores(second), positives)
    for found, wanted in zip(rerank(scores, lambda r, c: second[r, c], 90, positives), whole, strict=True):
        assert np.array_equal(found, wanted)


def test_candidates_of_float32_blocks_are_those_of_float64():
    """Duplicates and near duplicates at the last place are told apart as in float64."""
    scores, _, positives = embeddings()
    close = np.repeat(scores.left, 3, axis=0).astype(np.float64)
    close[1::3] += 1e-9
    wide = DotScores(scores.right, close)
    turned = Positives.from_lists([[] for _ in range(wide.shape[0])], wide.shape[1])
    exact = np.array([[float(np.dot(a.astype(np.float64), b)) for b in wide.right] for a in wide.left])
    for depth in (1, 2, 7):
        found = top_candidates(wide, turned, depth)
        chosen = np.sort(np.take_along_axis(exact, found, 1), axis=1)
        np.testing.assert_allclose(chosen, np.sort(exact, axis=1)[:, -depth:], rtol=0, atol=1e-14)
    assert top_candidates(scores, positives, 0).shape == (40, 0)


def test_pairs_are_scored_once_whatever_gallery_asks():
    """Folds of one test share the scores of their pairs, which keep their meaning when rows are selected."""
    scores, second, positives = embeddings()
    asked: list[tuple[int, int]] = []

    def score(rows, columns):
        asked.extend(zip(rows.tolist(), columns.tolist(), strict=True))
        return second[rows, columns]

    cache = PairCache(score, 90)
    whole = RerankedScores(scores, cache, 5)
    rows = np.arange(10, 40)
    part = whole.select(rows, np.arange(90))
    inside = positives.select(rows, np.arange(90))
    first = part.ranks_both_ways(inside)
    again = part.ranks_both_ways(inside)
    assert len(asked) == len(set(asked)) == cache.pairs
    assert all(row >= 10 for row, _ in asked)
    plain = rerank(scores.select(rows, np.arange(90)), lambda r, c: second[rows[r], c], 5, inside)
    for one, other, wanted in zip(first, again, plain, strict=True):
        assert np.array_equal(one, other)
        assert np.array_equal(one, wanted)


@pytest.mark.parametrize("depth", [-1, 5001, 2.5, True, "ten"])
def test_depth_out_of_range_is_one_line(depth):
    scores, _, positives = embeddings()
    with pytest.raises(InputError, match=r"^depth .*: expected a whole number from 0 to 5,000$"):
        rerank(scores, lambda r, c: np.zeros(len(r)), depth, positives)


def test_pair_scores_that_are_no_numbers_are_refused():
    scores, _, positives = embeddings()
    with pytest.raises(InputError, match="is not finite"):
        rerank(scores, lambda r, c: np.full(len(r), np.nan), 3, positives)
    with pytest.raises(InputError, match=r"shape \(1,\) for \d+ pairs"):
        rerank(scores, lambda r, c: np.zeros(1), 3, positives)
