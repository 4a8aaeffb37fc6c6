"""How texts are split into words, and which texts of a file are searched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import picture

from vse.errors import InputError
from vse.index.filters import Filter
from vse.index.words import FIELDS, content_words, fold, matched_fields, texts_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Zwei Hunde, im_Schnee (Café № 7)", ["zwei", "hunde", "im", "schnee", "cafe", "no", "7"]),
        ("Straße ΑΒΓς", ["strasse", "αβγσ"]),
        ("東京 tower 서울", ["東", "京", "tower", "서울"]),
        ("I\u0307stanbul it's", ["istanbul", "it", "s"]),
        ("a\udcffb\ufffd …", ["a", "b"]),
    ],
)
def test_words_without_case_and_diacritics(text, words):
    assert fold(text) == words


@given(st.text())
def test_folding_twice_changes_nothing(text):
    words = fold(text)
    assert fold(" ".join(words)) == words
    assert all(word and not any(map(str.isspace, word)) for word in words)


@pytest.mark.parametrize(
    ("path", "name", "folder"),
    [
        ("IMG_0412.jpg", "img 0412 jpg", "photos"),
        ("2019/BeachParty2019.JPEG", "beach party 2019 jpeg beachparty2019 jpeg", "photos 2019"),
        ("JPEGImages/a.jpg", "a jpg", "photos jpeg images photos jpegimages"),
        ("Cafe\u0301/\udcff.png", "png", "photos cafe"),
    ],
)
def test_names_are_split_at_case_and_digits(path, name, folder):
    texts = dict(zip(FIELDS, texts_of(picture(path)), strict=True))
    assert (texts["name"], texts["folder"]) == (name, folder)


def test_every_text_of_a_file_is_a_field():
    file = picture(
        "a.jpg", captions=("Aunt Mathilda", "in Quito"), title="Té", description="At noon",
        keywords=("family", "big hat"), camera="Canon EOS 80D", place="Quito, Pichincha, Ecuador", ocr="NO ENTRY",
    )  # fmt: skip
    texts = dict(zip(FIELDS, texts_of(file), strict=True))
    assert texts == {
        "name": "a jpg", "folder": "photos", "caption": "aunt mathilda in quito", "title": "te",
        "description": "at noon", "keyword": "family big hat", "camera": "canon eos 80d",
        "place": "quito pichincha ecuador", "ocr": "no entry",
    }  # fmt: skip
    assert matched_fields(texts_of(file), {"quito": 0.5, "hat": 0.5}) == ("caption", "keyword", "place")
    assert matched_fields(texts_of(file), {"entry": 0.4, "eos": 0.6}) == ()  # too little, and cameras do not count
    assert matched_fields(texts_of(file), {}, ("eos 80d", "big ha*", "hat family")) == ("keyword", "camera")
    assert texts_of(picture("a.jpg"))[2:] == ("",) * 7


def test_articles_say_nothing():
    assert content_words("A photo of the dog, a DOG in the snow") == ["dog", "snow"]
    assert content_words("is it a") == []


@pytest.mark.parametrize("field", ["name", "camera", "place"])
@pytest.mark.parametrize(
    ("value", "message"), [("-- …", "0 words"), ("", "0 words"), ("a " * 33, "33 words"), (7, "int")]
)
def test_a_condition_needs_words(field, value, message):
    with pytest.raises(InputError, match=message) as caught:
        Filter(**{field: value})
    assert str(caught.value).startswith(field)
    assert "\n" not in str(caught.value)
