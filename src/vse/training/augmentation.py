"""Size augmentation in training: which elements of an image are kept, and how the tokens of a caption change.

All functions depend on their generator alone and keep at least one element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from vse.inputs.tokenizer import TextTokenizer

Style = Literal["none", "drop", "released"]
Kept = NDArray[np.bool_]
Tokens = NDArray[np.int32]

# Of the tokens that the released code changes, this share is masked and the share up to the next bound exchanged.
MASKED = 0.5
EXCHANGED = 0.6


def keep_elements(count: int, rate: float, generator: Generator) -> Kept:
    """Return which of ``count`` elements to keep, each with probability ``1 - rate``; a random one if none is left."""
    draw = generator.random(count)
    kept = draw >= rate
    if not kept.any():
        kept[draw.argmax()] = True
    return kept


def keep_cells_as_released(count: int, rate: float, generator: Generator) -> Kept:
    """Keep grid cells as the released code does: r ~ U(0, 1); all if r ≤ rate, else drop each with ``rate · r``."""
    chosen = generator.random()
    return keep_elements(count, 0.0 if chosen <= rate else rate * chosen, generator)


def image_elements(style: Style, grid: bool) -> Callable[[int, float, Generator], Kept] | None:
    """Return the rule for images; None keeps all elements."""
    if style == "none":
        return None
    return keep_cells_as_released if style == "released" and grid else keep_elements


class TextAugmentation:
    """Augment the tokens of one caption.

    ``drop`` deletes the chosen tokens; ``released`` masks half of them, replaces a tenth by random ones and deletes
    the rest. With tokenizers of whole words every token may be chosen, start and end included; with subwords all pieces
    of a word are treated alike, and [CLS] and [SEP] stay. A random word is no special token, unless ``special_words``.
    """

    def __init__(self, style: Style, rate: float, tokenizer: TextTokenizer, *, special_words: bool = False) -> None:
        self.style = style
        self.rate = rate if style != "none" else 0.0
        self._whole = tokenizer.kind == "subwords"
        special = {tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id, tokenizer.start_id, tokenizer.end_id}
        self._mask_id = tokenizer.mask_id
        left_out = set() if special_words else special
        self._ordinary = np.array([n for n in range(tokenizer.vocab_size) if n not in left_out], dtype=np.int32)

    def __call__(self, tokens: Tokens, words: Tokens, generator: Generator) -> Tokens:
        if self.rate == 0:
            return tokens
        units = words if self._whole else np.arange(len(tokens), dtype=np.int32)
        count = int(units.max(initial=-1)) + 1
        if count == 0:
            return tokens
        draw = generator.random(count) / self.rate  # below 1: chosen, and uniform again
        exchanged = generator.integers(len(self._ordinary), size=len(tokens)) if self.style == "released" else None
        fate = np.where(units >= 0, draw[units], 1.0)
        if exchanged is None:
            return self._at_least_one(tokens, fate >= 1, draw, units)
        changed = tokens.copy()
        masked = fate < MASKED
        if self._mask_id is None:
            exchanged_too = fate < EXCHANGED
        else:
            changed[masked] = self._mask_id
            exchanged_too = ~masked & (fate < EXCHANGED)
        changed[exchanged_too] = self._ordinary[exchanged[exchanged_too]]
        return self._at_least_one(changed, (fate >= 1) | (fate < EXCHANGED), draw, units)

    @staticmethod
    def _at_least_one(tokens: Tokens, kept: Kept, draw: NDArray[np.float64], units: Tokens) -> Tokens:
        if not (kept & (units >= 0)).any():
            kept = kept | (units == draw.argmax())
        return tokens[kept]
