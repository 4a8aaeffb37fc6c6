"""Recall, median and mean rank, against sorting by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.evaluation import naive

from vse.errors import InputError
from vse.evaluation import (
    DirectionMetrics,
    DotScores,
    MeanScores,
    Positives,
    RetrievalMetrics,
    metrics_of_scores,
    retrieval_metrics,
)
from vse.evaluation.metrics import mean_metrics

RANKS = st.lists(st.integers(0, 30), min_size=1, max_size=40).filter(any)


def naive_metrics(ranks: list[int]) -> DirectionMetrics:
    recalls = [naive.recall(ranks, cutoff) for cutoff in (1, 5, 10)]
    return DirectionMetrics(*recalls, naive.median(ranks), naive.mean(ranks), sum(rank > 0 for rank in ranks))


def assert_same(found: DirectionMetrics, wanted: DirectionMetrics) -> None:
    assert found.to_json() == pytest.approx(wanted.to_json(), rel=1e-12)


@settings(max_examples=200)
@given(RANKS)
def test_figures_follow_from_the_ranks(ranks):
    """Recall in percent, median and mean over the queries that have a right answer."""
    assert_same(DirectionMetrics.of(np.array(ranks)), naive_metrics(ranks))


def test_median_rank_of_even_number():
    """It is the mean of the two in the middle, counted from 1 and not rounded down."""
    assert DirectionMetrics.of(np.array([1, 2, 5, 9])).median_rank == 3.5
    assert DirectionMetrics.of(np.array([2, 0, 0, 1])).median_rank == 1.5
    assert DirectionMetrics.of(np.array([4])).median_rank == 4.0


def test_nothing_to_measure_is_an_error():
    """Where no query has a right candidate there is no recall, not a recall of zero."""
    for ranks in ([], [0, 0]):
        with pytest.raises(InputError, match="no query has a right candidate"):
            DirectionMetrics.of(np.array(ranks, dtype=np.int64))


@settings(max_examples=300)
@given(problem=naive.problems(shared=False), tensors=st.booleans())
def test_metrics_of_vectors_are_those_of_float64(problem, tensors):
    """From vectors and ``text_to_image`` to every figure, with any number of captions for each image."""
    assume(problem.clear)
    inputs = [problem.images, problem.texts]
    if tensors and problem.images.dtype != np.float64:
        inputs = [torch.from_numpy(array.copy()) for array in inputs]
    found = retrieval_metrics(*inputs, problem.text_to_image)
    for side, ranks in zip((found.i2t, found.t2i), problem.ranks(), strict=True):
        assert_same(side, naive_metrics(ranks))


@settings(max_examples=150)
@given(problem=naive.problems(shared=True, kinds=["whole", "duplicates", "near"]))
def test_shared_captions_are_right_for_each_of_their_images(problem):
    """Any pairs may be right; queries without any are left out of the figures and of the number of queries."""
    assume(problem.clear and any(problem.right))
    found = metrics_of_scores(
        DotScores(problem.images, problem.texts), Positives.from_lists(problem.lists, len(problem.texts))
    )
    for side, ranks in zip((found.i2t, found.t2i), problem.ranks(), strict=True):
        assert_same(side, naive_metrics(ranks))


def test_an_ensemble_of_one_is_that_one():
    """The mean of a model with itself measures the same."""
    rng = np.random.default_rng(0)
    scores = DotScores(rng.standard_normal((20, 4)), rng.standard_normal((60, 4)))
    positives = Positives.from_pairs(np.arange(60) % 20, np.arange(60), (20, 60))
    alone = metrics_of_scores(scores, positives)
    assert metrics_of_scores(MeanScores([scores]), positives) == alone
    assert metrics_of_scores(MeanScores([scores, scores]), positives) == alone


def test_a_perfect_and_a_collapsed_model():
    """Own vectors find themselves: rsum 600. One vector for everything finds nothing, and not by luck."""
    owners = np.repeat(np.arange(30), 5)
    perfect = retrieval_metrics(np.eye(30), np.eye(30)[owners], owners)
    assert perfect.rsum == 600
    assert (perfect.i2t.mean_rank, perfect.t2i.median_rank) == (1, 1)
    assert (perfect.i2t.queries, perfect.t2i.queries) == (30, 150)
    collapsed = retrieval_metrics(np.ones((30, 4)), np.ones((150, 4)), owners)
    assert collapsed.rsum == 0
    assert (collapsed.i2t.median_rank, collapsed.t2i.median_rank) == (146, 30)
    lucky = retrieval_metrics(np.ones((30, 4)), np.ones((150, 4)), owners, ties="optimistic")
    assert lucky.rsum == 600


def test_recall_among_fewer_candidates_than_asked_is_full():
    """With four images, R@5 and R@10 of a text are 100 even at the last place."""
    found = retrieval_metrics(np.ones((4, 2)), np.ones((4, 2)), np.arange(4)).t2i
    assert found.recalls == (0, 100, 100)
    assert found.mean_rank == 4


def test_an_image_without_texts_competes_but_does_not_ask():
    """It is a candidate for every text, and no query."""
    found = retrieval_metrics(np.array([[1.0], [2.0]]), np.array([[1.0]]), [0])
    assert (found.i2t.queries, found.i2t.r1) == (1, 100)
    assert (found.t2i.queries, found.t2i.r1, found.t2i.mean_rank) == (1, 0, 2)


@settings(max_examples=100)
@given(RANKS, RANKS)
def test_json_and_figures_hold_the_same_numbers(rows, columns):
    """Every figure appears once under its name, survives JSON, and rsum is the sum of the six recalls."""
    metrics = RetrievalMetrics(DirectionMetrics.of(np.array(rows)), DirectionMetrics.of(np.array(columns)))
    found, figures = json.loads(json.dumps(metrics.to_json(), allow_nan=False)), metrics.figures()
    names = {"r1", "r5", "r10", "median_rank", "mean_rank"}
    assert set(figures) == {f"{way}_{name}" for way in ("i2t", "t2i") for name in names} | {"rsum"}
    for way in ("i2t", "t2i"):
        assert set(found[way]) == names | {"queries"}
        assert all(figures[f"{way}_{name}"] == found[way][name] for name in names)
    recalls = sum(figures[f"{way}_{name}"] for way in ("i2t", "t2i") for name in ("r1", "r5", "r10"))
    assert figures["rsum"] == found["rsum"] == metrics.rsum == pytest.approx(recalls)
    assert 0 <= metrics.rsum <= 600


@given(st.lists(st.tuples(RANKS, RANKS), min_size=1, max_size=5))
def test_the_mean_over_folds_is_taken_figure_by_figure(folds):
    """Each figure is the mean of the folds' figures, rsum too; the queries add up."""
    parts = [RetrievalMetrics(*(DirectionMetrics.of(np.array(ranks)) for ranks in fold)) for fold in folds]
    found = mean_metrics(parts)
    for name, value in found.figures().items():
        assert value == pytest.approx(sum(part.figures()[name] for part in parts) / len(parts), rel=1e-12)
    assert found.i2t.queries == sum(part.i2t.queries for part in parts)
    assert found.t2i.queries == sum(part.t2i.queries for part in parts)


@pytest.mark.parametrize(
    ("images", "texts", "owners", "message"),
    [
        ((3, 2), (4, 2), [0, 1, 2, 3], r"text_to_image\[3\] is 3: expected 0 to 2"),
        ((3, 2), (4, 2), [0, 1, -2, 2], r"text_to_image\[2\] is -2"),
        ((3, 2), (4, 2), [0.0, 1.0, 2.0, 2.0], "text_to_image must be whole numbers"),
        ((3, 2), (4, 2), [0, 1, 2], "text_to_image has 3 entries for 4 texts"),
        ((3, 2), (4, 2), [0, 1, 2, 2, 2], "text_to_image has 5 entries for 4 texts"),
        ((3, 2), (4, 5), [0, 1, 2, 2], "2 and of 5 dimensions"),
        ((3,), (4, 2), [0, 1, 2, 2], r"must be vectors \(n, D\)"),
        ((3, 2), (4, 2, 1), [0, 1, 2, 2], r"must be vectors \(n, D\)"),
        ((3, 2), (0, 2), [], "3 images and 0 texts"),
        ((0, 2), (0, 2), [], "0 images and 0 texts"),
        ((0, 2), (2, 2), [0, 1], "0 images and 2 texts"),
    ],
)
def test_metrics_name_invalid_inputs(images, texts, owners, message):
    """Shapes, rows and numbers that do not fit are an InputError in one line."""
    with pytest.raises(InputError, match=message) as caught:
        retrieval_metrics(np.ones(images), np.ones(texts), owners)
    assert "\n" not in str(caught.value)


def test_a_vector_that_is_no_number_is_an_error():
    """An image that could not be read has a row of NaN: the row is named, not ranked."""
    images = np.eye(4)
    images[2] = np.nan
    with pytest.raises(InputError, match=r"\[2\] holds NaN"):
        retrieval_metrics(images, np.eye(4), np.arange(4))
