"""Stored feature maps, captions and words that the photo model is trained on; see ``tools/photo_features.py``."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vse.inputs.tokenizer import TextTokenizer

SIDE, CHANNELS = 17, 120
ROW = SIDE * SIDE * CHANNELS * 2  # bytes of one map in float16
Tokens = NDArray[np.int64]
# Words that are no use in a search.
COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on at with and or to is are be being its it his her their by for from as that this "
        "these those there has have having while some two three four five one several many very next near "
        "other another up down out off over under into onto around behind front top side man woman people "
        "person men women who which he she they him them standing sitting holding ",
    )
)
FORMS = ("{}", "a {}", "a photo of a {}")
"""How a word is written as a query."""


class Data:
    """Maps and captions of all images.

    View 0 is the whole image; the others are random crops of the training images.

    Args:
        folder: Output of ``tools/photo_features.py``.
        views: How many views of a training image to use.
    """

    def __init__(self, folder: Path, views: int = 1) -> None:
        self.folder = folder
        self.meta = json.loads((folder / "base.meta.json").read_text("utf-8"))
        self.splits = np.array([each["split"] for each in self.meta])
        self.captions: list[list[str]] = [each["captions"] for each in self.meta]
        self.first_train = int(np.flatnonzero(self.splits == "f8k-train")[0])
        names = ["base.f16", *(f"view{view}.f16" for view in range(1, views))]
        self.files = [os.open(folder / name, os.O_RDONLY) for name in names]
        self.tokens: list[list[Tokens]] = []

    def rows(self, split: str) -> NDArray[np.int64]:
        """Return the numbers of the images of a split."""
        return np.flatnonzero(self.splits == split)

    def train_rows(self) -> NDArray[np.int64]:
        """Return the numbers of all training images."""
        return np.arange(self.first_train, len(self.meta))

    def maps(
        self, rows: NDArray[np.int64], views: NDArray[np.int64] | None = None, mirror: NDArray[np.bool_] | None = None
    ) -> Tensor:
        """Return maps ``(B, 120, 17, 17)``, channels last; ``views`` and ``mirror`` choose for each image."""
        out = np.empty((len(rows), SIDE, SIDE, CHANNELS), np.float16)
        for place, row in enumerate(rows.tolist()):
            view = 0 if views is None else int(views[place])
            number = row if view == 0 else row - self.first_train
            read = np.frombuffer(os.pread(self.files[view], ROW, number * ROW), np.float16).reshape(out.shape[1:])
            out[place] = read[:, ::-1] if mirror is not None and mirror[place] else read
        return torch.from_numpy(out).permute(0, 3, 1, 2)

    def tokenize(self, tokenizer: TextTokenizer) -> None:
        """Tokenize every caption into ``tokens[image][caption]``."""
        ids = iter(tokenize(tokenizer, [caption for each in self.captions for caption in each]))
        self.tokens = [[next(ids) for _ in each] for each in self.captions]


def tokenize(tokenizer: TextTokenizer, sentences: list[str]) -> list[Tokens]:
    """Return the tokens of each sentence, without padding."""
    found: list[Tokens] = []
    for start in range(0, len(sentences), 1000):
        batch = tokenizer.encode(sentences[start : start + 1000])
        found += [row[:length].copy() for row, length in zip(batch.tokens, batch.lengths.tolist(), strict=True)]
    return found


def padded(rows: list[Tokens]) -> tuple[Tensor, Tensor]:
    """Return tokens ``(B, L)`` and lengths ``(B,)``."""
    lengths = np.array([len(row) for row in rows])
    out = np.zeros((len(rows), int(lengths.max())), np.int64)
    for target, row in zip(out, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(out), torch.from_numpy(lengths)


class Words:
    """Words and pairs of words of the training captions, and which image has which.

    Args:
        data: The dataset.
        classes: ``(names, class of each image)``: ImageNet classes that count as words; -1 where none is certain.
        tokenizer: Of the model.
        least: Images that must have a word.
        most: Share of the images that may have it.
    """

    def __init__(
        self,
        data: Data,
        classes: tuple[list[str], NDArray[np.int64]],
        tokenizer: TextTokenizer,
        least: int = 25,
        most: float = 0.08,
    ) -> None:
        train = data.train_rows()
        per_image = {row: words_of(data.captions[row]) for row in train.tolist()}
        counts = Counter(word for words in per_image.values() for word in words)
        self.names = sorted(word for word, n in counts.items() if least <= n <= most * len(train))
        number = {word: place for place, word in enumerate(self.names)}
        self.of = {row: [number[word] for word in words if word in number] for row, words in per_image.items()}
        names, seen = classes
        for row in train.tolist():
            if seen[row] >= 0:
                name = names[int(seen[row])].lower()
                if name not in number:
                    number[name] = len(self.names)
                    self.names.append(name)
                self.of[row].append(number[name])
        self.tokens = [tokenize(tokenizer, [form.format(word) for word in self.names]) for form in FORMS]

    def choose(self, rows: NDArray[np.int64], count: int, random: np.random.Generator) -> tuple[list[int], Tensor]:
        """Return ``count`` words of a batch, and ``(count, B)``: which image has which."""
        members: dict[int, list[int]] = {}
        for place, row in enumerate(rows.tolist()):
            for word in set(self.of[row]):
                members.setdefault(word, []).append(place)
        usable = [word for word, places in sorted(members.items()) if len(places) <= len(rows) // 6]
        chosen = random.choice(usable, size=min(count, len(usable)), replace=False).tolist()
        target = torch.zeros(len(chosen), len(rows))
        for line, word in zip(target, chosen, strict=True):
            line[members[word]] = 1
        return chosen, target

    def draw(self, rows: NDArray[np.int64], count: int, random: np.random.Generator) -> tuple[list[Tokens], Tensor]:
        """Return the same as :meth:`choose`, with the tokens of each word in one of the forms."""
        chosen, target = self.choose(rows, count, random)
        return [self.tokens[int(random.integers(len(FORMS)))][word] for word in chosen], target


def words_of(captions: list[str]) -> set[str]:
    """Return the words and pairs of words that someone may search for."""
    found: set[str] = set()
    for caption in captions:
        words = re.findall(r"[a-z]+", caption.lower())
        found |= {word for word in words if word not in COMMON and len(word) > 2}
        found |= {f"{a} {b}" for a, b in pairwise(words) if a not in COMMON and b not in COMMON}
    return found
