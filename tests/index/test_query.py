"""Queries: one unit embedding of all that is wanted and excluded, and one-line errors."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.index.examples import directions, entry
from tests.index.support import create
from tests.support_models import SIZE, bert_config, build, grid_config, picture, word_tokenizer, write_wordpieces

from vse.errors import InputError
from vse.index.query import EXCLUDED_SHARE, MAX_CHARACTERS, Query, combine, encode_query, unknown_words
from vse.inputs import TextTokenizer
from vse.models.vse_model import VSEModel

weights = st.floats(1e-3, 1e3)
seeds = st.integers(0, 10_000)


@cache
def model() -> VSEModel:
    return build(grid_config())


def naive(wanted, factors, unwanted=()):
    """Compute the formula of :class:`Query` in plain Python."""

    def unit(vector):
        length = math.sqrt(sum(value * value for value in vector))
        return [value / length for value in vector]

    size = range(len(wanted[0]))
    total = unit([sum(factor * float(u[d]) for factor, u in zip(factors, wanted, strict=True)) for d in size])
    if len(unwanted):
        away = unit([sum(float(x[d]) for x in unwanted) for d in size])
        total = unit([total[d] - EXCLUDED_SHARE * away[d] for d in size])
    return np.array(total)


@given(st.lists(weights, min_size=1, max_size=4), st.integers(0, 3), seeds)
def test_query_direction_follows_its_formula(factors, excluded, seed):
    """The result is a float32 unit vector equal to the formula in plain Python."""
    vectors = directions(len(factors) + excluded, seed=seed)
    wanted, unwanted = vectors[: len(factors)], vectors[len(factors) :]
    found = combine(wanted, factors, unwanted if excluded else None)
    assert found.dtype == np.float32
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(found, naive(wanted, factors, unwanted), atol=1e-6)


@given(st.lists(weights, min_size=2, max_size=4), weights, seeds)
def test_only_the_proportions_of_weights_count(factors, scale, seed):
    """Scaling all weights gives the same query; no weights means equal ones."""
    wanted = directions(len(factors), seed=seed)
    scaled = combine(wanted, [factor * scale for factor in factors])
    np.testing.assert_allclose(combine(wanted, factors), scaled, atol=1e-5)
    np.testing.assert_allclose(combine(wanted), combine(wanted, [scale] * len(factors)), atol=1e-5)


@given(weights, st.floats(1, 100), seeds)
def test_more_weight_comes_nearer(weight, more, seed):
    """Raising the weight of one part does not lower the score with it."""
    wanted = directions(2, seed=seed)
    before, after = combine(wanted, [weight, 1.0]), combine(wanted, [weight * more, 1.0])
    assert after @ wanted[0] >= before @ wanted[0] - 1e-5


@given(st.integers(1, 5), seeds)
def test_exclusion_rotates_query_at_most_30_degrees(excluded, seed):
    """The score with the excluded direction falls; the angle to what is wanted is at most 30 degrees."""
    vectors = directions(1 + excluded, seed=seed)
    wanted, unwanted = vectors[:1], vectors[1:]
    away = unwanted.sum(axis=0) / np.linalg.norm(unwanted.sum(axis=0))
    found = combine(wanted, None, unwanted)
    assert found @ away <= wanted[0] @ away + 1e-5
    assert found @ wanted[0] >= math.cos(math.radians(30)) - 1e-5


def test_texts_pictures_and_items_together(tmp_path):
    """Texts and images are encoded by the model, ids read from the collection, weights applied in order."""
    kept = directions(3, SIZE, seed=4)
    with create(tmp_path / "c", SIZE) as collection:
        collection.add([entry(f"{row}.jpg", vector) for row, vector in enumerate(kept)])
        (ids, _) = next(collection.all_vectors())
        query = Query(
            ("a dog runs", "snow"), (picture(1),), exclude=("a red chair",), like=(int(ids[2]),), weights=(1, 2, 3, 4)
        )
        found = encode_query(query, model(), collection)
        alone = encode_query(Query(like=(int(ids[1]),)), None, collection)
    texts = model().encode_texts(["a dog runs", "snow", "a red chair"])
    wanted = [texts[0], texts[1], model().encode_images([picture(1)])[0], kept[2]]
    np.testing.assert_allclose(found.vector, naive(wanted, [1, 2, 3, 4], [texts[2]]), atol=1e-5)
    np.testing.assert_allclose(alone.vector, kept[1], atol=1e-6)
    assert (found.unknown, found.cut) == ((), ())


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, "nothing"),
        ({"exclude": ("people",)}, "only 'people' to exclude"),
        ({"texts": ("",)}, "empty"),
        ({"texts": (" \n",)}, "empty"),
        ({"texts": ("a", "")}, "empty"),
        ({"texts": ("x" * (MAX_CHARACTERS + 1),)}, r"2,001 characters, at most 2,000"),
        ({"texts": "a dog"}, "texts is one str"),
        ({"texts": 5}, "texts is one int"),
        ({"images": Path("a.jpg")}, "images is one PosixPath"),
        ({"images": b"GIF89a"}, "images is one bytes"),
        ({"images": Image.new("RGB", (2, 2))}, "images is one Image"),
        ({"images": np.zeros((2, 2, 3), np.uint8)}, "images is one ndarray"),
        ({"images": np.zeros((2, 2), np.uint8)}, "images is one ndarray"),
        ({"like": 5}, "like is one int"),
        ({"like": np.array(5)}, "like is one ndarray"),
        ({"like": ("a",)}, "id a: expected"),
        ({"like": (1.5,)}, r"id 1\.5"),
        ({"like": (None,)}, "id None"),
        ({"texts": (3,)}, "int"),
        ({"texts": ("a \udcff",)}, "not UTF-8"),
        ({"like": (0,)}, "id 0"),
        ({"like": (2**63,)}, "id 9223372036854775808"),
        ({"texts": ("a",), "weights": (1.0, 2.0)}, "2 weights for 1"),
        ({"texts": ("a",), "weights": (0.0,)}, r"weight 0\.0"),
        ({"texts": ("a",), "weights": (-1.0,)}, "exclude"),
        ({"texts": ("a",), "weights": (math.nan,)}, "weight nan"),
        ({"texts": ("a",), "weights": (math.inf,)}, "weight inf"),
        ({"texts": ("a",), "weights": (10**400,)}, "weight 1000"),
        ({"texts": ("a",), "weights": ("x",)}, "weight x"),
        ({"texts": ("a",), "weights": 2.0}, "weights is one float"),
    ],
)
def test_query_names_invalid_parts(parts, words):
    """Before a model is needed; the error quotes the value."""
    with pytest.raises(InputError, match=words) as caught:
        Query(**parts)
    assert "\n" not in str(caught.value)


def test_sequences_of_any_kind():
    """Lists, generators, arrays of ids and of images; numpy numbers become plain ones."""
    pictures = np.stack([picture(1), picture(2)])
    query = Query(["a dog"], pictures, like=np.array([3, 4]), weights=np.ones(5, np.float32))  # type: ignore[arg-type]
    assert query.texts == ("a dog",)
    np.testing.assert_array_equal(query.images, pictures)
    assert [(type(each), each) for each in query.like] == [(int, 3), (int, 4)]
    assert query.weights == (1.0,) * 5
    assert Query(text for text in ("a", "b")).texts == ("a", "b")  # type: ignore[arg-type]


def test_the_longest_text_is_accepted():
    assert Query(("x" * MAX_CHARACTERS,)).texts


def test_query_reports_unknown_words():
    """Unique and in order, of wanted and excluded texts; punctuation and contractions are not words."""
    query = Query(("A zebra runs, in the blorf's snow! Zebra?",), exclude=("a quokka on a chair",))
    assert encode_query(query, model()).unknown == ("zebra", "blorf", "quokka")
    assert encode_query(Query(("A DOG runs in the snow",)), model()).unknown == ()


def test_unknown_words_of_pieces(tmp_path):
    """With WordPiece, a word is unknown if one of its pieces is."""
    tokenizer = TextTokenizer.from_pretrained(write_wordpieces(tmp_path))
    assert unknown_words(tokenizer, ["a dogs runs ügh"]) == ("ügh",)
    text = build(grid_config(), bert_config(), tokenizer=tokenizer)
    assert encode_query(Query(("a dog ügh",)), text).unknown == ("ügh",)


def test_a_text_of_unknown_words_alone_is_an_error():
    """Its embedding would be meaningless; the same holds for excluded texts."""
    for query in (Query(("zebra blorf",)), Query(("a dog",), exclude=("zebra",))):
        with pytest.raises(InputError, match=r"zebra.*knows none of its words"):
            encode_query(query, model())


def test_query_reports_truncated_text():
    """A text longer than the model reads, but within the limit, is reported as truncated."""
    text = "snow " * 30
    assert len(text) <= MAX_CHARACTERS
    assert word_tokenizer().max_length < 30
    assert encode_query(Query((text,)), model()).cut == (text,)


def test_query_with_missing_parts_is_an_error(tmp_path):
    """A file that is not an image, an id that no longer exists, a missing model or collection."""
    (tmp_path / "no.jpg").write_text("no picture")
    with create(tmp_path / "c", SIZE) as collection:
        for query, its_model, where, words in (
            (Query(images=(tmp_path / "no.jpg",)), model(), None, "no.jpg"),
            (Query(images=(Path("absent.jpg"),)), model(), None, "absent.jpg"),
            (Query(like=(7,)), None, collection, "no item has id 7"),
            (Query(like=(7,)), None, None, "no collection"),
            (Query(("a dog",)), None, None, "no model"),
            (Query(images=(picture(),)), build(), None, "sets of features"),
        ):
            with pytest.raises(InputError, match=words) as caught:
                encode_query(query, its_model, where)
            assert "\n" not in str(caught.value)


def test_vectors_that_cancel_are_an_error():
    one = directions(1)
    with pytest.raises(InputError, match="cancel"):
        combine(np.concatenate([one, -one]))


def test_query_description():
    """A single text stands for itself; other parts are labelled."""
    assert str(Query(("a dog",))) == "a dog"
    query = Query(("beach",), (Path("photos/sea.jpg"), picture()), exclude=("people",), like=(12,))
    assert str(query) == "beach, image sea.jpg, image of ndarray, like 12, not people"
