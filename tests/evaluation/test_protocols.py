"""Contracts of the protocols: which galleries a split is cut into, and what is averaged over them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evaluation.support import evaluate_embeddings
from tests.evaluation.test_embeddings import make

from vse.errors import InputError
from vse.evaluation.protocols import AUTO, PROTOCOLS, Protocol, choose_protocols

TINY = Protocol("tiny", "five folds of four", 20, 4, 5)


def fold_figures(embeddings, first: int, last: int) -> dict[str, float]:
    """One gallery alone, from whole float64 matrices: its own images, and no text of another."""
    owners = embeddings.text_to_image
    texts = [j for j in range(len(owners)) if first <= owners[j] < last]
    scores = embeddings.images[first:last].astype(np.float64) @ embeddings.texts[texts].astype(np.float64).T
    own = np.arange(first, last)[:, None] == owners[texts][None, :]
    figures = {}
    for way, matrix, right in (("i2t", scores, own), ("t2i", scores.T, own.T)):
        places = [
            1 + int((row[~good] >= row[good].max()).sum())
            for row, good in zip(matrix, right, strict=True)
            if good.any()
        ]
        for cutoff in (1, 5, 10):
            figures[f"{way}_r{cutoff}"] = 100 * sum(place <= cutoff for place in places) / len(places)
        figures[f"{way}_median_rank"] = float(np.median(places))
        figures[f"{way}_mean_rank"] = sum(places) / len(places)
    figures["rsum"] = sum(value for name, value in figures.items() if "_r" in name and "rank" not in name)
    return figures


def mean_figures(embeddings, gallery: int, folds: int) -> dict[str, float]:
    each = [fold_figures(embeddings, fold * gallery, (fold + 1) * gallery) for fold in range(folds)]
    return {name: sum(figures[name] for figures in each) / folds for name in each[0]}


def ragged_owners(images: int, generator: np.random.Generator, most: int = 7) -> np.ndarray:
    """One to ``most`` captions an image, in any order."""
    return generator.permutation(np.repeat(np.arange(images), generator.integers(1, most + 1, size=images)))


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_folds_are_galleries_of_their_own(seed):
    """The figures are means over the folds, each searched by its own captions among its own images alone."""
    vectors = make(ragged_owners(20, np.random.default_rng(seed)), 20, seed=seed, hint=0.5)
    found = evaluate_embeddings([vectors], TINY, samples=1)
    assert found.metrics.figures() == pytest.approx(mean_figures(vectors, 4, 5), rel=1e-12)
    assert found.card["gallery_images"] == [4] * 5
    assert sum(found.card["gallery_texts"]) == len(vectors.texts)
    assert (found.metrics.i2t.queries, found.metrics.t2i.queries) == (20, len(vectors.texts))


def test_coco_protocol_galleries():
    """COCO's 1K are five folds of 1,000 images, its 5K is one gallery, and the first fold alone is neither."""
    vectors = make(ragged_owners(5000, np.random.default_rng(1), most=2), 5000, seed=3, size=3, hint=4.0)
    figures = {
        name: evaluate_embeddings([vectors], PROTOCOLS[name], samples=1).metrics.figures()
        for name in ("coco-1k-5fold", "coco-1k-first-fold", "coco-5k")
    }
    assert figures["coco-1k-5fold"] == pytest.approx(mean_figures(vectors, 1000, 5), rel=1e-12)
    assert figures["coco-1k-first-fold"] == pytest.approx(fold_figures(vectors, 0, 1000), rel=1e-12)
    assert figures["coco-1k-first-fold"] != figures["coco-1k-5fold"]
    assert figures["coco-5k"]["rsum"] < figures["coco-1k-5fold"]["rsum"]  # a larger gallery is harder


def test_the_first_fold_is_not_called_1k():
    """Who reports it says so by its name."""
    chosen = PROTOCOLS["coco-1k-first-fold"]
    assert (chosen.gallery, chosen.folds) == (1000, 1)
    assert "not what 1K means" in chosen.summary
    assert [each.tolist() for each in chosen.galleries(5000)] == [list(range(1000))]


@pytest.mark.parametrize(("name", "protocol"), PROTOCOLS.items())
def test_every_protocol_cuts_its_split(name, protocol):
    """Galleries are in the order of the split, have the size they are called by, and share no image."""
    assert protocol.name == name
    images = protocol.images or 17
    galleries = protocol.galleries(images)
    assert len(galleries) == protocol.folds
    together = np.concatenate(galleries)
    assert together.tolist() == list(range(len(together)))
    assert all(len(each) == (protocol.gallery or images) for each in galleries)


@pytest.mark.parametrize(
    ("data", "images", "expected"),
    [
        ("coco", 5000, ["coco-1k-5fold", "coco-5k"]),
        ("COCO_precomp", 5000, ["coco-1k-5fold", "coco-5k"]),
        ("coco", 1000, ["coco-1k-first-fold"]),
        ("cats", 1000, ["all"]),
        ("coco", 4999, ["all"]),
        ("f30k", 1000, ["flickr30k-1k"]),
        ("Flickr30K", 1000, ["flickr30k-1k"]),
        ("f30k", 1014, ["all"]),
        ("flickr8k", 1000, ["flickr8k-1k"]),
        ("f8k_precomp", 1000, ["flickr8k-1k"]),
        ("scenes", 1000, ["all"]),
        ("scenes", 5000, ["all"]),
        ("", 1, ["all"]),
    ],
)
def test_auto_takes_the_usual_ones(data, images, expected):
    """By the name of the data and the size of the split; whatever is not known is one gallery."""
    chosen = choose_protocols(AUTO, data, images)
    assert [each.name for each in chosen] == expected
    assert all(each.galleries(images) for each in chosen)


def test_named_protocol_overrides_data():
    """Whoever names a protocol gets it, whatever the data."""
    assert choose_protocols("coco-5k", "scenes", 8) == [PROTOCOLS["coco-5k"]]


def test_unknown_protocol_is_refused():
    """The error lists what there is and the closest."""
    with pytest.raises(InputError, match=r"unknown protocol 'coco-1k'.*'auto'.*did you mean") as error:
        choose_protocols("coco-1k", "coco", 5000)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("images", [19, 21, 4])
def test_a_split_of_another_size(images):
    """A protocol is defined for one size; on another it would be another test under the same name."""
    with pytest.raises(InputError, match=rf"'tiny' is defined for 20 images, this split has {images}.*--protocol all"):
        TINY.galleries(images)
    with pytest.raises(InputError, match="is defined for 20 images"):
        evaluate_embeddings([make(range(images), images)], TINY, samples=1)
