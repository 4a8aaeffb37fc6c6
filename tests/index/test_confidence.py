"""Confidence is relative to the other scores of the query and the collection, not the cosine alone."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import directions
from tests.index.support import batch, create

from vse.errors import InputError
from vse.index.confidence import HELD, PRIOR, PRIOR_DEVIATION, Background, background_of, confidences, log_softplus
from vse.index.item_search import search
from vse.index.query import Query
from vse.index.store import EmbeddedCollection
from vse.models.coefficients import read_coefficients, shipped_coefficients

SHIPPED = shipped_coefficients()
QUERY = directions(1, seed=4)[0]


def naive_spread(values: list[float], weight: int) -> tuple[float, float]:
    """Return mean and deviation, combined with pseudo-scores of mean 0."""
    if not weight:
        return 0.0, PRIOR_DEVIATION
    share = weight / (weight + PRIOR)
    variance = share * statistics.pvariance(values) + (1 - share) * PRIOR_DEVIATION**2
    return share * statistics.fmean(values), math.sqrt(variance)


def dot(first: list[float], second: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(first, second, strict=True))


def naive_confidence(sample: np.ndarray, items: int, vector: np.ndarray, score: float) -> float:
    """Compute the module's formulas in turn, for samples small enough to compare all pairs."""
    rows = [row.tolist() for row in sample.astype(float)]
    pairs = [dot(a, b) for i, a in enumerate(rows) for b in rows[:i]]
    mu, sigma = naive_spread(pairs, len(rows) if pairs else 0)
    scores = sorted(dot(row, vector.astype(float).tolist()) for row in rows)
    if len(scores) > 1:
        held = max(1, len(scores) // HELD)
        scores[-held:] = [scores[-held - 1]] * held
    m, s = naive_spread(scores, len(scores))
    k, z = (math.log1p(math.exp(each)) for each in ((score - mu) / sigma, (score - m) / s))
    odds = math.exp(SHIPPED.intercept) * k**SHIPPED.collection * z**SHIPPED.query / max(items, 1) ** SHIPPED.items
    return odds / (1 + odds)


@given(st.sampled_from([0, 1, 2, 3, 5, 39, 40, 70]), st.integers(0, 10**7), st.floats(-0.5, 1))
def test_confidence_follows_its_formula(rows, items, score):
    """Confidences equal those of plain Python."""
    sample = directions(rows, seed=3)
    found = confidences(Background(sample, items, 1), QUERY, np.array([score]))
    assert found[0] == pytest.approx(naive_confidence(sample, items, QUERY, score), rel=1e-4, abs=1e-12)


def test_some_pairs_stand_for_all():
    """In a large sample only some pairs are compared; mean and deviation are close to those of all."""
    turned = directions(2048, 16, seed=15) + np.eye(16, dtype=np.float32)[0] * np.linspace(0, 1, 2048)[:, None]
    sample = (turned / np.linalg.norm(turned, axis=1, keepdims=True)).astype(np.float32)
    cosines = (sample @ sample.T)[np.triu_indices(2048, 1)]
    found = Background(sample, 2048, 1).among_items
    assert found.mean == pytest.approx(float(cosines.mean()), rel=0.1)
    assert found.deviation == pytest.approx(float(cosines.std()), rel=0.05)


@given(st.floats(-20, 50))
def test_log_softplus(value):
    """Equal to plain Python, and x itself where double precision ends."""
    found = float(log_softplus(np.array([value]))[0])
    assert found == pytest.approx(math.log(math.log1p(math.exp(value))), rel=1e-7, abs=1e-12)
    assert float(log_softplus(np.array([-1e5]))[0]) == -1e5


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20), st.sampled_from([0, 1, 5, 100]))
def test_confidence_rises_with_the_score(scores, rows):
    """For one query; always a probability."""
    ordered = np.sort(np.array(scores))
    found = confidences(Background(directions(rows, seed=3), rows, 1), QUERY, ordered)
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found) >= 0).all()


def test_the_same_score_means_less_among_more():
    """The best of many unrelated items is higher by chance."""
    sample = directions(500, seed=5)
    sure = [confidences(Background(sample, n, 1), QUERY, np.array([0.8]))[0] for n in (500, 50_000, 5_000_000)]
    assert sure[0] > sure[1] > sure[2]


def test_the_same_score_means_less_for_a_query_that_scores_high_on_everything():
    """Two queries, one near the centre of the collection and one far from it."""
    middle = np.eye(8, dtype=np.float32)[0]
    leaning = directions(400, seed=6) + middle
    sample = (leaning / np.linalg.norm(leaning, axis=1, keepdims=True)).astype(np.float32)
    background = Background(sample, 400, 1)
    near, far = (confidences(background, vector, np.array([0.9]))[0] for vector in (middle, np.eye(8)[1]))
    assert near < far / 3


@pytest.mark.parametrize("scale", [0.5, 0.25])
def test_the_spread_of_a_models_cosines_does_not_matter(scale):
    """Scaling all off-diagonal cosines, scores included, leaves the confidence unchanged.

    Padding each embedding with its own direction shrinks the cosines and nothing else.
    """
    rows = 400
    sample = directions(rows, seed=7)
    padded = np.zeros((rows, 8 + rows), np.float32)
    padded[:, :8] = sample * math.sqrt(scale)
    padded[np.arange(rows), 8 + np.arange(rows)] = math.sqrt(1 - scale)
    vector = np.zeros(8 + rows, np.float32)
    vector[:8] = QUERY * math.sqrt(scale)
    scores = np.array([0.4, 0.7, 0.9])
    plain = confidences(Background(sample, rows, 1), QUERY, scores)
    shrunk = confidences(Background(padded, rows, 1), vector, scores * scale)
    np.testing.assert_allclose(shrunk, plain, rtol=0.15)


def test_a_collection_in_which_every_picture_is_twice():
    """As confident as with each image once among as many items."""
    sample, scores = directions(100, seed=8), np.array([0.5, 0.9])
    twice = confidences(Background(np.concatenate([sample, sample]), 200, 1), QUERY, scores)
    once = confidences(Background(sample, 200, 1), QUERY, scores)
    np.testing.assert_allclose(twice, once, rtol=0.15)


def test_copies_of_the_best_leave_it_nearly_as_sure():
    """In a burst of thirty among a thousand, each is as good a result as the one was alone."""
    sample = directions(1000, 64, seed=9)
    vector = sample[17]
    copied = np.concatenate([sample, np.repeat(vector[None], 29, axis=0)])
    alone = confidences(Background(sample, 1000, 1), vector, np.array([0.6]))[0]
    among = confidences(Background(copied, 1029, 1), vector, np.array([0.6]))[0]
    assert among > 0.7 * alone


@pytest.mark.parametrize("rows", [2, 5, 500])
def test_confidence_in_collection_of_copies(rows):
    """A collection of copies of one image gives probabilities, without warnings, for it and for others."""
    sample = np.repeat(directions(1, seed=10), rows, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = confidences(Background(sample, rows, 1), QUERY, np.array([float(sample[0] @ QUERY), 0.99]))
    assert np.isfinite(found).all()
    assert 0 <= found[0] <= found[1] <= 1


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_confidence_in_smallest_collections(tmp_path, rows):
    """With zero, one or five images, everything is found with a confidence, the image itself the highest."""
    with create(tmp_path / "c") as collection:
        collection.add(batch(directions(rows, seed=11)))
        assert background_of(collection).sample.shape == (rows, 8)
        low, high = confidences(background_of(collection), QUERY, np.array([0.0, 0.9]))
        assert 0 < low < high < 1
        if rows:
            sure = [result.confidence for result in search(collection, Query(like=(1,))).results]
            assert len(sure) == rows - 1
            assert sure == sorted(sure, reverse=True)
            (vector,) = collection.vectors([1])
            assert 0.5 < confidences(background_of(collection), vector, np.ones(1))[0] < 1


def test_the_background_is_kept_while_the_collection_is_much_the_same(tmp_path):
    """The sample is cached until the collection grows by more than a tenth; the number of items is never stale."""
    with create(tmp_path / "c") as collection:
        assert background_of(collection).items == 0
        collection.add(batch(directions(100, seed=12)))
        first = background_of(collection)
        assert first.items == 100
        collection.add(batch(directions(5, seed=13), "few"))
        second = background_of(collection)
        assert second.sample is first.sample
        assert second.among_items is first.among_items
        assert second.items == 105
        collection.add(batch(directions(20, seed=14), "many"))
        assert background_of(collection).items == len(background_of(collection).sample) == 125


def test_background_is_redrawn_when_embeddings_are_replaced(tmp_path):
    """Even if the number of items stays the same, and for a concurrent reader; a few changes do not count."""
    with create(tmp_path / "c") as writer, EmbeddedCollection.open(tmp_path / "c") as reader:
        writer.add(batch(directions(100, seed=12)))
        first = {each: background_of(each) for each in (writer, reader)}
        writer.add(batch(directions(3, seed=13)))
        for each in (writer, reader):
            assert background_of(each) is first[each]
        writer.add(batch(directions(100, seed=14)))  # replaces everything
        for each in (writer, reader):
            np.testing.assert_array_equal(background_of(each).sample, directions(100, seed=14))


def test_bundled_coefficients():
    """They rise with both features, fall with the number of items, and record their source."""
    assert min(SHIPPED.collection, SHIPPED.query) > 0
    assert 0.5 < SHIPPED.items < 1.5
    assert "flickr8k dev" in SHIPPED.source


@pytest.mark.parametrize(
    ("change", "named"),
    [({"query": "high"}, "'query' is 'high'"), ({"format": 2}, "'format' is 2"), ({"querry": 1.0}, "'querry'")],
)
def test_a_wrong_file_names_what_is_wrong(tmp_path, change, named):
    """One line with the file, the key and the value; a missing key is named as well."""
    path = tmp_path / "confidence.json"
    for values, expected in (({**asdict(SHIPPED), **change}, named), ({"intercept": 1.0}, "'collection' is missing")):
        path.write_text(json.dumps(values))
        with pytest.raises(InputError) as caught:
            read_coefficients(path)
        assert str(path) in str(caught.value)
        assert expected in str(caught.value)
        assert "\n" not in str(caught.value)


def test_reading_coefficients_loads_little():
    """Neither pydantic nor torch, which would slow down a cold search."""
    code = (
        "import sys; from vse.models.coefficients import shipped_coefficients; shipped_coefficients(); "
        "print(sorted({'pydantic', 'torch', 'numpy.ma', 'sqlite3'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
