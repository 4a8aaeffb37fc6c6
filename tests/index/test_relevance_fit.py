"""Judge images by captions, and fit relevance to the judgements."""

from __future__ import annotations

import numpy as np
import pytest
from tests.index.examples import directions

from vse.errors import InputError
from vse.index.relevance import WEAK, relevances
from vse.index.relevance_fit import fit_relevance, judge_captions

CAPTIONS = (
    ("two dogs in the snow", "a dog runs", "a brown dog"),
    ("a dog on a beach", "one dog near waves", "an animal"),
    ("a cat sleeps", "a cat on a sofa", "a dog looks at a cat"),
    ("a red bus", "a bus in a street", "buses and cars"),
)
OWNERS = np.repeat(np.arange(4), 3)
TEXTS = [caption for captions in CAPTIONS for caption in captions]


def test_category_fits_where_two_captions_agree():
    """One mention is unclear, none is a miss; singular and plural are the same, and rare words are not asked."""
    judged = judge_captions(TEXTS, OWNERS, 4)
    assert judged.texts[: judged.categories] == ("dog",)
    assert judged.relevant[0].tolist() == [True, True, False, False]
    assert judged.unclear[0].tolist() == [False, False, True, False]


def test_caption_fits_its_own_image_and_those_that_say_the_same():
    """Others are unclear from half of the words on."""
    texts = ["a dog on a beach", "a dog at a beach with waves", "a dog in snow", "a cat on a sofa"]
    judged = judge_captions(texts, np.arange(4), 4)
    assert judged.categories == 0
    row = judged.texts.index("a dog on a beach")
    assert judged.relevant[row].tolist() == [True, True, False, False]
    assert judged.unclear[row].tolist() == [False, False, True, False]


def world(images: int = 120, size: int = 24, seed: int = 0):
    """Embeddings of images that show one of four things, their captions, and an encoder of texts."""
    random = np.random.default_rng(seed)
    things = directions(4, size, seed=99)
    names = ("dog", "cat", "bus", "tree")
    shown = random.integers(0, 4, images)
    noise = directions(images, size, seed=seed + 1)
    vectors = things[shown] + 0.5 * noise
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    captions = [f"a {names[each]}" for each in shown for _ in range(2)]

    def encode(texts):
        rows = [things[next(each for each, name in enumerate(names) if name in text)] for text in texts]
        return np.array(rows, np.float32)

    return vectors.astype(np.float32), captions, np.repeat(np.arange(images), 2), encode, shown


def test_fit_tells_what_fits():
    """Images of the thing asked for are relevant, the others are not; the figures are those of unseen images."""
    images, captions, owners, encode, shown = world()
    report = fit_relevance(images, captions, owners, encode, source="a world")
    assert report.quality.area > 0.9
    assert report.coefficients.cosine > 0
    assert (report.coefficients.dimensions, report.coefficients.source) == (24, "a world")
    assert len(report.coefficients.vectors) == 60
    vector = encode(["dog"])[0]
    guesses = relevances(report.coefficients, vector, images @ vector)
    assert guesses[shown == 0].mean() > 0.5 > WEAK > guesses[shown != 0].mean()


def test_fit_is_the_same_again():
    """Nothing is random but the seed."""
    images, captions, owners, encode, _ = world()
    first, second = (fit_relevance(images, captions, owners, encode, source="a world") for _ in range(2))
    assert first == second
    assert first.to_json()["coefficients"]["references"] == 60
    assert "reference" not in first.to_json()["coefficients"]


def test_fit_refuses_too_little_data():
    """Few images, and captions that fit everything."""
    images, captions, owners, encode, _ = world(20)
    with pytest.raises(InputError, match="20 images: expected at least 30"):
        fit_relevance(images, captions, owners, encode, source="a world")
    images, captions, owners, encode, _ = world(40)
    with pytest.raises(InputError, match="every image or none"):
        fit_relevance(images, ["a dog"] * len(captions), owners, encode, source="a world")
