"""Fit the confidence coefficients, and evaluate the fit on queries with known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import directions

from vse.errors import InputError
from vse.index.calibration import RIDGE, fit
from vse.index.confidence import Background

Truth = tuple[float, float, float, float]


def simulated(count: int, weights: Truth, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return random features, and labels drawn with the probabilities that the weights imply."""
    generator = np.random.default_rng(seed)
    features = generator.normal([1, 1, -5], [0.4, 0.4, 1.5], (count, 3))
    chances = 1 / (1 + np.exp(-(weights[0] + features @ np.array(weights[1:]))))
    return features, (generator.random(count) < chances).astype(int)


def test_fit_finds_the_coefficients_that_made_the_labels():
    """Within their error, from forty thousand labels; probabilities follow from the coefficients."""
    found = fit(*simulated(40_000, (-1.0, 2.0, 1.0, 0.5)), "simulated")
    assert (found.intercept, found.collection, found.query, found.items) == pytest.approx((-1, 2, 1, 0.5), abs=0.15)
    assert found.source == "simulated"
    row = np.array([[1.0, 0.5, -3.0]])
    margin = found.intercept + found.collection + 0.5 * found.query - 3 * found.items
    assert found.probability(row)[0] == pytest.approx(1 / (1 + math.exp(-margin)), rel=1e-12)


@given(st.integers(0, 1000))
def test_fit_is_at_the_maximum(seed):
    """The gradient of the likelihood is zero for free slopes, and points down for those held at 0."""
    features, labels = simulated(300, (0.0, 0.5, 0.5, 0.3), seed)
    found = fit(features, labels, "simulated")
    slopes = np.array([found.collection, found.query, found.items])
    assert (slopes >= 0).all()
    misses = found.probability(features) - labels
    gradient = np.array([misses.sum(), *(misses @ features + RIDGE * slopes)])
    held = np.array([False, *(slopes == 0)])
    np.testing.assert_allclose(gradient[~held], 0, atol=1e-5)
    assert (gradient[held] >= -1e-5).all()


def test_a_slope_never_falls():
    """Labels that contradict a feature hold its slope at 0."""
    features, labels = simulated(2000, (0.0, -1.0, 1.0, 0.0))
    found = fit(features, labels, "simulated")
    assert found.collection == 0
    assert found.query > 0


def test_labels_that_can_be_separated_have_finite_coefficients():
    """The ridge bounds them."""
    features = np.array([[z, z, -1.0] for z in np.linspace(-3, 3, 50)])
    found = fit(features, (features[:, 0] > 0).astype(int), "separable")
    assert np.isfinite([found.intercept, found.collection, found.query, found.items]).all()


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (np.zeros((3, 3)), np.ones(3)),
        (np.zeros((3, 3)), np.array([0, 1, 2])),
        (np.zeros((3, 2)), np.array([0, 1, 1])),
        (np.full((3, 3), np.nan), np.array([0, 1, 1])),
        (np.zeros((2, 3)), np.array([0, 1, 1])),
    ],
)
def test_confidence_fit_names_unsuitable_samples(features, labels):
    """Labels of one class, wrong shapes, NaN."""
    with pytest.raises(InputError) as caught:
        fit(features, labels, "bad")
    assert "\n" not in str(caught.value)


def asked(size: int, dimensions: int, queries: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, cosines and truth of top results, for noisy views of images, every other of which is absent.

    More dimensions mean smaller cosines between unrelated embeddings, as with another model. The noise keeps images
    equally hard to find.
    """
    generator = np.random.default_rng(seed)
    pictures = directions(size + queries // 2, dimensions, seed=seed + 1)
    background = Background(pictures[:size], size, 1)
    rows, cosines, labels = [], [], []
    for number in range(queries):
        target = size + number // 2 if number % 2 else int(generator.integers(size))
        noisy = pictures[target] + generator.normal(0, 0.25, dimensions) * generator.uniform(0.5, 2)
        vector = (noisy / np.linalg.norm(noisy)).astype(np.float32)
        scores = pictures[:size] @ vector
        best = int(scores.argmax())
        rows.append(background.features(vector, scores[best : best + 1])[0])
        cosines.append(float(scores[best]))
        labels.append(int(best == target))
    return np.array(rows), np.array(cosines), np.array(labels)


def calibration_error(guesses: np.ndarray, labels: np.ndarray) -> float:
    """Return the expected calibration error over ten bins of equal size."""
    parts = np.array_split(np.argsort(guesses), 10)
    return sum(len(rows) * abs(guesses[rows].mean() - labels[rows].mean()) for rows in parts) / len(labels)


def test_calibrated_where_the_truth_is_known():
    """Fitted on small and large collections of two models, calibrated for queries of a third size and model.

    The best sigmoid of the cosine, fitted to the same results, is not.
    """
    known = [asked(size, dimensions, 1500, seed=size) for size in (40, 400) for dimensions in (24, 96)]
    features, cosines, labels = (np.concatenate(column) for column in zip(*known, strict=True))
    found = fit(features, labels, "simulated")

    def alone(values: np.ndarray) -> np.ndarray:
        return np.stack([values, np.zeros_like(values), np.zeros_like(values)], axis=1)

    sigmoid = fit(alone(cosines), labels, "simulated")
    new, _, truth = asked(120, 48, 2000, seed=7)
    assert calibration_error(found.probability(new), truth) < 0.05
    assert 0.2 < truth.mean() < 0.6
    others = [asked(size, dimensions, 1500, seed=size + 5) for size, dimensions in ((40, 96), (400, 24))]
    for rows, values, right in others:
        error = calibration_error(found.probability(rows), right)
        assert error < 0.08
        assert error < calibration_error(sigmoid.probability(alone(values)), right) / 3
