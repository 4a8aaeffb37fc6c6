"""Text tokenizers: batches, limits, files."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from vse.errors import InputError
from vse.inputs import SpecialIds, TextTokenizer, Vocabulary

CAPTIONS = ["a dog runs on the snow", "the cat sits"]


@pytest.fixture
def tokenizer():
    return Vocabulary.build(CAPTIONS, 1).tokenizer(max_length=8)


def test_token_batch_is_padded_to_longest_text(tokenizer):
    """Rows are padded to the longest text, not to the limit."""
    batch = tokenizer.encode(["the dog", "a zebra runs"])
    assert batch.tokens.shape == (2, 5)
    assert batch.lengths.tolist() == [4, 5]
    assert batch.tokens[0, -1] == tokenizer.pad_id
    assert batch.tokens[1, 2] == tokenizer.unk_id
    assert batch.unknown.tolist() == [False, False]
    assert len(batch) == 2


def test_special_ids_are_those_of_vocabulary(tokenizer):
    """The ids of the vocabulary's special words."""
    assert (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert tokenizer.mask_id == tokenizer.vocab_size - 1
    assert tokenizer.kind == "words"


@pytest.mark.parametrize("words", [1, 5, 6, 7, 50])
def test_tokenizer_truncation_keeps_end_token(tokenizer, words):
    """A text beyond the limit loses words, never its end token, and is marked; one that just fits is not."""
    batch = tokenizer.encode(["dog " * words, "a"])
    assert batch.lengths[0] == min(words + 2, 8)
    assert batch.tokens[0, batch.lengths[0] - 1] == tokenizer.end_id
    assert batch.truncated.tolist() == [words > 6, False]


def test_unknown_texts_are_marked(tokenizer):
    """Only a text without any known word."""
    batch = tokenizer.encode(["zebra", "zebra zebra?", "zebra the", "the"])
    assert batch.unknown.tolist() == [True, True, False, False]


def test_tokenizing_no_texts_gives_empty_batch(tokenizer):
    """An empty list is an empty batch."""
    batch = tokenizer.encode([])
    assert batch.tokens.shape == batch.words.shape == (0, 0)
    assert batch.lengths.shape == batch.unknown.shape == batch.truncated.shape == (0,)


def test_tokenizer_takes_any_sequence(tokenizer):
    """Tuples and arrays of strings are as good as lists."""
    expected = tokenizer.encode(CAPTIONS).tokens
    assert np.array_equal(tokenizer.encode(tuple(CAPTIONS)).tokens, expected)
    assert np.array_equal(tokenizer.encode(np.array(CAPTIONS)).tokens, expected)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a dog", "put it into a list"),
        (b"a dog", "put it into a list"),
        (["a", ""], "text 1 is empty"),
        (["a", "b", " \n\t\u00a0"], "text 2 is empty"),
        (["a", None], "text 1 is NoneType"),
        (["a", 5], "text 1 is int"),
        (["a", "b" * 100_001], "text 1 has 100,001 characters, at most 100,000"),
        (["a", "b", "half \ud83d of a pair"], r"text 2 .*not Unicode.*\\ud83d"),
    ],
)
def test_tokenizer_names_invalid_texts(tokenizer, texts, message):
    """The message has the position of the text and what is wrong with it, in one line."""
    with pytest.raises(InputError, match=message) as caught:
        tokenizer.encode(texts)
    assert "\n" not in str(caught.value)


def test_very_long_text_is_truncated(tokenizer):
    """A text at the limit of characters is encoded."""
    assert tokenizer.encode(["dog " * 25_000]).lengths.tolist() == [8]


@pytest.mark.parametrize("text", ["'" * 100_000, '"' * 100_000, "." * 100_000, "a." * 50_000, "-" * 100_000])
def test_tokenizer_is_linear_in_repeated_marks(tokenizer, text):
    """A hundred thousand of one mark are split like any text: no rule looks back further than a few characters."""
    assert 3 <= tokenizer.encode([text]).lengths[0] <= tokenizer.max_length


def test_tokenizer_save_and_load(tokenizer, tmp_path):
    """A saved tokenizer gives the same tokens, from two JSON files."""
    tokenizer.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["tokenizer.json", "tokenizer_settings.json"]
    loaded = TextTokenizer.load(tmp_path / "model")
    texts = ['A "dog" can\'t run.', "dog " * 20]
    assert np.array_equal(loaded.encode(texts).tokens, tokenizer.encode(texts).tokens)
    assert (loaded.kind, loaded.max_length, loaded.special) == (tokenizer.kind, 8, tokenizer.special)
    assert loaded.to_json() == tokenizer.to_json()


def test_to_json_tells_tokenizers_apart(tokenizer):
    """Everything that changes tokens changes the object, which is plain JSON."""
    same, shorter = (Vocabulary.build(CAPTIONS, 1).tokenizer(max_length=size) for size in (8, 7))
    other = Vocabulary.build([*CAPTIONS, "zebra"], 1).tokenizer(max_length=8)
    assert json.loads(json.dumps(tokenizer.to_json())) == same.to_json()
    assert tokenizer.to_json() != shorter.to_json()
    assert tokenizer.to_json() != other.to_json()


def test_tokenizer_pickles(tokenizer):
    """A tokenizer can be sent to another process."""
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert np.array_equal(copy.encode(CAPTIONS).tokens, tokenizer.encode(CAPTIONS).tokens)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kinds": "words"}, "unknown key 'kinds'.*did you mean 'kind'"),
        ({"kind": "letters"}, "'kind'"),
        ({"max_length": 2}, "max_length.*at least 3, got 2"),
        ({"max_length": "long"}, "'max_length'"),
        ({"pad": None}, "'pad'"),
        ({"mask": -1}, "'mask'"),
        ({"mask": 1000}, "'mask' is 1000"),
    ],
)
def test_tokenizer_settings_refuse_unknown_keys(tokenizer, tmp_path, change, message):
    """A wrong key or value is named."""
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer_settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=message):
        TextTokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_settings.json"])
@pytest.mark.parametrize("content", [None, "", "{}", "[1", '{"a": 1}'])
def test_corrupt_tokenizer_files_are_named(tokenizer, tmp_path, name, content):
    """An absent, empty or foreign file is an error of one line with its name."""
    tokenizer.save(tmp_path)
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=name) as caught:
        TextTokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("max_length", [0, 2, -5, 2.5, True, None])
def test_max_length_has_room_for_a_word(max_length):
    """Start, end and one word: at least three."""
    with pytest.raises(InputError, match="max_length must be a whole number of at least 3"):
        Vocabulary.build(CAPTIONS, 1).tokenizer(max_length=max_length)


def test_unknown_tokenizer_kind_is_refused():
    """The closed choice is printed."""
    with pytest.raises(InputError, match=r"unknown kind of tokenizer 'word'.*did you mean 'words'"):
        TextTokenizer(Tokenizer(WordLevel({"<pad>": 0}, "<pad>")), max_length=5, kind="word")


def test_tokenizer_needs_padding_id():
    """A vocabulary without a token to pad with is refused, unless the ids are given."""
    model = WordLevel({"a": 0, "b": 1, "?": 2}, "?")
    with pytest.raises(InputError, match="<pad>"):
        TextTokenizer(Tokenizer(model), max_length=5, kind="words")
    tokenizer = TextTokenizer(Tokenizer(model), max_length=5, kind="words", special=SpecialIds(pad=1))
    assert tokenizer.encode(["a"]).tokens.tolist() == [[0]]
    assert (tokenizer.unk_id, tokenizer.mask_id, tokenizer.start_id, tokenizer.end_id) == (None, None, None, None)


def test_tokenizer_leaves_environment_alone(tokenizer):
    """Nothing is written to the variables of the process."""
    before = dict(os.environ)
    tokenizer.encode(CAPTIONS * 100)
    assert dict(os.environ) == before
