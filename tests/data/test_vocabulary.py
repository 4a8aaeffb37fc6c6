"""Contracts of the words of video captions and of their role graphs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.data.video_support import write_json

from vse.data import open_data
from vse.data.roles.graphs import role_graphs
from vse.data.vocabulary import VideoVocabulary
from vse.errors import InputError
from vse.inputs.tokenizer import TextTokenizer
from vse.inputs.vocabulary import Vocabulary

TRAIN = ["a man runs", "a dog runs", "a man"]


def numbers(words: VideoVocabulary, *captions: str) -> list[list[int]]:
    return words.tokenizer().encode(captions).tokens.tolist()


def test_video_vocabulary_is_ordered_by_count():
    """0 to 2 are special, then the words by frequency, equally frequent ones by the alphabet."""
    assert numbers(VideoVocabulary.build(TRAIN), "a man runs dog") == [[3, 4, 5, 6]]
    assert numbers(VideoVocabulary.build(TRAIN, min_count=2), "a man runs dog") == [[3, 4, 5, 2]]


def test_published_word_file_closes_gaps(tmp_path):
    """Its special words are those that are always there; ids are taken in their order, gaps close."""
    file = write_json(tmp_path / "word2int.json", {"<BOS>": 0, "<EOS>": 1, "<UNK>": 2, "dog": 9, "a": 5})
    words = VideoVocabulary.load(file)
    assert numbers(words, "dog a cat") == [[4, 3, 2]]
    assert words.tokenizer().vocab_size == 5


def test_vocabulary_reports_missing_words(tmp_path):
    """Up to five words in a hundred may be missing; more are reported as a share, with the most frequent ones."""
    words = VideoVocabulary.load(write_json(tmp_path / "word2int.json", {"a": 3}))
    assert words.lacking(["a"] * 95 + ["b"] * 5) is None
    assert words.lacking([]) is None
    told = words.lacking(["a a"] * 47 + ["b", "c c c", "d d"])
    assert f"{tmp_path / 'word2int.json'} lacks 6 % of the words of the training captions ('c', 'd', 'b' …)" in told
    nothing = VideoVocabulary({})
    assert "lacks 100 %" in nothing.lacking(["a man"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected an object"),
        ({"a": 2}, "'a' has id 2"),
        ({"a": "3"}, "'a' has id '3'"),
        ({"a": 3, "b": 3}, "id 3"),
    ],
)
def test_video_vocabulary_names_malformed_ids(tmp_path, content, message):
    """Ids are whole numbers from 3 on, one for each word."""
    with pytest.raises(InputError, match=message):
        VideoVocabulary.load(write_json(tmp_path / "word2int.json", content))


GRAPH = [{"ROOT": {"role": "ROOT", "spans": [0], "words": ["x"]}}, []]


def test_role_graphs_from_file(tmp_path):
    """Published graphs are taken as they are; sentences that lack one are parsed, counted, and it is said."""
    write_json(tmp_path / "sent2rolegraph.augment.json", {"a man runs": GRAPH, "other": GRAPH})
    found = role_graphs(["a man runs", "a dog barks", "a man runs"], tmp_path)
    assert set(found.graphs) == {"a man runs", "a dog barks"}
    assert found.graphs["a man runs"] == GRAPH
    assert found.graphs["a dog barks"][0]["1"]["words"] == ["barks"]
    assert found.missing == ("a dog barks",)
    assert "1 of 2 sentences" in found.note
    assert role_graphs(["other"], tmp_path).note == "role graphs of sent2rolegraph.augment.json"


@pytest.mark.parametrize("folder", ["empty", None])
def test_role_graphs_without_file_are_parsed(tmp_path, folder):
    """Everything is parsed by the built-in rules, and the note says so."""
    found = role_graphs(["a man runs"], None if folder is None else tmp_path)
    assert found.missing == ("a man runs",)
    assert "built-in rules" in found.note


@pytest.mark.parametrize(("content", "message"), [([], "an object"), ({"a man": [{}]}, "'a man': expected")])
def test_malformed_role_graphs_are_refused(tmp_path, content, message):
    """One line says what is wrong."""
    write_json(tmp_path / "sent2rolegraph.json", content)
    with pytest.raises(InputError, match=message):
        role_graphs(["a man"], tmp_path)


def naive_batch(captions: list[str], limit: int) -> dict[str, list]:
    """Words at whitespace, looked up one by one: no begin and end marks, unknown is 2, padding the end mark 1."""
    ids = {"a": 3, "man": 4, "runs": 5, "dog": 6}
    rows = [caption.split() for caption in captions]
    longest = min(limit, max(map(len, rows)))
    cut = [row[:limit] for row in rows]
    return {
        "tokens": [[ids.get(word, 2) for word in row] + [1] * (longest - len(row)) for row in cut],
        "lengths": [len(row) for row in cut],
        "words": [[*range(len(row))] + [-1] * (longest - len(row)) for row in cut],
        "unknown": [not ids.keys() & set(row) for row in cut],
        "truncated": [len(row) > limit for row in rows],
    }


@pytest.mark.parametrize("limit", [4, 30, 40])
def test_vocabulary_tokenizer_gives_its_ids(tmp_path, limit):
    """Tokens, lengths, cut and unknown sentences as one by one, also once saved."""
    captions = ["a cat  sits", "dog " * 31, "unheard of", "cat\tdog\u00a0a"]
    tokenizer = VideoVocabulary.build(TRAIN).tokenizer(limit)
    tokenizer.save(tmp_path)
    for found in (tokenizer.encode(captions), TextTokenizer.load(tmp_path).encode(captions)):
        for name, expected in naive_batch(captions, limit).items():
            np.testing.assert_array_equal(getattr(found, name), expected, err_msg=name)
    assert (tokenizer.vocab_size, tokenizer.max_length) == (7, limit)


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("A man runs.", "a man runs"),
        ("  a\x1cman \n runs ", "a man runs"),
        ("Zebra!", "Zebra!"),  # unknown either way
        ("a Man's dog", "a Man's dog"),  # would be three words, two of them unknown
        ("...", "..."),
    ],
)
def test_queries_are_normalized_like_the_words(typed, read, tmp_path):
    """The plain form, if it has fewer unknown words; whitespace as one blank in any case."""
    tokenizer = VideoVocabulary({"a": 3, "runs": 4, "dog": 5, "man": 6}).tokenizer()
    tokenizer.save(tmp_path)
    for each in (tokenizer, TextTokenizer.load(tmp_path)):
        assert each.respell([typed, "a dog"]) == [read, "a dog"]


def test_known_words_are_not_normalized():
    """A vocabulary of captions with capitals and full stops reads these as it learned them, and ``A`` is not ``a``."""
    tokenizer = VideoVocabulary.build(["A dog runs.", "a dog runs"]).tokenizer()
    assert tokenizer.respell(["A dog runs.", "a Dog runs."]) == ["A dog runs.", "a dog runs"]
    with pytest.raises(InputError, match="text 8 is int"):
        tokenizer.respell(["a", 3], first=7)


def test_other_tokenizers_are_not_normalized():
    """A pipeline that normalises is given what was typed."""
    assert Vocabulary.build(["a dog"], 1).tokenizer().respell(["A  Dog."]) == ["A  Dog."]


def test_vocabulary_tokenizer_splits_real_captions_like_python(shared_data):
    """Every caption of MSVD's test: as many tokens as words, the first thirty; and respelling changes none."""
    captions = open_data(shared_data / "msvd", "test").captions
    tokenizer = VideoVocabulary.build(open_data(shared_data / "msvd", "train").captions).tokenizer()
    assert tokenizer.encode(captions).lengths.tolist() == [min(30, len(caption.split())) for caption in captions]
    assert tokenizer.respell(captions) == list(captions)
