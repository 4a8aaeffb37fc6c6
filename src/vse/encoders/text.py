"""Encode texts given as word ids: embedding, bidirectional GRU, pooling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vse._util.plugins import Registry
from vse.encoders.functional import unit_norm
from vse.encoders.prefix_bigru import prefix_states
from vse.errors import InputError, PluginError, unknown_choice
from vse.pooling import Pooling
from vse.pooling.functional import Lengths, compiled, prefix_mask, read_sets, sizes_of, usable_on


def check_tokens(tokens: Tensor, vocabulary_size: int) -> Tensor:
    """Return the tokens as int64; reject ids outside 0 to ``vocabulary_size - 1``."""
    if tokens.dim() != 2 or tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise InputError(f"tokens must be integers of shape (B, L), got {tokens.dtype} of {tuple(tokens.shape)}")
    tokens = tokens.long()
    if compiled() or not tokens.numel():
        return tokens
    smallest, largest = (int(bound) for bound in tokens.aminmax())
    if smallest < 0 or largest >= vocabulary_size:
        bad = smallest if smallest < 0 else largest
        raise InputError(
            f"token id {bad} is outside the vocabulary of {vocabulary_size}: was the text tokenized for another model?"
        )
    return tokens


EMBEDDING_RANGE = 0.1
DIRECTIONS = ("", "_reverse")


class BiGRUEncoder(nn.Module):
    """``tokens (B, L)`` → embedding → BiGRU, directions averaged → pooling over all tokens → unit norm ``(B, D)``.

    ``<start>`` and ``<end>`` are ordinary tokens, counted by ``lengths (B,)``; the rest is padding. The recurrence is
    :mod:`vse.encoders.prefix_bigru` on a CPU where the kernels load; elsewhere, and in traced graphs, it is torch's.
    Both use the parameters of ``rnn``.
    """

    def __init__(self, vocabulary_size: int, word_size: int, size: int, pooling: Pooling) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary_size, word_size)
        nn.init.uniform_(self.embed.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        self.rnn = nn.GRU(word_size, size, batch_first=True, bidirectional=True)
        self.pooling = pooling

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:
        states, mask = self.elements(tokens, lengths)
        return unit_norm(self.pooling.pool(states, mask))

    def elements(self, tokens: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the state of each token ``(B, L, D)`` before pooling, zero for padding, and the mask."""
        tokens = check_tokens(tokens, self.embed.num_embeddings)
        mask = read_sets(self.embed.weight.new_empty(1).expand(*tokens.shape, 1), lengths)
        if not len(tokens):  # no sentences: nothing that torch would pack
            return self.embed.weight.new_empty(*tokens.shape, self.rnn.hidden_size), mask
        sizes = sizes_of(tokens.unsqueeze(-1), mask)
        return self._by_prefix(tokens, sizes) if self._shares_prefixes(tokens) else self._plain(tokens, sizes), mask

    def _plain(self, tokens: Tensor, sizes: Tensor) -> Tensor:
        packed = pack_padded_sequence(self._embedded(tokens), sizes.cpu(), batch_first=True, enforce_sorted=False)
        both, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=tokens.shape[1])
        forward, backward = both.chunk(2, dim=-1)
        return torch.lerp(forward, backward, 0.5)  # (B, L, D)

    def _by_prefix(self, tokens: Tensor, sizes: Tensor) -> Tensor:
        valid = prefix_mask(sizes, tokens.shape[1])
        embedded, which = self._distinct(tokens[valid])  # (V, W)
        words = tokens.masked_scatter(valid, which)  # (B, L)
        projected = [nn.functional.linear(embedded, *self._weights("ih", direction)) for direction in DIRECTIONS]
        recurrent = [tensor for direction in DIRECTIONS for tensor in self._weights("hh", direction)]
        return prefix_states(projected, words, sizes, recurrent)

    def _embedded(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of tokens, which a subclass may change."""
        embedded: Tensor = self.embed(tokens)
        return embedded

    def _distinct(self, given: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings ``(V, W)`` and the row of each token ``(n,)``: words repeat, each is projected once."""
        distinct, which = given.unique(return_inverse=True)
        return self._embedded(distinct), which

    def _shares_prefixes(self, tokens: Tensor) -> bool:
        """Return whether the prefix recurrence is usable: kernels run and modules have no hooks or replacements."""
        if compiled() or torch.is_autocast_enabled(tokens.device.type):
            return False
        if not (_untouched(self.embed, nn.Embedding) and _untouched(self.rnn, nn.GRU)):
            return False
        if (self.rnn.num_layers, self.rnn.bidirectional, self.rnn.bias) != (1, True, True):
            return False
        weights = [
            weight for direction in DIRECTIONS for kind in ("ih", "hh") for weight in self._weights(kind, direction)
        ]
        return usable_on(self.embed.weight, *weights)

    def _weights(self, kind: str, direction: str) -> tuple[Tensor, Tensor]:
        weight, bias = (getattr(self.rnn, f"{name}_{kind}_l0{direction}") for name in ("weight", "bias"))
        return cast(Tensor, weight), cast(Tensor, bias)


def _untouched(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether calling the module does only what its class does; pruning, for example, uses hooks."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return type(module) is kind and not any(hooks)


class WordStates(nn.Module):
    """``tokens (B, L)`` → embedding → dropout → BiGRU, directions averaged: states ``(B, L, D)`` and their mask.

    Embeddings are initialised from ``U(±1/√W)``, GRU weights orthogonally, biases to zero. On a CPU where the kernels
    load, the recurrence is :mod:`vse.encoders.prefix_bigru` with the parameters of ``rnn``.
    """

    def __init__(self, vocabulary_size: int, word_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary_size, word_size)
        nn.init.uniform_(self.embed.weight, -(word_size**-0.5), word_size**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.rnn = nn.GRU(word_size, size, batch_first=True, bidirectional=True)
        for parameter in self.rnn.parameters():
            if parameter.dim() == 2:
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the states, zero for padding, and their mask ``(B, L)``; the mask is None if no sentence is padded."""
        tokens = check_tokens(tokens, self.embed.num_embeddings)
        mask = read_sets(self.embed.weight.new_empty(1).expand(*tokens.shape, 1), lengths)
        if not len(tokens):  # no sentences: nothing that torch would pack
            return self.embed.weight.new_empty(*tokens.shape, self.rnn.hidden_size), mask
        sizes = sizes_of(tokens.unsqueeze(-1), mask)
        embedded, words = self._embedded(tokens, sizes)
        weights = [self._weights("hh", direction) for direction in DIRECTIONS]
        recurrent = [tensor for pair in weights for tensor in pair]
        if not self._compilable(embedded, *recurrent):
            return self._plain(embedded[words], sizes), mask
        projected = [nn.functional.linear(embedded, *self._weights("ih", direction)) for direction in DIRECTIONS]
        return prefix_states(projected, words, sizes, recurrent), mask

    def _embedded(self, tokens: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Return word embeddings ``(K, W)`` and the row of each word ``(B, L)``.

        Equal words share a row, unless dropout makes them differ.
        """
        valid = prefix_mask(sizes, tokens.shape[1])
        given = tokens[valid]
        if self.training and self.dropout.p:
            distinct, which = given, torch.arange(len(given), device=given.device)
        else:
            distinct, which = given.unique(return_inverse=True)
        return self.dropout(self.embed(distinct)), torch.zeros_like(tokens).masked_scatter(valid, which)

    def _plain(self, inputs: Tensor, sizes: Tensor) -> Tensor:
        packed = pack_padded_sequence(inputs, sizes.cpu(), batch_first=True, enforce_sorted=False)
        both, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=inputs.shape[1])
        forward, backward = both.chunk(2, dim=-1)
        return torch.lerp(forward, backward, 0.5)  # (B, L, D)

    def _compilable(self, *tensors: Tensor) -> bool:
        return not (compiled() or torch.is_autocast_enabled(tensors[0].device.type)) and usable_on(*tensors)

    def _weights(self, kind: str, direction: str) -> tuple[Tensor, Tensor]:
        weight, bias = (getattr(self.rnn, f"{name}_{kind}_l0{direction}") for name in ("weight", "bias"))
        return cast(Tensor, weight), cast(Tensor, bias)


class WordEncoder(WordStates):
    """``tokens (B, L)`` → :class:`~vse.encoders.text.WordStates` → pooling → unit norm ``(B, D)``.

    Unlike :class:`~vse.encoders.text.BiGRUEncoder`, it has dropout on the words and another initialisation; at
    inference both compute the same.
    """

    def __init__(self, vocabulary_size: int, word_size: int, size: int, pooling: Pooling, dropout: float) -> None:
        super().__init__(vocabulary_size, word_size, size, dropout)
        self.pooling = pooling

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:  # type: ignore[override]  # pooled
        states, mask = self.elements(tokens, lengths)
        return unit_norm(self.pooling.pool(states, mask))

    def elements(self, tokens: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the state of each word ``(B, L, D)`` before pooling, zero for padding, and the mask."""
        return super().forward(tokens, lengths)


ENCODERS: Registry[Callable[..., nn.Module]] = Registry("vse.encoders")


def known_encoder(name: str) -> str:
    """Return the name of a plugin's text encoder; reject others."""
    if name not in ENCODERS:
        listed = unknown_choice("text encoder", name, ENCODERS) if ENCODERS else f"unknown text encoder {name!r}"
        raise InputError(f"{listed}; a distribution registers it in the entry point group vse.encoders")
    return name


class PluginTextEncoder(nn.Module):
    """``tokens (B, L)`` → states of a plugin's network ``(B, L, D)`` → pooling → unit norm ``(B, D)``.

    The plugin is called as ``make(vocabulary_size=V, size=D, **options)``, and its module as ``network(tokens,
    lengths)`` with the number of valid tokens of each text ``(B,)``; its states of padding are not used.
    """

    def __init__(
        self, name: str, vocabulary_size: int, size: int, pooling: Pooling, options: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.name, self.vocabulary_size, self.size = known_encoder(name), vocabulary_size, size
        network = ENCODERS.call(name, vocabulary_size=vocabulary_size, size=size, **options)
        if not isinstance(network, nn.Module):
            raise PluginError(f"{ENCODERS.origin(name)}: expected a torch module, got {type(network).__name__}")
        self.network, self.pooling = network, pooling

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:
        states, mask = self.elements(tokens, lengths)
        return unit_norm(self.pooling.pool(states, mask))

    def elements(self, tokens: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the states before pooling ``(B, L, D)``, and the mask."""
        tokens = check_tokens(tokens, self.vocabulary_size)
        mask = read_sets(tokens.new_empty(1, dtype=torch.float32).expand(*tokens.shape, 1), lengths)
        states: Tensor = self.network(tokens, sizes_of(tokens.unsqueeze(-1), mask))
        if states.shape != (*tokens.shape, self.size):
            expected, found = (*tokens.shape, self.size), tuple(states.shape)
            raise PluginError(f"{ENCODERS.origin(self.name)}: expected states of shape {expected}, got {found}")
        return states, mask
