"""Queries in other languages than the model's, or of no known word."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import vse
from vse.index.language import ENGLISH, FOREIGN, KnownWords, languages_of, query_notes
from vse.index.query import Query, encode_query


@pytest.fixture(scope="module")
def photo():
    """The bundled model, whose language is English."""
    return vse.load("photo", threads=1)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("zwei Hunde im Schnee", "German"),
        ("ein rotes Auto", "German"),
        ("une voiture rouge", "French"),
        ("deux chiens dans la neige", "French"),
        ("niños en la playa", "Spanish"),
        ("coche rojo", "Spanish"),
    ],
)
def test_language_of_query_is_named(photo, text, language):
    """The note starts with its code and names the language."""
    (note,) = query_notes(photo, [text])
    assert note == f'language: "{text}" looks {language}, and the model understands English only'


@pytest.mark.parametrize("text", ["собака", "一只狗", "犬と猫", "κόκκινο αυτοκίνητο", "강아지", "كلب"])
def test_query_in_another_script_is_noted(photo, text):
    """Whatever the language, it is not English."""
    (note,) = query_notes(photo, [text])
    assert note.startswith(f'language: "{text}" is in a script')


@pytest.mark.parametrize("text", ["qwrtz", "sdfg hjkl", "blorptag"])
def test_query_of_no_known_word_is_noted(photo, text):
    """The tokenizer has pieces for it, but no word."""
    assert query_notes(photo, [text]) == (f'unknown: the model may not know any word of "{text}"',)


@pytest.mark.parametrize(
    "text",
    [
        "a dog in the snow",
        "giraffes",
        "snowboarder",
        "crème brûlée",
        "a café in Los Angeles",
        "broccoli",
        "2024",
        "IMG_0412",
        "strand of hair",
        "train",
        "die cast model",
        "?!",
        "dachshund",
        "skateboarding",
    ],
)
def test_english_query_has_no_note(photo, text):
    """Names, accents, compounds and words that tokenizers split are English, too."""
    assert query_notes(photo, [text]) == ()


def test_long_text_is_shortened_in_note(photo):
    """A note is one short line."""
    (note,) = query_notes(photo, ["собака и кошка " * 40])
    assert len(note) < 160
    assert " …" in note


def test_notes_reach_query_with_excluded_texts(photo):
    """In the order of the texts."""
    notes = encode_query(Query(texts=("qwrtz", "a dog"), exclude=("Hunde",)), photo).notes
    assert [note.split(":")[0] for note in notes] == ["unknown", "language"]


@pytest.mark.parametrize("languages", [[], ["en", "de"], ["multilingual"], None])
def test_model_of_other_languages_has_no_notes(photo, languages):
    """Of several, or of unknown ones; an export records them as plain values."""
    config = SimpleNamespace(source={"about": {"languages": languages}})
    other = SimpleNamespace(config=config, tokenizer=photo.tokenizer)
    assert languages_of(other) == tuple(languages or ())
    assert query_notes(other, ["Hunde im Schnee"]) == ()
    assert languages_of(photo) == ("en",)
    assert languages_of(object()) == ()


def test_whole_words_of_tokenizers():
    """Pieces within words are no words, in the spellings of WordPiece, CLIP, RoBERTa and SentencePiece."""
    for tokens in (["dog", "##s", "##ging", "a"], ["dog</w>", "ging"], ["Ġdog", "ging"], ["▁Dog", "ging"]):
        pipeline = SimpleNamespace(token_to_id=lambda token, tokens=tokens: 0 if token in tokens else None)
        known = KnownWords(SimpleTokenizer(pipeline))
        assert [word for word in ("dog", "ging", "s", "a", "dogs") if word in known] == ["dog"]


class SimpleTokenizer:
    """Only a pipeline."""

    def __init__(self, pipeline: object) -> None:
        self.pipeline = pipeline


def test_foreign_words_are_not_english(photo):
    """A word in both lists would be evidence of both."""
    for words in FOREIGN.values():
        assert not words & ENGLISH
