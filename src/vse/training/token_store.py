"""All captions of a training set as tokens, tokenized once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vse.inputs.tokenizer import TextTokenizer

CHUNK = 4096


@dataclass(frozen=True, eq=False)
class TokenStore:
    """Caption i is ``tokens[starts[i]:starts[i + 1]]``; ``words`` tells which word of its caption a token belongs to.

    One flat array instead of a padded one: the longest caption of a large set is several times the usual length.
    """

    tokens: NDArray[np.int32]
    words: NDArray[np.int32]
    starts: NDArray[np.int64]

    @classmethod
    def build(cls, captions: Sequence[str], tokenizer: TextTokenizer) -> TokenStore:
        """Tokenize ``captions`` once, chunk by chunk."""
        tokens, words, lengths = [], [], []
        for first in range(0, len(captions), CHUNK):
            batch = tokenizer.encode(captions[first : first + CHUNK], first=first)
            inside = np.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
            tokens.append(batch.tokens[inside].astype(np.int32))
            words.append(batch.words[inside].astype(np.int32))
            lengths.append(batch.lengths)
        starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
        return cls(np.concatenate(tokens), np.concatenate(words), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def caption(self, index: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Tokens and words of one caption, ``(L,)`` each."""
        span = slice(self.starts[index], self.starts[index + 1])
        return self.tokens[span], self.words[span]
