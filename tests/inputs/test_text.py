"""Words are those of NLTK's tokenizer, with sentences ended by our written rule."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.inputs import naive

from vse.inputs.text import ABBREVIATIONS, split_words, words_of


@cache
def treebank():
    return pytest.importorskip("nltk.tokenize.destructive").NLTKWordTokenizer()


def expected(text):
    """NLTK's words of the lower-cased text, in which the sentences were parted by hand."""
    return treebank().tokenize(naive.part_sentences(text.lower()))


def agree(captions):
    """One comparison for all, since pytest takes longer to watch each than NLTK to split it."""
    found, wanted = split_words(captions), [expected(caption) for caption in captions]
    assert [pair for pair in zip(found, wanted, strict=True) if pair[0] != pair[1]] == []


FRAGMENTS = (
    *("a", "dog", "runs", "the", "snow", "x", "isn't", "can't", "cannot", "gonna", "gotta", "gimme", "lemme", "wanna"),
    *("it's", "dogs'", "i'm", "he'd", "they'll", "we've", "you're", "he'd've", "'tis", "'twas", "d'ye", "more'n", "'n"),
    *(
        "o'clock",
        "'s",
        "'re",
        "n't",
        "wanna-be",
        "x-cannot-y",
        "mr.",
        "st.",
        "u.s.",
        "a.m.",
        "j.",
        "no.",
        "etc.",
        "end.",
    ),
    *("1", "20", "1,000", "3.5", "10:30", "$", "%", "#", "@", "&", "*", ";", ":", ",", ".", "..", "...", "?", "!", "'"),
    *(
        "''",
        '"',
        "``",
        "`",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "<",
        ">",
        "-",
        "--",
        "---",
        "–",
        "—",
        "/",
        "“",
        "”",
        "‘",
        "’",
    ),
    *("«", "»", "„", "é", "ñandú", "狗", "_", "Dog", "DON'T"),
)
TEXTS = st.lists(st.tuples(st.sampled_from(FRAGMENTS), st.sampled_from(["", " ", "  "])), min_size=1, max_size=12).map(
    lambda parts: "".join(fragment + space for fragment, space in parts)
)


def differs_by_design(text):
    """Text on which the documentation says that NLTK does otherwise, and that only a machine would write."""
    text = text.lower()
    doubled = any(first + second in text for first in ",:" for second in ",:")
    quotes = text.lstrip().startswith(("''", '""', "\"''"))
    glued = any(word + "'t" in text for word in ("cannot", "gonna", "gotta", "gimme", "lemme", "ye", "more'n"))
    hidden = re.search(r"('[smd]|'ll|'re|'ve|n't)'(?!\s+\S)", text)
    return bool(doubled or quotes or glued or hidden)


@given(text=TEXTS)
@settings(max_examples=300)
@example(text='"a"')
@example(text='a ""b""')
@example(text='he said "no." and left.')
@example(text="shouldn't've i'll's dogs's' 'it's' x")
def test_any_mixture_of_words_and_marks_splits_like_nltk(text):
    """Contractions, quotes, brackets, dashes, dots and numbers in any order give NLTK's words."""
    assume(text.strip() and not differs_by_design(text))
    assert words_of(text) == expected(text)


@given(text=st.text(st.sampled_from("ab1'\"`.,-() !"), min_size=1, max_size=9))
@settings(max_examples=300)
def test_short_mixtures_split_as_nltk_splits_them(text):
    """So does every short mixture of the characters that the rules are about."""
    assume(text.strip() and not differs_by_design(text))
    assert words_of(text) == expected(text)


@given(text=TEXTS)
def test_whitespace_of_any_kind_counts_once(text):
    """Tabs, line breaks and runs of spaces are one space, and none around a text matters."""
    spread = text.replace(" ", " \t\n\u00a0")
    assert words_of(f"\n {spread}\t") == words_of(" ".join(text.split()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A dog runs.", "a dog runs ."),
        ("A dog runs. A cat sits.", "a dog runs . a cat sits ."),
        ("Mr. Smith and J. R. Doe on Main St. today", "mr. smith and j. r. doe on main st. today"),
        ("the U.S. flag at 5 a.m. outside", "the u.s. flag at 5 a.m. outside"),
        ("No. 5 says no. Twice.", "no. 5 says no . twice ."),
        ("the dog's. its", "the dog 's . its"),
        ("on the U.S.", "on the u.s ."),
        ("wait... what", "wait ... what"),
        ("see www.example.com. then go", "see www.example.com . then go"),
        ('(he said "no.") then', "( he said `` no . '' ) then"),
        ("'the dog's' bowl", "' the dog 's ' bowl"),
        ("<end> <pad>", "< end > < pad >"),
        ("", ""),
        (" ", ""),
    ],
)
def test_sentence_ends_follow_the_documented_rule(text, words):
    """Periods end sentences except behind single letters, abbreviations and numbering; other marks stand alone."""
    assert words_of(text) == words.split()


@pytest.mark.parametrize("word", ABBREVIATIONS)
def test_abbreviations_keep_their_period(word):
    """Within a text, not at its end."""
    assert words_of(f"a {word}. b {word}.") == ["a", f"{word}.", "b", word, "."]


def test_many_texts_split_in_order():
    """A list of texts gives their words in order."""
    assert split_words(["A b.", "c"]) == [["a", "b", "."], ["c"]]


@pytest.fixture(scope="session")
def flickr8k(shared_data):
    lines = (shared_data / "flickr8k" / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[1] for line in lines]


@pytest.fixture(scope="session")
def coco(shared_data):
    with gzip.open(shared_data / "coco" / "karpathy_test_captions.json.gz") as file:
        return [caption for image in json.load(file) for caption in image["captions"]]


def test_dataset_captions_split_as_nltk_splits_them(flickr8k, coco):
    """The words of real captions are NLTK's."""
    agree(flickr8k[::5] + coco[::5])


@pytest.mark.slow
def test_more_dataset_captions_split_as_nltk_splits_them(flickr8k, coco):
    """Two more of each image of Flickr8k and of COCO's test split."""
    assert (len(flickr8k), len(coco)) == (40460, 25000)
    agree([*flickr8k[1::5], *flickr8k[3::5], *coco[2::5], *coco[4::5]])
