"""Relevance: its formula, its file, and searches that are cut off by it or exclude by it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import directions, entry
from tests.index.support import create

from vse.errors import InputError
from vse.index.filters import Filter
from vse.index.item_search import search_encoded
from vse.index.judging import EXCLUDED_FROM, relevant
from vse.index.query import QueryVector, combine
from vse.index.relevance import GOOD, STRONG, WEAK, grade_of, present_from, relevances
from vse.index.relevance_fit import write_relevance
from vse.index.store import EmbeddedCollection
from vse.models.coefficients import RELEVANCE_FILE, RelevanceCoefficients, encode_reference, own_relevance

SIZE = 16
REFERENCE = directions(20, SIZE, seed=5)


def coefficients(intercept: float = -4.0, cosine: float = 9.0, mean: float = 2.0, spread: float = -0.5):
    return RelevanceCoefficients(intercept, cosine, mean, spread, SIZE, encode_reference(REFERENCE), "a test")


def naive(fitted: RelevanceCoefficients, vector: np.ndarray, score: float) -> float:
    """The formula of the module, with Python's numbers."""
    cosines = [float(sum(a * b for a, b in zip(row, vector, strict=True))) for row in fitted.vectors.tolist()]
    mean = sum(cosines) / len(cosines)
    spread = math.sqrt(sum((each - mean) ** 2 for each in cosines) / len(cosines))
    odds = fitted.intercept + fitted.cosine * score + fitted.mean * mean + fitted.spread * math.log(spread)
    return 1 / (1 + math.exp(-odds))


@given(st.integers(0, 100), st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_relevance_equals_the_formula(seed, scores):
    """For any query and scores."""
    vector = directions(1, SIZE, seed=seed)[0]
    found = relevances(coefficients(), vector, np.array(scores))
    assert found == pytest.approx([naive(coefficients(), vector, score) for score in scores], rel=1e-5)


@given(st.integers(0, 100), st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.floats(0, 50))
def test_relevance_rises_with_the_score(seed, scores, slope):
    """For one query and any slope that a file may have."""
    fitted = coefficients(cosine=slope)
    found = relevances(fitted, directions(1, SIZE, seed=seed)[0], np.sort(scores))
    assert (np.diff(found) >= 0).all()
    assert ((found >= 0) & (found <= 1)).all()


def test_grades_of_relevance():
    """From their thresholds on; none below weak or without relevance."""
    assert [grade_of(each) for each in (STRONG, GOOD, WEAK)] == ["strong", "good", "weak"]
    assert [grade_of(each - 1e-9) for each in (STRONG, GOOD, WEAK)] == ["good", "weak", None]
    assert grade_of(None) is None


def test_weak_results_match_only_beside_a_better_one():
    """A minimum of 0 or none keeps everything."""
    guesses = np.array([present_from(300), 0.2, 0.09])
    assert relevant(guesses, WEAK, 300).tolist() == [True, True, False]
    assert relevant(guesses[1:], WEAK, 300).tolist() == [False, False]
    assert relevant(guesses[1:], WEAK, 3).tolist() == [True, False]
    assert relevant(guesses, 0, 10**6).all()
    assert relevant(guesses, None, 10**6).all()
    assert relevant(guesses[:0], WEAK, 300).tolist() == []
    assert [present_from(items) for items in (25, 100, 625, 10**6)] == pytest.approx([0.1, 0.2, 0.5, 0.5])


def test_relevance_file_is_read_as_written(tmp_path: Path):
    """Every number, and the reference embeddings as float16."""
    path = write_relevance(tmp_path, coefficients())
    assert path == tmp_path / RELEVANCE_FILE
    assert own_relevance(tmp_path) == coefficients()
    np.testing.assert_array_equal(own_relevance(tmp_path).vectors, REFERENCE.astype(np.float16).astype(np.float32))
    assert own_relevance(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"cosine": -1.0}, "'cosine' is -1.0"),
        ({"reference": "?"}, "not base64"),
        ({"reference": encode_reference(REFERENCE)[:40]}, "bytes: expected rows"),
        ({"reference": ""}, "holds 0 embeddings"),
        ({"reference": encode_reference(np.full((2, SIZE), np.nan))}, "all finite"),
        ({"intercept": "high"}, "intercept"),
        ({"format": 2}, "format"),
        ({"dimensions": 0}, "dimensions"),
    ],
)
def test_invalid_relevance_file_is_refused(tmp_path: Path, change: dict[str, object], named: str):
    """One line that names the file, the value and the command that writes it."""
    (tmp_path / RELEVANCE_FILE).write_text(json.dumps(asdict(coefficients()) | change))
    with pytest.raises(InputError, match=named) as caught:
        own_relevance(tmp_path)
    assert str(tmp_path / RELEVANCE_FILE) in str(caught.value)
    assert "vse calibrate" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCollection]:
    """Three hundred images in two folders; the first forty are near the first axis, the next ten near the second."""
    vectors = directions(300, SIZE, seed=8) * 0.4
    vectors[:40, 0] += 2.0
    vectors[20:50, 1] += 1.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with create(tmp_path_factory.mktemp("relevance") / "c", SIZE) as made:
        made.add([entry(f"{'a' if row < 40 else 'b'}/{row:03}.jpg", vector) for row, vector in enumerate(vectors)])
        yield made


SHARP = coefficients(-10.0, 12.0, 0.0, 0.0)
AXES = np.eye(SIZE, dtype=np.float32)


def asked(vector: np.ndarray, **more: object) -> QueryVector:
    return QueryVector(vector, "asked", words_only=True, **more)  # type: ignore[arg-type]


def test_same_image_has_same_relevance_in_every_collection(collection, tmp_path: Path):
    """Whatever else is there, and however many others fit."""
    vectors = collection.vectors([1])
    with create(tmp_path / "small", SIZE) as small:
        small.add([entry("one.jpg", vectors[0])])
        alone = search_encoded(small, asked(AXES[0]), relevance=SHARP).results[0]
    among = search_encoded(collection, asked(AXES[0]), 100, relevance=SHARP).results
    assert next(each for each in among if each.id == 1).relevance == pytest.approx(alone.relevance, rel=1e-6)


def test_cutoff_keeps_every_image_that_fits(collection):
    """Forty fit, and all of them are kept; a query that none fits has none, and the reason."""
    found = search_encoded(collection, asked(AXES[0]), 100, min_relevance=WEAK, relevance=SHARP)
    assert {result.id for result in found.results} >= set(range(1, 41))
    assert all(result.relevance >= WEAK for result in found.results)
    absent = search_encoded(collection, asked(-AXES[0]), min_relevance=WEAK, relevance=SHARP)
    assert (absent.results, absent.empty_reason.condition) == ((), "relevance")
    assert len(search_encoded(collection, asked(-AXES[0]), min_relevance=0, relevance=SHARP).results) == 10


def test_filter_that_leaves_nothing_is_named(collection):
    """Without it there would be results, and they are counted."""
    found = search_encoded(collection, asked(AXES[0]), where=Filter(folder="b"), min_relevance=STRONG, relevance=SHARP)
    assert found.results == ()
    assert found.empty_reason.condition == "folder"
    assert found.empty_reason.without >= 20


def test_excluded_content_is_dropped(collection):
    """No result is relevant to what is excluded; moving the query alone leaves some that are."""
    moved = combine(AXES[:1], None, AXES[1:2])
    query = asked(moved, excluded=AXES[1:2], wanted=AXES[0])
    found = search_encoded(collection, query, 100, min_relevance=WEAK, relevance=SHARP).results
    shown = collection.vectors([result.id for result in found])
    assert (relevances(SHARP, AXES[1], shown @ AXES[1]) < EXCLUDED_FROM).all()
    assert {result.id for result in found} <= set(range(1, 21))
    assert found
    before = search_encoded(collection, replace(query, excluded=None), 40, relevance=SHARP).results
    assert {result.id for result in before} & set(range(21, 41))


def test_relevance_is_that_of_what_is_wanted(collection):
    """Exclusions change the order and the results, never the relevance of one of them."""
    plain = {r.id: r.relevance for r in search_encoded(collection, asked(AXES[0]), 300, relevance=SHARP).results}
    query = asked(combine(AXES[:1], None, AXES[1:2]), excluded=AXES[1:2], wanted=AXES[0])
    for result in search_encoded(collection, query, 300, relevance=SHARP).results:
        assert result.relevance == pytest.approx(plain[result.id], rel=1e-4)


def test_relevance_of_another_width_is_refused(collection):
    """Coefficients of another model would be meaningless, and their reference does not fit the query."""
    other = RelevanceCoefficients(-1, 1, 0, 0, 2, encode_reference(np.eye(2)), "another model")
    with pytest.raises(InputError, match=r"2 dimensions \(another model\), but embeddings have 16"):
        search_encoded(collection, asked(AXES[0]), relevance=other)
