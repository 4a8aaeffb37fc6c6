"""Vocabularies: built the same every time, read strictly, written as they are read."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.inputs import Vocabulary, words_of

SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
CAPTIONS = ["a dog runs", "a dog sits", "a cat runs", "the end"]


def scan(words, **changes):
    values = {
        "word2idx": {word: number for number, word in enumerate(words)},
        "idx2word": {str(number): word for number, word in enumerate(words)},
        "idx": len(words),
    }
    return {**values, **changes}


@given(captions=st.lists(st.text("abc. '", max_size=12), max_size=20), min_count=st.integers(1, 4))
def test_vocabulary_is_ordered_by_count(captions, min_count):
    """The special words, then those that are frequent enough by falling count and rising alphabet, then <mask>."""
    counts = Counter()
    for caption in captions:
        counts.update(words_of(caption))
    frequent = [word for word in counts if counts[word] >= min_count]
    ordered = sorted(sorted(frequent), key=lambda word: counts[word], reverse=True)
    assert Vocabulary.build(captions, min_count).words == (*SPECIAL, *ordered, "<mask>")


def test_order_of_captions_does_not_matter():
    """The same captions in another order give the same ids."""
    assert Vocabulary.build(CAPTIONS, 1) == Vocabulary.build(reversed(CAPTIONS), 1)


def test_unknown_words_get_unk_id():
    """Known words have their place, unknown ones that of <unk>."""
    vocabulary = Vocabulary.build(CAPTIONS, 1)
    assert [vocabulary.id(word) for word in (*SPECIAL, "a")] == [0, 1, 2, 3, 4]
    assert vocabulary.id("zebra") == 3
    assert "dog" in vocabulary
    assert "zebra" not in vocabulary
    assert vocabulary.words[vocabulary.id("cat")] == "cat"


def test_vocabulary_save_and_load(tmp_path):
    """What was saved is loaded equal, and holds <mask>."""
    vocabulary = Vocabulary.build([*CAPTIONS, "el ñandú 狗"], 1)
    vocabulary.save(tmp_path / "vocab.json")
    assert Vocabulary.load(tmp_path / "vocab.json") == vocabulary
    values = json.loads((tmp_path / "vocab.json").read_text())
    assert values["idx"] == len(vocabulary) == values["word2idx"]["<mask>"] + 1


@pytest.mark.parametrize(("name", "size"), [("coco", 11354), ("f30k", 8482)])
def test_published_vocabularies_match_checkpoint_sizes(shared_data, tmp_path, name, size):
    """The files that checkpoints were trained with have the size of their embeddings, <mask> being the last row."""
    path = shared_data / "vocab" / f"{name}_precomp_vocab.json"
    vocabulary = Vocabulary.load(path)
    assert len(vocabulary) == size
    assert vocabulary.words[-1] == "<mask>"
    for word, number in json.loads(path.read_text())["word2idx"].items():
        assert vocabulary.id(word) == number
    vocabulary.save(tmp_path / "copy.json")
    assert Vocabulary.load(tmp_path / "copy.json") == vocabulary


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "expected a JSON object"),
        ({}, "word2idx"),
        (scan(SPECIAL, idx="4"), "'idx'"),
        (scan(SPECIAL, idx=5), "idx says 5"),
        (scan(SPECIAL, idx2word={}), "idx2word 0"),
        (scan(("a", *SPECIAL)), "word 0 of a vocabulary must be '<pad>', got 'a'"),
        (scan(SPECIAL[:2]), "must be '<end>'"),
        (scan(SPECIAL, idx2word={"0": "<pad>", "1": "<start>", "2": "<end>", "4": "<unk>"}), "no word 3"),
        (scan((*SPECIAL, "a"), word2idx=dict(zip((*SPECIAL, "b"), range(5), strict=True))), "word 4 is 'a'"),
        (scan((*SPECIAL, "a", "b"), word2idx=dict(zip((*SPECIAL, "b", "a"), range(6), strict=True))), "gives it 5"),
    ],
)
def test_invalid_vocabulary_file_is_refused(tmp_path, values, message):
    """One line that names the file and what is wrong with it."""
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(values))
    with pytest.raises(InputError) as caught:
        Vocabulary.load(path)
    assert message in str(caught.value)
    assert "vocab.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe"])
def test_vocabulary_that_is_not_json_is_refused(tmp_path, content):
    """Absent, empty, cut and binary files are errors of one line."""
    path = tmp_path / "vocab.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"vocab\.json"):
        Vocabulary.load(path)


@pytest.mark.parametrize("words", [(), SPECIAL[:3], ("<mask>", *SPECIAL)])
def test_special_words_have_their_places(words):
    """A list that does not begin with the four special words is refused."""
    with pytest.raises(InputError, match="of a vocabulary must be"):
        Vocabulary(words)


def test_repeated_vocabulary_word_is_refused():
    """The word that is there twice is named."""
    with pytest.raises(InputError, match="'a' is in the vocabulary twice"):
        Vocabulary([*SPECIAL, "a", "b", "a"])


@pytest.mark.parametrize("min_count", [0, -1, 1.5, True, "4"])
def test_min_count_is_checked(min_count):
    """The bad value is named."""
    with pytest.raises(InputError, match=f"min_count.*{min_count!r}"):
        Vocabulary.build(CAPTIONS, min_count)


def test_vocabulary_refuses_single_caption():
    """A string would be counted letter by letter."""
    with pytest.raises(InputError, match="put it into a list"):
        Vocabulary.build("a dog")


@given(texts=st.lists(st.text("abc 1.,'\"<>", min_size=1).filter(str.strip), min_size=1, max_size=5))
def test_tokens_are_the_ids_of_the_words(texts):
    """<start>, the id of every word, <end>, then padding; words are numbered from zero."""
    vocabulary = Vocabulary.build(["a b c ab . , ' <end> <mask>"], 1)
    batch = vocabulary.tokenizer(max_length=1000).encode(texts)
    for row, text in enumerate(texts):
        ids = [1, *(vocabulary.id(word) for word in words_of(text)), 2]
        padding = [0] * (batch.tokens.shape[1] - len(ids))
        assert batch.tokens[row].tolist() == ids + padding
        assert batch.words[row].tolist() == [-1, *range(len(ids) - 2), -1, *(-1 for _ in padding)]
        assert batch.lengths[row] == len(ids)
        assert batch.unknown[row] == all(number == 3 for number in ids[1:-1])
    assert not batch.truncated.any()
    assert batch.tokens.dtype == batch.words.dtype == batch.lengths.dtype == np.int64
    assert batch.unknown.dtype == batch.truncated.dtype == np.bool_


def test_text_cannot_inject_special_tokens():
    """<end>, <mask> or <pad> in a text are words between angle brackets."""
    vocabulary = Vocabulary.build(["< > end mask pad"], 1)
    tokens = vocabulary.tokenizer().encode(["<end><mask> <pad>"]).tokens[0, 1:-1]
    assert [vocabulary.words[number] for number in tokens] == ["<", "end", ">", "<", "mask", ">", "<", "pad", ">"]
