"""Calibration, checked against simulations with known truth and against brute force."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import directions
from tests.index.support import batch, create

from vse.errors import InputError
from vse.index.calibration import (
    REMOVED,
    Answers,
    area,
    ask,
    calibrate,
    calibration_error,
    judge,
    sizes_within,
    write_coefficients,
)
from vse.index.confidence import Background
from vse.index.item_search import search
from vse.index.query import Query
from vse.models.coefficients import FILE, coefficients_of, shipped_coefficients

World = tuple[np.ndarray, np.ndarray, np.ndarray]


def world(pictures: int, noise: float, seed: int, captions: int = 3, dimensions: int = 32) -> World:
    """Return images and captions that are noisy views of them; less noise means a better model."""
    images = directions(pictures, dimensions, seed=seed)
    owners = np.random.default_rng(seed).permutation(np.repeat(np.arange(pictures), captions))
    noisy = images[owners] + noise * directions(len(owners), dimensions, seed=seed + 1)
    return images, (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float32), owners


def naive_answers(data: World, size: int) -> list[tuple[np.ndarray, float, bool, bool]]:
    """Remove each image and query one caption at a time."""
    images, texts, owners = data
    shuffled = np.random.default_rng(size).permutation(len(images)).tolist()
    found = []
    while len(shuffled) >= size:
        block, shuffled = shuffled[:size], shuffled[size:]
        for place, removed in enumerate(block):
            left = [picture for picture in block if picture != removed]
            background = Background(images[left], len(left), 1)
            for asked in (removed, block[(place + 1) % size]):
                for caption in np.flatnonzero(owners == asked):
                    scores = [float(images[picture] @ texts[caption]) for picture in left]
                    best = max(range(len(left)), key=scores.__getitem__)
                    features = background.features(texts[caption], np.array([scores[best]]))[0]
                    found.append((features, scores[best], asked != removed, left[best] == asked))
    return found


def test_asking_is_asking_one_by_one():
    """Features, scores, presence and correctness equal those of loops; leftover images are unused."""
    data = world(70, 1.5, seed=1)
    found, naive = ask(*data, 30), naive_answers(data, 30)
    assert len(found.scores) == len(naive) == 2 * 60 * 3
    for field, expected in zip(("features", "scores", "present", "right"), zip(*naive, strict=True), strict=True):
        np.testing.assert_allclose(getattr(found, field), np.array(expected), atol=1e-5)
    assert set(found.sizes) == {30}
    assert not (found.right & ~found.present).any()


def test_pictures_that_are_only_passed_over():
    """Distractors enlarge a collection and are never right, though they may be the top result."""
    data = world(30, 1.5, seed=2)
    more = directions(500, 32, seed=9)
    plain, among = ask(*data, 30), ask(*data, 530, more=more)
    assert np.exp(-among.features[:, 2]) == pytest.approx(529)
    assert among.right.sum() < plain.right.sum()
    assert (among.scores.max(), len(among.scores)) == (plain.scores.max(), len(plain.scores))


def test_large_data_is_bounded():
    """The number of removed images, and of captions queried per image, is bounded."""
    images, texts, _ = world(2 * REMOVED, 1.0, seed=3, captions=1, dimensions=4)
    assert len(ask(images, texts, np.zeros(len(texts), int), 30).scores) <= 2 * 10
    assert len(ask(images, texts, np.arange(len(texts)), 40).scores) == 2 * REMOVED
    assert len(ask(images, texts, np.arange(len(texts)), 2 * REMOVED).scores) == 2 * REMOVED


@pytest.mark.parametrize("noise", [0.7, 1.5, 3.0])
def test_confidence_says_how_often_a_result_is_right(noise):
    """For a strong, a medium and a weak model, on unseen images, captions and collection size.

    For the strong model, the bundled coefficients are far off.
    """
    found = calibrate(*world(320, noise, seed=4), source="simulated", sizes=(30, 100, 300))
    new = judge(found.coefficients, ask(*world(480, noise, seed=40), 160), pictures=480, captions=1440)
    assert new.error < 0.05
    assert found.error < 0.05
    if noise < 1:
        assert new.error < new.shipped_error / 3
        assert new.found[160] > 0.95
        assert new.area > 0.95


def test_captions_that_say_nothing():
    """The probability is 1/n if the image is present and 0 if not: 1/2n, at every size, for any query."""
    images = directions(480, 32, seed=5)
    texts, owners = directions(4800, 32, seed=6), np.repeat(np.arange(480), 10)
    found = calibrate(images, texts, owners, source="noise", sizes=(30, 120)).coefficients
    for size in (30, 60, 120):
        said = found.probability(ask(images, texts, owners, size).features)
        assert said.mean() == pytest.approx(1 / (2 * (size - 1)), rel=0.25)
        assert said.max() < 0.1


def test_captions_that_say_everything():
    """If captions equal their images, present images are nearly certain and absent ones nearly impossible."""
    images = directions(120, 32, seed=7)
    found = calibrate(images, images.copy(), np.arange(120), source="copies")
    assert (found.found, found.area) == ({30: 1.0, 100: 1.0}, 1.0)
    answers = ask(images, images, np.arange(120), 60)
    said = found.coefficients.probability(answers.features)
    assert said[answers.present].min() > 0.95
    assert said[~answers.present].max() < 0.05


def test_the_same_data_give_the_same_coefficients():
    """Another seed draws other collections."""
    data = world(100, 1.5, seed=8)
    first, again, other = (calibrate(*data, source="s", seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.coefficients != other.coefficients


def test_the_sizes_that_pictures_suffice_for():
    """At least two, since one size does not show how confidence falls with the number of items."""
    assert sizes_within(5000, (1000, 30, 100)) == (30, 100, 1000)
    assert sizes_within(200, (30, 100, 300)) == (30, 100)
    assert sizes_within(99, (30, 100)) == (10, 30)


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.booleans()), min_size=1, max_size=40))
def test_calibration_error_and_area(pairs):
    """The area counts pairs; the error is at most the worst guess's, and 0 for perfect guesses."""
    guesses, right = (np.array(column) for column in zip(*pairs, strict=True))
    compared = [(a > b) + (a == b) / 2 for a, b in product(guesses[right], guesses[~right])]
    assert area(guesses, right) == pytest.approx(np.mean(compared) if compared else 0)
    assert 0 <= calibration_error(guesses, right) <= np.abs(guesses - right).max() + 1e-9
    assert calibration_error(right.astype(float), right) == 0


def test_calibration_report():
    """Plain JSON with the coefficients, the counts and every size."""
    found = calibrate(*world(100, 1.5, seed=8), source="photos dev")
    value = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert value["coefficients"] == asdict(found.coefficients)
    assert (value["pictures"], value["captions"], value["results"]) == (100, 300, 2 * 3 * (90 + 100))
    assert value["found"].keys() == {"30", "100"}


IMAGES, TEXTS, OWNERS = world(40, 1.0, seed=10, captions=1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": IMAGES[:29]}, "29 images: expected at least 30"),
        ({"texts": TEXTS[:29], "owners": OWNERS[:29]}, "29 captions: expected at least 30"),
        ({"texts": 2 * TEXTS}, "captions: vector has a length off 1 by 1"),
        ({"images": IMAGES[:, :16]}, "expected"),
        ({"owners": OWNERS + 1}, "0 to 39"),
        ({"owners": OWNERS[:-1]}, "owners (39,)"),
        ({"sizes": (50,)}, "sizes (50,)"),
        ({"sizes": (5, 30)}, "sizes (5, 30)"),
        ({"texts": -IMAGES[OWNERS]}, "no caption finds its image"),
    ],
)
def test_calibration_names_unsuitable_data(changes, words):
    """Too little data, invalid embeddings, wrong owners and sizes, captions that never find their image."""
    with pytest.raises(InputError) as caught:
        calibrate(**{"images": IMAGES, "texts": TEXTS, "owners": OWNERS, "source": "tests", **changes})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_searching_with_the_coefficients_of_a_folder(tmp_path):
    """Ids and scores stay; confidence follows the folder's file, or the bundled one without it."""
    images, texts, owners = world(100, 0.7, seed=11)
    fitted = calibrate(images, texts, owners, source="simulated").coefficients
    assert coefficients_of(tmp_path) == coefficients_of("owner/model") == shipped_coefficients()
    assert write_coefficients(tmp_path, fitted) == tmp_path / FILE
    assert coefficients_of(tmp_path) == coefficients_of(str(tmp_path)) == fitted
    with create(tmp_path / "c", 32) as collection:
        collection.add(batch(images))
        plain, own, shipped = (
            search(collection, Query(like=(1,)), coefficients=each)
            for each in (None, coefficients_of(tmp_path), shipped_coefficients())
        )
        sure = [result.confidence for result in own.results]
        background = Background(collection.sample(100), 100, 1)
    assert plain == shipped
    assert [(r.id, r.score) for r in own.results] == [(r.id, r.score) for r in plain.results]
    scores = np.array([result.score for result in own.results])
    np.testing.assert_allclose(sure, fitted.probability(background.features(images[0], scores)), rtol=1e-5)
    assert all(mine != result.confidence for mine, result in zip(sure, plain.results, strict=True))


@pytest.mark.parametrize("content", ["", "[]", '{"intercept": 1}', None, {"query": -1.0}, {"items": float("nan")}])
def test_corrupt_coefficients_file_is_named(tmp_path, content):
    """One line with its path and the command that writes it; no silent fallback to the bundled coefficients."""
    if content is None:
        (tmp_path / FILE).mkdir()
    else:
        changed = {**asdict(shipped_coefficients()), **content} if isinstance(content, dict) else None
        (tmp_path / FILE).write_text(content if changed is None else json.dumps(changed))
    with pytest.raises(InputError) as caught:
        coefficients_of(tmp_path)
    assert str(tmp_path / FILE) in str(caught.value)
    assert "vse calibrate" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_answers_are_taken_by_mask_and_number():
    """All columns are indexed together."""
    answers = Answers(np.zeros((3, 3)), np.arange(3.0), *(np.array([True, False, True]),) * 2, np.array([1, 2, 3]))
    assert answers.of(answers.present).sizes.tolist() == [1, 3]
    assert answers.of(np.array([1])).scores.tolist() == [1.0]
