"""Sentences as the states of a BiGRU: the recurrence by hand, and every token accounted for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.convert.official_style import SIZE, WORD_SIZE, WORDS, bigru_state
from tests.encoders import naive

from vse.encoders import BiGRUEncoder
from vse.errors import InputError
from vse.pooling import GPO

few = settings(max_examples=20)


def encoder(seed: int = 1) -> BiGRUEncoder:
    found = BiGRUEncoder(WORDS, WORD_SIZE, SIZE, GPO())
    state = bigru_state(seed)
    found.load_state_dict({name: state[name.replace("pooling.", "gpool.")] for name in found.state_dict()})
    return found.eval()


@st.composite
def sentences(draw: st.DrawFn) -> list[list[int]]:
    word = st.integers(0, WORDS - 1)
    return draw(st.lists(st.lists(word, min_size=1, max_size=7), min_size=1, max_size=4))


def padded(rows: list[list[int]], fill: int = 0, extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows)) + extra
    return torch.tensor([row + [fill] * (longest - len(row)) for row in rows]), torch.tensor([len(row) for row in rows])


@given(rows=sentences())
@few
def test_bigru_follows_its_definition(rows):
    """Embedding, both GRUs step by step, their mean, GPO over all tokens, unit norm."""
    tokens, lengths = padded(rows)
    expected = torch.stack([naive.bigru(torch.tensor(row), bigru_state()) for row in rows])
    torch.testing.assert_close(encoder()(tokens, lengths=lengths).double(), expected, rtol=0, atol=1e-5)


@given(rows=sentences(), extra=st.integers(0, 5), fill=st.integers(0, WORDS - 1))
@few
def test_bigru_ignores_padding(rows, extra, fill):
    """What stands behind a sentence, and how much of it, is not read: not even by the backward direction."""
    model = encoder()
    tokens, lengths = padded(rows, fill, extra)
    alone = torch.cat([model(torch.tensor([row])) for row in rows])
    torch.testing.assert_close(model(tokens, lengths=lengths), alone, rtol=0, atol=2e-6)


def test_elements_are_the_states_before_pooling():
    """``elements`` gives one state a token, from which the vector is pooled."""
    model = encoder()
    tokens, lengths = padded([[1, 5, 6, 2], [1, 2]])
    states, mask = model.elements(tokens, lengths)
    assert states.shape == (2, 4, SIZE)
    assert mask.tolist() == [[True] * 4, [True, True, False, False]]
    pooled = model.pooling(states, mask=mask)
    torch.testing.assert_close(pooled / pooled.norm(dim=1, keepdim=True), model(tokens, lengths=lengths))


def test_bigru_trains_every_parameter():
    """One backward pass reaches each parameter, and of the embeddings those of the words that occur."""
    model = encoder().train()
    tokens, lengths = padded([[1, 5, 6, 2], [1, 9, 2]], fill=13)
    model(tokens, lengths=lengths).square().mul(torch.arange(SIZE)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name
    trained = model.embed.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert trained == [1, 2, 5, 6, 9]


@pytest.mark.parametrize(
    ("tokens", "lengths", "said"),
    [
        (torch.tensor([[1, WORDS, 2]]), None, f"token id {WORDS} is outside the vocabulary of {WORDS}"),
        (torch.tensor([[1, -1, 2]]), None, "token id -1 is outside"),
        (torch.tensor([[1.0, 2.0]]), None, "must be integers"),
        (torch.tensor([[True, False]]), None, "must be integers"),
        (torch.tensor([1, 2]), None, r"of shape \(B, L\)"),
        (torch.tensor([[1, 2]]), torch.tensor([0]), r"lengths\[0\] is 0"),
        (torch.tensor([[1, 2]]), torch.tensor([3]), r"lengths\[0\] is 3"),
        (torch.tensor([[1, 2]]), torch.tensor([2, 2]), r"shape \(1,\)"),
        (torch.empty(2, 0, dtype=torch.int64), None, "at least one element"),
    ],
)
def test_bigru_refuses_invalid_tokens_and_lengths(tokens, lengths, said):
    """Ids of another vocabulary, other shapes and lengths that lie each get one line."""
    with pytest.raises(InputError, match=said) as caught:
        encoder()(tokens, lengths=lengths)
    assert "\n" not in str(caught.value)


def test_bigru_refuses_invalid_id_in_padding():
    """Padding is looked up like any token, so it must be one."""
    with pytest.raises(InputError, match="token id 99"):
        encoder()(torch.tensor([[1, 2, 99]]), lengths=torch.tensor([2]))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_bigru_accepts_any_integer_type(dtype):
    """Any whole numbers will do."""
    tokens = torch.tensor([[1, 5, 2]])
    torch.testing.assert_close(encoder()(tokens.to(dtype)), encoder()(tokens))


def test_new_word_embeddings_are_small():
    """New word embeddings are uniform within ±0.1."""
    weight = BiGRUEncoder(500, 40, 4, GPO()).embed.weight.detach()
    assert 0.0999 < weight.abs().max() <= 0.1
    assert weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.02)


def test_bigru_of_empty_batch():
    """An empty batch gives an empty batch."""
    assert encoder()(torch.empty(0, 4, dtype=torch.int64)).shape == (0, SIZE)
