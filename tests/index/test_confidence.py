"""Confidence: against what the query scores on the rest, not against the cosine alone."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import DIMENSIONS, directions
from tests.index.support import batch, create

from vse.errors import InputError
from vse.index.confidence import (
    CENSORED,
    GAMMA,
    NORMAL_MEAN_EXCESS,
    PRIOR,
    PRIOR_DEVIATION,
    RIDGE,
    TAIL_SHARE,
    Background,
    Coefficients,
    background_of,
    confidences,
    fit,
    sample_vectors,
    score_statistics,
    shipped_coefficients,
)


def normal(count: int, mean: float = 0.1, deviation: float = 0.08, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, deviation, count)


def naive_statistics(scores: list[float], items: int) -> tuple[float, float, float, float]:
    """The formulas of the module, one after the other, for samples that are large enough for a tail."""
    count = len(scores)
    mean = sum(scores) / (count + PRIOR)  # the imagined scores are zero in the mean
    middle = sum(scores) / count
    spread = sum((score - middle) ** 2 for score in scores) + PRIOR * PRIOR_DEVIATION**2
    deviation = math.sqrt(spread / (count + PRIOR))
    ordered = sorted(scores)
    tail = max(1, round(TAIL_SHARE * count))
    start = ordered[-tail - 1]
    excesses = [score - start for score in ordered[-tail:]]
    known = len(excesses) - round(CENSORED * len(excesses))
    total = sum(excesses[:known])
    if known:
        total += (len(excesses) - known) * excesses[known - 1]
    scale = (total + PRIOR * NORMAL_MEAN_EXCESS * deviation) / (known + PRIOR)
    return mean, deviation, scale, start + scale * (math.log(max(1, TAIL_SHARE * items)) + GAMMA)


@given(st.lists(st.floats(-1, 1), min_size=PRIOR, max_size=60), st.integers(1, 10**7))
def test_the_formulas(scores, items):
    """Mean, deviation, scale and expected best equal those of plain Python."""
    found = score_statistics(np.array(scores), items)
    expected = naive_statistics(scores, items)
    np.testing.assert_allclose(
        (found.mean, found.deviation, found.scale, found.expected_best), expected, rtol=1e-9, atol=1e-12
    )


def test_large_samples_outweigh_the_imagined_scores():
    """Mean and deviation of the sample itself, nearly."""
    scores = normal(2048, 0.3, 0.05)
    found = score_statistics(scores, 2048)
    assert found.mean == pytest.approx(statistics.fmean(scores), rel=0.01)
    assert found.deviation == pytest.approx(statistics.stdev(scores), rel=0.02)


@pytest.mark.parametrize("items", [500, 10_000, 1_000_000])
def test_the_expected_best_of_an_exponential_tail(items):
    """β (ln n + γ) for exponential scores of scale β, a little less for the imagined scores."""
    guesses = []
    for seed in range(20):
        scores = np.random.default_rng(seed).exponential(0.05, 2048)
        guesses.append(score_statistics(scores, items).expected_best)
    assert statistics.fmean(guesses) == pytest.approx(0.05 * (math.log(items) + GAMMA), rel=0.08)


def test_relevant_items_in_the_sample_hardly_move_the_tail():
    """A handful of very high scores at the top is censored; averaging them in would raise the best by 0.25."""
    plain = normal(2048)
    found = np.concatenate([plain[:-6], np.full(6, 0.95)])
    before, after = score_statistics(plain, 5000), score_statistics(found, 5000)
    assert after.scale < 1.2 * before.scale
    assert after.expected_best < before.expected_best + 0.5 * before.deviation


@given(st.floats(-0.5, 0.5), st.floats(0.3, 3))
def test_a_shift_and_a_scale_of_all_scores_change_little(shift, scale):
    """The same place in the distribution has the same features, at whatever cosine it lies."""
    scores, item = normal(2048), np.array([0.5])
    plain = score_statistics(scores, 4000).features(item)
    moved = score_statistics(scores * scale + shift, 4000).features(item * scale + shift)
    np.testing.assert_allclose(moved, plain, rtol=0.12, atol=0.25)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20))
def test_confidence_rises_with_the_score(scores):
    """For one query; always a probability."""
    background = Background(directions(100, seed=3), 100, 1)
    ordered = np.sort(np.array(scores))
    found = confidences(background, directions(1, seed=4)[0], ordered)
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found) >= 0).all()


def test_the_same_score_means_less_among_more():
    """The best of many unrelated items is higher by chance."""
    sample, vector = directions(500, seed=5), directions(1, seed=6)[0]
    sure = [confidences(Background(sample, n, 1), vector, np.array([0.8]))[0] for n in (500, 50_000, 5_000_000)]
    assert sure[0] > sure[1] > sure[2]


def test_the_smallest_collections_have_confidences():
    """One item, even none in the sample: a number, and a match is surer than a miss."""
    for rows in (0, 1, 3):
        background = Background(directions(rows, seed=7), max(rows, 1), 1)
        low, high = confidences(background, directions(1, seed=8)[0], np.array([0.0, 0.9]))
        assert 0 < low < high < 1


def test_the_sample(tmp_path):
    """All of a small collection; of a larger one so many, the same ones each time, nearly the same after a change."""
    vectors = directions(300, seed=9)
    with create(tmp_path / "c") as collection:
        assert sample_vectors(collection).shape == (0, DIMENSIONS)
        collection.add(batch(vectors))
        np.testing.assert_array_equal(sample_vectors(collection), vectors)
        some = sample_vectors(collection, 40)
        assert some.shape == (40, DIMENSIONS)
        np.testing.assert_array_equal(some, sample_vectors(collection, 40))
        kept = {row.tobytes() for row in some}
        assert len(kept) == 40
        collection.remove([("/photos", "00007.jpg")])
        collection.add(batch(directions(1, seed=10), "new"))
        assert len(kept & {row.tobytes() for row in sample_vectors(collection, 40)}) >= 38


def test_the_sample_is_spread_over_the_collection(tmp_path):
    """Every tenth of the ids gives about a tenth of the sample."""
    vectors = directions(2000, seed=11)
    with create(tmp_path / "c") as collection:
        collection.add(batch(vectors))
        place = {row.tobytes(): number for number, row in enumerate(vectors)}
        chosen = [place[row.tobytes()] for row in sample_vectors(collection, 500)]
    counts = np.bincount(np.array(chosen) // 200, minlength=10)
    assert counts.min() > 25
    assert counts.max() < 75


def test_the_background_is_kept_while_the_collection_is_much_the_same(tmp_path):
    """Drawn once; drawn anew after the collection has grown by more than a tenth."""
    with create(tmp_path / "c") as collection:
        assert background_of(collection).items == 0
        collection.add(batch(directions(100, seed=12)))
        first = background_of(collection)
        assert first.items == 100
        collection.add(batch(directions(5, seed=13), "few"))
        assert background_of(collection) is first
        collection.add(batch(directions(20, seed=14), "many"))
        assert background_of(collection).items == 125


def simulated(count: int, weights: tuple[float, float, float], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    features = generator.normal([3, 0], [2, 3], (count, 2))
    chances = 1 / (1 + np.exp(-(weights[0] + features @ np.array(weights[1:]))))
    return features, (generator.random(count) < chances).astype(int)


def test_fit_finds_the_coefficients_that_made_the_labels():
    """Within their error, from twenty thousand labels; the probabilities are those of the coefficients."""
    found = fit(*simulated(20_000, (-2.0, 0.4, 0.9)), "simulated")
    assert (found.intercept, found.deviations, found.tails) == pytest.approx((-2.0, 0.4, 0.9), abs=0.1)
    assert found.source == "simulated"
    features = np.array([[3.0, 1.0], [0.0, 0.0]])
    expected = [1 / (1 + math.exp(-(found.intercept + found.deviations * z + found.tails * t))) for z, t in features]
    np.testing.assert_allclose(found.probability(features), expected, rtol=1e-12)


@given(st.integers(0, 1000))
def test_fit_is_at_the_maximum(seed):
    """The gradient of the likelihood is zero, where no slope is held."""
    features, labels = simulated(200, (-1.0, 0.5, 0.5), seed)
    found = fit(features, labels, "simulated")
    slopes = np.array([found.deviations, found.tails])
    assert (slopes >= 0).all()
    misses = found.probability(features) - labels
    gradient = np.array([misses.sum(), *(misses @ features + RIDGE * slopes)])
    held = np.array([False, *(slopes == 0)])
    np.testing.assert_allclose(gradient[~held], 0, atol=1e-5)
    assert (gradient[held] >= -1e-5).all()


def test_a_slope_never_falls():
    """Labels that contradict a feature hold its slope at zero."""
    features, labels = simulated(2000, (0.0, -1.0, 1.0))
    found = fit(features, labels, "simulated")
    assert found.deviations == 0
    assert found.tails > 0


def test_labels_that_can_be_separated_have_finite_coefficients():
    """The ridge holds them."""
    features = np.array([[z, z] for z in np.linspace(-3, 3, 50)])
    found = fit(features, (features[:, 0] > 0).astype(int), "separable")
    assert np.isfinite([found.intercept, found.deviations, found.tails]).all()


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (np.zeros((3, 2)), np.ones(3)),
        (np.zeros((3, 2)), np.array([0, 1, 2])),
        (np.zeros((3, 3)), np.array([0, 1, 1])),
        (np.full((3, 2), np.nan), np.array([0, 1, 1])),
        (np.zeros((2, 2)), np.array([0, 1, 1])),
    ],
)
def test_what_cannot_be_fitted_is_one_line(features, labels):
    """Labels of one kind, wrong shapes, values that are no numbers."""
    with pytest.raises(InputError) as caught:
        fit(features, labels, "bad")
    assert "\n" not in str(caught.value)


def test_the_shipped_coefficients():
    """They are there, rise with both features, and say where they come from."""
    found = shipped_coefficients()
    assert isinstance(found, Coefficients)
    assert found.deviations >= 0
    assert found.tails > 0
    assert found.source
