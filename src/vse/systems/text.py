"""Text towers of the compared systems: a GRU of one direction, and words that are built from characters (LIWE)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vse.encoders.functional import unit_norm
from vse.encoders.text import BiGRUEncoder, check_tokens
from vse.errors import InputError
from vse.pooling import Pooling
from vse.pooling.functional import Lengths, prefix_mask, read_sets, sizes_of

SPECIALS = 5
"""Special tokens of a character tokenizer: ``<pad> <start> <end> <unk> <mask>``."""
START, END = 1, 2


class LastPool(Pooling):
    """Take the last valid element, the final state of a recurrent network. Order matters."""

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        last = sizes_of(features, mask) - 1
        return features.gather(1, last.view(-1, 1, 1).expand(-1, 1, features.shape[2])).squeeze(1)


class GRUEncoder(BiGRUEncoder):
    """``tokens (B, L)`` → embedding → GRU of one direction → pooling, by default the last state → unit norm.

    The text tower of VSE++ and VSRN.
    """

    def __init__(self, vocabulary_size: int, word_size: int, size: int, pooling: Pooling) -> None:
        super().__init__(vocabulary_size, word_size, 1, pooling)
        self.rnn = nn.GRU(word_size, size, batch_first=True)

    def _plain(self, tokens: Tensor, sizes: Tensor) -> Tensor:
        return run_packed(self.rnn, self.embed(tokens), sizes)


def run_packed(rnn: nn.GRU, inputs: Tensor, sizes: Tensor) -> Tensor:
    """Return the states ``(B, L, D)`` of a recurrent network, zero for padding; two directions are averaged."""
    packed = pack_padded_sequence(inputs, sizes.cpu(), batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=inputs.shape[1])
    if not rnn.bidirectional:
        return states
    forward, backward = states.chunk(2, dim=-1)
    return torch.lerp(forward, backward, 0.5)


class NormedLinear(nn.Module):
    """``x · (g v / ‖v‖)ᵀ + b`` row by row: a linear map with weight normalisation."""

    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        plain = nn.Linear(features, size)
        self.direction = nn.Parameter(plain.weight.detach().clone())
        self.scale = nn.Parameter(plain.weight.detach().norm(dim=1, keepdim=True))
        self.bias = nn.Parameter(plain.bias.detach().clone())

    def forward(self, rows: Tensor) -> Tensor:
        weight = self.scale * self.direction / self.direction.norm(dim=1, keepdim=True)
        return nn.functional.linear(rows, weight, self.bias)


class WordsFromCharacters(nn.Module):
    """Map words given as characters ``(R, C)`` to vectors ``(R, W)``.

    The C character embeddings are concatenated and mapped by layers ``leaky(norm(linear(x)))``, linear with weight
    normalisation and a batch norm over words. A shorter word is padded with ``<pad>``, whose embedding is learned too.
    """

    def __init__(
        self, characters: int, character_size: int, longest: int, hidden: Sequence[int], size: int, slope: float
    ) -> None:
        super().__init__()
        self.longest = longest
        self.slope = slope
        self.embed = nn.Embedding(characters, character_size)
        widths = (character_size * longest, *hidden, size)
        pairs = list(pairwise(widths))
        self.linears = nn.ModuleList(NormedLinear(narrow, wide) for narrow, wide in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(wide) for _, wide in pairs)

    def forward(self, characters: Tensor) -> Tensor:
        rows = self.embed(characters).flatten(1)
        for linear, norm in zip(self.linears, self.norms, strict=True):
            rows = nn.functional.leaky_relu(norm(linear(rows)), self.slope)
        return rows


class CharacterEncoder(nn.Module):
    """``tokens (B, L)`` of characters → words → BiGRU, directions averaged → pooling → unit norm ``(B, D)``.

    ``<start>`` and ``<end>`` are words of one character. There is no vocabulary of words: any word that is spelt with
    known characters has an embedding, and an unknown character counts as one character of its word.
    """

    def __init__(
        self,
        vocabulary_size: int,
        size: int,
        pooling: Pooling,
        *,
        character_size: int = 24,
        characters: int = 26,
        hidden_sizes: Sequence[int] = (384, 448),
        word_size: int = 300,
        slope: float = 0.1,
    ) -> None:
        super().__init__()
        if vocabulary_size < SPECIALS + 2 or (vocabulary_size - SPECIALS) % 2:
            raise InputError(
                f"a vocabulary of {vocabulary_size} is not one of characters: expected {SPECIALS} special tokens and "
                "every character twice, at the beginning of a word and inside"
            )
        self.vocabulary_size = vocabulary_size
        self.distinct = (vocabulary_size - SPECIALS) // 2
        self.words = WordsFromCharacters(
            SPECIALS + self.distinct, character_size, characters, hidden_sizes, word_size, slope
        )
        self.rnn = nn.GRU(word_size, size, batch_first=True, bidirectional=True)
        self.pooling = pooling

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:
        states, mask = self.elements(tokens, lengths)
        return unit_norm(self.pooling.pool(states, mask))

    def elements(self, tokens: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the state of each word ``(B, W, D)`` before pooling, zero for padding, and the mask ``(B, W)``."""
        tokens = check_tokens(tokens, self.vocabulary_size)
        weight = self.words.embed.weight
        mask = read_sets(weight.new_empty(1).expand(*tokens.shape, 1), lengths)
        if not len(tokens):
            return weight.new_empty(*tokens.shape, self.rnn.hidden_size), mask
        spelled, counts = self.spell(tokens, sizes_of(tokens.unsqueeze(-1), mask))
        valid = prefix_mask(counts, spelled.shape[1])
        rows = self.words(spelled[valid])  # (words of the batch, W): batch statistics see no padding
        vectors = torch.zeros(*valid.shape, rows.shape[1], dtype=rows.dtype, device=rows.device)
        vectors = vectors.masked_scatter(valid.unsqueeze(-1), rows)
        return run_packed(self.rnn, vectors, counts), None if bool(valid.all()) else valid

    def spell(self, tokens: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the characters of each word ``(B, words, characters)`` and the number of words ``(B,)``.

        A word begins at a character that begins one, at a special token, and after ``<start>``.
        """
        inside = prefix_mask(sizes, tokens.shape[1])
        special = (tokens == START) | (tokens == END)
        begins = special | ((tokens >= SPECIALS) & (tokens < SPECIALS + self.distinct))
        begins[:, 0] = True
        begins[:, 1:] |= special[:, :-1]
        begins &= inside
        word = begins.long().cumsum(1) - 1  # (B, L)
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        first = torch.where(begins, positions, 0).cummax(1).values  # where the word of each character begins
        place = positions - first
        kept = inside & (place < self.words.longest)
        characters = torch.where(tokens >= SPECIALS + self.distinct, tokens - self.distinct, tokens)
        counts = begins.sum(1)
        spelled = tokens.new_zeros(len(tokens), int(counts.max()), self.words.longest)
        rows = torch.arange(len(tokens), device=tokens.device).unsqueeze(1).expand_as(tokens)
        spelled[rows[kept], word[kept], place[kept]] = characters[kept]
        return spelled, counts
