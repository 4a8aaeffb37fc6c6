"""The compiled recurrence of the BiGRU encoder against torch's, its gradients, and what it must leave to torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vse.encoders import BiGRUEncoder
from vse.encoders.prefix_bigru import plain_states, prefix_states
from vse.pooling import GPO
from vse.pooling.kernels import runtime

pytest.importorskip("numba")
WORDS, WORD_SIZE, SIZE = 11, 5, 8


def encoder(size: int = SIZE, dtype: torch.dtype = torch.float64) -> BiGRUEncoder:
    torch.manual_seed(0)
    return BiGRUEncoder(WORDS, WORD_SIZE, size, GPO()).to(dtype)


def torch_states(model: BiGRUEncoder, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Through ``nn.GRU`` as everybody does."""
    packed = pack_padded_sequence(model.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
    both, _ = pad_packed_sequence(model.rnn(packed)[0], batch_first=True, total_length=tokens.shape[1])
    ahead, back = both.chunk(2, dim=-1)
    return (ahead + back) / 2


def with_gradients(model: BiGRUEncoder, states: Tensor) -> list[Tensor]:
    """The states and, of a sum that weights all of them differently, the gradients of the embeddings and the GRU."""
    parameters = [model.embed.weight, *model.rnn.parameters()]
    weights = torch.linspace(-1, 1, states.numel(), dtype=states.dtype).view_as(states)
    return [states.detach(), *torch.autograd.grad((states * weights).sum(), parameters)]


def drawn(batch: int, longest: int, padding: int = 0, seed: int = 1, words: int = WORDS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (batch,), generator=generator)
    return torch.randint(0, words, (batch, longest + padding), generator=generator), lengths


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    padding=st.integers(0, 3),
    seed=st.integers(0, 1000),
    words=st.sampled_from([1, 2, 3, WORDS]),
)
@settings(max_examples=50)
def test_states_and_gradients_are_those_of_torch(lengths, padding, seed, words):
    """Forward and for every parameter, to 1e-10 in float64, whatever the lengths and however much sentences share."""
    model = encoder()
    tokens = drawn(len(lengths), max(lengths), padding, seed, words)[0]
    found = with_gradients(model, model.elements(tokens, lengths)[0])
    expected = with_gradients(model, torch_states(model, tokens, torch.tensor(lengths)))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batch", [130, 60])
def test_large_batches_in_single_precision(batch):
    """Many rows, few rows and several threads give what torch gives, to float32's rounding."""
    model = encoder(320, torch.float32)
    tokens, lengths = drawn(batch, 12, padding=1)
    found = with_gradients(model, model.elements(tokens, lengths)[0])
    expected = with_gradients(model, torch_states(model, tokens, lengths))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_prefix_bigru_is_deterministic():
    """Whichever thread is faster: states and gradients are bit-identical, so that training can be resumed."""
    model = encoder(320, torch.float32)
    tokens, lengths = drawn(130, 12)
    first = with_gradients(model, model.elements(tokens, lengths)[0])
    for _ in range(5):
        for again, expected in zip(with_gradients(model, model.elements(tokens, lengths)[0]), first, strict=True):
            assert torch.equal(again, expected)


def test_inference_gives_the_states_of_training():
    """Without gradients nothing is kept, and the states are the same to the last bit."""
    model = encoder(40, torch.float32)
    tokens, lengths = drawn(9, 7)
    with torch.no_grad():
        found = model.elements(tokens, lengths)[0]
    assert torch.equal(found, model.elements(tokens, lengths)[0].detach())


def test_prefix_bigru_ignores_tokens_after_the_end():
    """States past a sentence's end are zero, and gradients that arrive there change nothing."""
    model = encoder()
    tokens, lengths = drawn(6, 7, padding=2)
    states, mask = model.elements(tokens, lengths)
    assert states[~mask].abs().max() == 0
    quiet = torch.autograd.grad(states[mask].sum(), model.rnn.weight_hh_l0, retain_graph=True)[0]
    loud = torch.autograd.grad(
        states.masked_fill(~mask.unsqueeze(-1), 7.0).sum() + 1e6 * states[~mask].sum(), model.rnn.weight_hh_l0
    )[0]
    torch.testing.assert_close(loud, quiet)


def test_prefix_bigru_supports_retained_graphs():
    """A second backward pass over a retained graph gives the same gradients."""
    model = encoder()
    loss = model(*drawn(4, 5)).square().mul(torch.arange(SIZE)).sum()
    first, second = (torch.autograd.grad(loss, list(model.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_prefix_bigru_has_second_derivatives():
    """Gradients of gradients are right: they go through the definition in torch operators."""
    torch.manual_seed(0)
    tokens, lengths = drawn(3, 3)
    shapes = [(WORDS, 6), (WORDS, 6), (6, 2), (6,), (6, 2), (6,)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def states(*tensors: Tensor) -> Tensor:
        return prefix_states(list(tensors[:2]), tokens, lengths, list(tensors[2:]))

    torch.testing.assert_close(states(*inputs), plain_states(inputs[:2], tokens, lengths, inputs[2:]))
    assert torch.autograd.gradcheck(states, inputs)
    assert torch.autograd.gradgradcheck(states, inputs)


def test_frozen_parts_get_no_gradient():
    """What does not require gradients gets none, and the others get theirs."""
    model = encoder()
    tokens, lengths = drawn(5, 6)
    expected = with_gradients(model, model.elements(tokens, lengths)[0])[1]
    model.rnn.requires_grad_(False)
    states = model.elements(tokens, lengths)[0]
    weights = torch.linspace(-1, 1, states.numel(), dtype=states.dtype).view_as(states)
    (states * weights).sum().backward()
    torch.testing.assert_close(model.embed.weight.grad, expected)
    assert all(parameter.grad is None for parameter in model.rnn.parameters())


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def hooked(model: BiGRUEncoder) -> None:
    model.rnn.register_forward_hook(lambda module, inputs, output: (output[0]._replace(data=2 * output[0].data), None))


def hooked_words(model: BiGRUEncoder) -> None:
    model.embed.register_forward_hook(lambda module, inputs, output: 2 * output)


def pruned(model: BiGRUEncoder) -> None:
    prune.random_unstructured(model.rnn, "weight_hh_l0", amount=0.5)


def parametrised(model: BiGRUEncoder) -> None:
    parametrize.register_parametrization(model.rnn, "weight_hh_l0", Doubled())


@pytest.mark.parametrize("change", [hooked, hooked_words, pruned, parametrised])
def test_hooked_modules_bypass_prefix_bigru(change):
    """Hooks, pruning and parametrisations of ``embed`` and ``rnn`` have their effect."""
    model = encoder()
    tokens, lengths = drawn(5, 6)
    before = model.elements(tokens, lengths)[0]
    change(model)
    found = model.elements(tokens, lengths)[0]
    torch.testing.assert_close(found, torch_states(model, tokens, lengths))
    assert (found - before).abs().max() > 1e-3


def test_bigru_falls_back_to_torch_without_kernels(monkeypatch):
    """Where numba is absent, the same states come from ``nn.GRU``."""
    model = encoder()
    tokens, lengths = drawn(5, 6)
    expected = model.elements(tokens, lengths)[0]
    monkeypatch.setattr(runtime, "_available", False)
    torch.testing.assert_close(model.elements(tokens, lengths)[0], expected)


def test_prefix_bigru_follows_autocast():
    """Under autocast the states have the precision that was asked for."""
    model = encoder(dtype=torch.float32)
    tokens, lengths = drawn(5, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model.elements(tokens, lengths)[0]
    torch.testing.assert_close(found.float(), model.elements(tokens, lengths)[0], rtol=0, atol=0.02)


@pytest.mark.slow
def test_recorded_bigru_graph_uses_torch():
    """Under ``torch.compile`` the vectors and gradients are those of eager mode."""
    model = encoder()
    tokens, lengths = drawn(5, 6)
    weights = torch.linspace(-1, 1, SIZE, dtype=torch.float64)
    eager = torch.autograd.grad((model(tokens, lengths) * weights).sum(), list(model.parameters()))
    recorded = torch.compile(model, backend="eager")
    found = torch.autograd.grad((recorded(tokens, lengths) * weights).sum(), list(model.parameters()))
    for ours, theirs in zip(found, eager, strict=True):
        torch.testing.assert_close(ours, theirs)
