"""Contracts of the words of video captions and of their role graphs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.data.video_support import write_json

from vse.data.video_graphs import role_graphs
from vse.data.video_open import open_videos
from vse.data.video_vocabulary import VideoVocabulary
from vse.errors import InputError
from vse.inputs.tokenizer import TextTokenizer

TRAIN = ["a man runs", "a dog runs", "a man"]


def test_building():
    """0 to 2 are special, then the words by frequency, equally frequent ones by the alphabet."""
    words = VideoVocabulary.build(TRAIN)
    assert words.encode(["a man runs dog"]).tokens.tolist() == [[3, 4, 5, 6]]
    assert len(words) == 7
    assert "dog" in words
    assert "dog" not in VideoVocabulary.build(TRAIN, min_count=2)


def test_encoding():
    """No begin and end marks, unknown is 2, padding is the end mark 1, words behind the thirtieth are cut."""
    batch = VideoVocabulary.build(TRAIN).encode(["a cat", "dog " * 31, "cat"])
    assert batch.tokens.shape == (3, 30)
    assert batch.tokens[0].tolist() == [3, 2] + [1] * 28
    assert batch.lengths.tolist() == [2, 30, 1]
    assert batch.truncated.tolist() == [False, True, False]
    assert batch.unknown.tolist() == [False, False, True]
    assert batch.words[0, :3].tolist() == [0, 1, -1]
    with pytest.raises(InputError, match="caption 1 has no words"):
        VideoVocabulary.build(TRAIN).encode(["a", " "])


def test_a_published_file_comes_first(tmp_path):
    """``word2int.json`` is read where it is, with its gaps and special words; otherwise the captions are counted."""
    assert VideoVocabulary.load_or_build(tmp_path, TRAIN).encode(["dog"]).tokens.tolist() == [[6]]
    write_json(tmp_path / "word2int.json", {"<BOS>": 0, "<EOS>": 1, "<UNK>": 2, "dog": 9})
    words = VideoVocabulary.load_or_build(tmp_path, TRAIN)
    assert (words.encode(["dog a"]).tokens.tolist(), len(words)) == ([[9, 2]], 10)


def test_saving(tmp_path):
    """What was saved is what is loaded."""
    words = VideoVocabulary.build(TRAIN)
    words.save(tmp_path / "word2int.json")
    assert json.loads((tmp_path / "word2int.json").read_text())["<UNK>"] == 2
    again = VideoVocabulary.load(tmp_path / "word2int.json")
    assert (again.encode(TRAIN).tokens == words.encode(TRAIN).tokens).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected an object"),
        ({"a": 2}, "'a' has id 2"),
        ({"a": "3"}, "'a' has id '3'"),
        ({"a": 3, "b": 3}, "id 3"),
    ],
)
def test_malformed_vocabularies(tmp_path, content, message):
    """Ids are whole numbers from 3 on, one for each word."""
    with pytest.raises(InputError, match=message):
        VideoVocabulary.load(write_json(tmp_path / "word2int.json", content))


GRAPH = [{"ROOT": {"role": "ROOT", "spans": [0], "words": ["x"]}}, []]


def test_graphs_of_a_file(tmp_path):
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
def test_graphs_without_a_file(tmp_path, folder):
    """Everything is parsed by the built-in rules, and the note says so."""
    found = role_graphs(["a man runs"], None if folder is None else tmp_path)
    assert found.missing == ("a man runs",)
    assert "built-in rules" in found.note


@pytest.mark.parametrize(("content", "message"), [([], "an object"), ({"a man": [{}]}, "'a man': expected")])
def test_malformed_graphs(tmp_path, content, message):
    """One line says what is wrong."""
    write_json(tmp_path / "sent2rolegraph.json", content)
    with pytest.raises(InputError, match=message):
        role_graphs(["a man"], tmp_path)


def test_the_tokenizer_is_the_vocabulary(tmp_path):
    """Tokens, lengths, cut and unknown sentences as :meth:`encode` has them, also once saved; gaps in ids close."""
    captions = ["a cat  sits", "dog " * 31, "unheard of", "cat\tdog\u00a0a"]
    words = VideoVocabulary.build(TRAIN)
    tokenizer = words.tokenizer()
    tokenizer.save(tmp_path)
    for found in (tokenizer.encode(captions), TextTokenizer.load(tmp_path).encode(captions)):
        expected = words.encode(captions)
        for name in ("tokens", "lengths", "words", "unknown", "truncated"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert (tokenizer.vocab_size, tokenizer.max_length) == (len(words), 30)
    gaps = VideoVocabulary({"b": 9, "a": 5}).tokenizer(4)
    assert gaps.encode(["a b c"]).tokens.tolist() == [[3, 4, 2]]
    assert gaps.vocab_size == 5


def test_the_tokenizer_splits_real_captions_as_python_does(shared_data):
    """Every caption of MSVD: as many tokens as words, the first thirty."""
    captions = open_videos(shared_data / "msvd", "test").captions
    lengths = VideoVocabulary.build(captions).tokenizer().encode(captions).lengths
    assert lengths.tolist() == [min(30, len(caption.split())) for caption in captions]
