"""Captions tokenized once are the tokens that the tokenizer gives one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support_models import word_tokenizer, write_wordpieces

from vse.errors import InputError
from vse.inputs import TextTokenizer
from vse.training import batches as token_store
from vse.training.batches import TokenStore

WORDS = st.sampled_from(["a", "dog", "dogs", "snow", "unheard", "runs", "."])
CAPTIONS = st.lists(st.lists(WORDS, min_size=1, max_size=25).map(" ".join), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    pieces = TextTokenizer.from_pretrained(write_wordpieces(tmp_path_factory.mktemp("pieces")))
    return {"words": word_tokenizer(), "subwords": pieces}


@pytest.mark.parametrize("kind", ["words", "subwords"])
@given(captions=CAPTIONS, chunk=st.integers(1, 5))
def test_every_caption_comes_back(tokenizers, kind, captions, chunk):
    """Caption i has the tokens and words of a call for it alone, without padding, whatever the chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_store, "CHUNK", chunk)
        store = TokenStore.build(captions, tokenizers[kind])
    assert len(store) == len(captions)
    for index, caption in enumerate(captions):
        alone = tokenizers[kind].encode([caption])
        tokens, words = store.caption(index)
        np.testing.assert_array_equal(tokens, alone.tokens[0])
        np.testing.assert_array_equal(words, alone.words[0])
        assert tokens.dtype == words.dtype == np.int32
    assert store.starts[-1] == len(store.tokens) == len(store.words)


def test_a_caption_without_words_is_named_by_its_number(tokenizers, monkeypatch):
    """The number is that of the caption in the whole set, not in its chunk."""
    monkeypatch.setattr(token_store, "CHUNK", 2)
    with pytest.raises(InputError, match="text 4 is empty"):
        TokenStore.build(["a", "dog", "a", "dog", " "], tokenizers["words"])
