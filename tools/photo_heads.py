"""The last two steps of the photo model: heads on pooled features in large batches, then GPO over cells.

    python tools/photo_heads.py FEATURES MODEL --into runs/photo

FEATURES is what ``tools/photo_features.py`` wrote and MODEL what ``tools/photo_train.py`` left. Both encoders stay as
they are here. While GPO is the average, an image is linear in what is averaged: the mean of its cells and the mean of
their class probabilities. So both are computed once, as are the mean token states of captions, and the heads are
trained on them in batches of 2,048, at a hundredth of the cost of a step over cells. GPO then learns from cells, with
the heads at a small rate.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from photo_train import Data, Settings, Towers, Words, describe, evaluate, tokenize
from vse.encoders.image import ClassWordsProjection
from vse.models import VSEModel
from vse.models.card import save_with_card
from vse.models.storage import load_towers

EPOCHS, BATCH, RATE, DECAY, DROPPED = 12, 2048, 1e-3, 0.02, 0.1
WORDS, WORD_WEIGHT, TEMPERATURE = 384, 0.3, 0.05
FLICKR_CAPTIONS = 3  # of the five of an image: texts are what takes time here
CELL_STEPS, CELL_BATCH, CELL_RATE, GPO_RATE = 36, 192, 1e-4, 2e-3

RECIPE = {
    "joint": "72 steps of 256 pairs: heads, last stage of the backbone, six layers of the sentence encoder",
    "text": "28 steps of 256 pairs: heads, last three layers of the sentence encoder",
    "heads": f"{EPOCHS} epochs of {BATCH} pairs on pooled features, AdamW {RATE}, EMA 0.98",
    "cells": f"{CELL_STEPS} steps of {CELL_BATCH} pairs on cells: GPO at {GPO_RATE}, heads at {CELL_RATE}",
    "loss": f"contrastive, learned temperature from {TEMPERATURE}; single words with weight {WORD_WEIGHT}",
    "seed": 0,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path, metavar="FEATURES")
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--into", type=Path, required=True, metavar="DIR")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = Settings(views=1)
    data, model = Data(options.features, settings), load_towers(options.model).eval()
    data.tokenize(model.tokenizer)
    heads = Heads(data, model, settings, options.into)
    heads.train()
    heads.train_on_cells()
    found = evaluate(heads.towers, data)
    print(json.dumps(found))
    describe(model, RECIPE, found)
    save_with_card(model, options.into / "last")
    return 0


class Heads:
    """What is computed once, and the two steps of training on it."""

    def __init__(self, data: Data, model: VSEModel, settings: Settings, into: Path) -> None:
        self.data, self.model, self.towers = data, model, Towers(model, settings)
        self.image: Any = model.image_encoder
        self.text: Any = model.text_encoder
        for pooling in (self.image.pooling, self.text.pooling):
            pooling.begin_as_average()
        self.random = np.random.default_rng(settings.seed)
        self.words = Words(data, model.tokenizer, settings.seed)
        self.captions: dict[int, list[int]] = {}
        into.mkdir(parents=True, exist_ok=True)
        self.cells, self.classes = self._kept(into / "images.npz", self._images)
        self.states, self.word_states = self._kept(into / "texts.npz", self._texts)
        place = 0
        for row, count in enumerate(self._counts()):
            self.captions[row] = list(range(place, place + count))
            place += count
        self.scale = nn.Parameter(torch.tensor(math.log(1 / TEMPERATURE)))

    def _counts(self) -> list[int]:
        few = self.data.splits == "f8k-train"
        return [min(len(each), FLICKR_CAPTIONS if few[row] else 5) for row, each in enumerate(self.data.captions)]

    @staticmethod
    def _kept(path: Path, compute: Any) -> tuple[Tensor, Tensor]:
        """Two arrays from a file, computed first if it is not there."""
        if not path.exists():
            first, second = compute()
            np.savez(path, first=first, second=second)
        with np.load(path) as found:
            return torch.from_numpy(found["first"]), torch.from_numpy(found["second"])

    @torch.inference_mode()
    def _images(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The mean cell and the mean class probabilities of every image."""
        head: ClassWordsProjection = self.image.projection
        means, classes = [], []
        for rows in np.array_split(np.arange(len(self.data.meta)), len(self.data.meta) // 32):
            cells = self.towers.cells(self.data.maps(rows))
            logits = nn.functional.linear(cells, head.classes_weight, head.classes_bias)
            means.append(cells.mean(1))
            classes.append((logits / head.TEMPERATURE).softmax(-1).mean(1))
        return torch.cat(means).numpy(), torch.cat(classes).numpy()

    @torch.inference_mode()
    def _texts(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The mean token state of every caption, and of every word."""
        chosen = [t for each, count in zip(self.data.tokens, self._counts(), strict=True) for t in each[:count]]
        several = chosen + tokenize(self.model.tokenizer, self.words.names)
        lengths = np.array([len(each) for each in several])
        states = np.empty((len(several), self.text.linear.in_features), np.float32)
        for length in np.unique(lengths):
            same = np.flatnonzero(lengths == length)
            for part in np.array_split(same, math.ceil(len(same) / 96)):
                tokens = torch.from_numpy(np.stack([several[one] for one in part.tolist()]))
                with torch.autocast("cpu", torch.bfloat16, enabled=self.towers.bf16):
                    found = self.text.transformer(input_ids=tokens, attention_mask=torch.ones_like(tokens))
                states[part] = found.last_hidden_state.float().mean(1).numpy()
        return states[: len(chosen)], states[len(chosen) :]

    def _batch_loss(self, images: Tensor, rows: NDArray[np.int64]) -> Tensor:
        """Cross-entropy of both directions against one caption of each image."""
        drawn = [self.captions[row][int(self.random.integers(len(self.captions[row])))] for row in rows.tolist()]
        texts = nn.functional.normalize(self.text.linear(self.states[drawn]), dim=-1)
        logits = images @ texts.T * self.scale.exp().clamp(max=100)
        own = torch.arange(len(rows))
        return (nn.functional.cross_entropy(logits, own) + nn.functional.cross_entropy(logits.T, own)) / 2

    def _word_loss(self, images: Tensor, rows: NDArray[np.int64]) -> Tensor:
        """Images whose captions have a word against the others, for some words of the batch."""
        numbers, target = self.words.choose(rows, WORDS, self.random)
        words = nn.functional.normalize(self.text.linear(self.word_states[numbers]), dim=-1)
        found = (words @ images.T * self.scale.exp().clamp(max=100)).log_softmax(1)
        count = target.sum(1)
        return -((found * target).sum(1) / count + count.log()).mean()

    def _batches(self, size: int) -> list[NDArray[np.int64]]:
        """One pass over COCO and two over Flickr8k, a batch of one of them each."""
        parts: list[NDArray[np.int64]] = []
        for split in ("coco-train", "f8k-train", "f8k-train"):
            rows = self.random.permutation(self.data.rows(split))
            parts += [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]
        return [parts[place] for place in self.random.permutation(len(parts))]

    def train(self) -> None:
        """Heads of both sides on pooled features; their average over the steps is kept."""
        head = self.image.projection
        trained = [*head.fc.parameters(), *head.words.parameters(), *self.text.linear.parameters()]
        groups = [{"params": trained, "weight_decay": DECAY}, {"params": [self.scale], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=RATE, fused=True)
        average = [value.detach().clone() for value in trained]
        total, step = EPOCHS * len(self._batches(BATCH)), 0
        for _ in range(EPOCHS):
            for rows in self._batches(BATCH):
                set_rates(optimizer, RATE * min(1, (step + 1) / 20) * cosine(step / total))
                cells = nn.functional.dropout(self.cells[rows], DROPPED)
                classes = nn.functional.dropout(self.classes[rows], DROPPED)
                images = nn.functional.normalize(head.fc(cells) + head.words(classes), dim=-1)
                loss = self._batch_loss(images, rows) + WORD_WEIGHT * self._word_loss(images, rows)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                decay = min(0.98, (1 + step) / (10 + step))
                with torch.no_grad():
                    for mean, value in zip(average, trained, strict=True):
                        mean.lerp_(value, 1 - decay)
        with torch.no_grad():
            for mean, value in zip(average, trained, strict=True):
                value.copy_(mean)

    def train_on_cells(self) -> None:
        """GPO of images on cells, and the heads at a small rate."""
        head = self.image.projection
        trained = [*head.fc.parameters(), *head.words.parameters(), *self.text.linear.parameters()]
        pooling = list(self.image.pooling.parameters())
        optimizer = torch.optim.AdamW([{"params": trained}, {"params": pooling}], weight_decay=DECAY)
        for step in range(CELL_STEPS):
            split = "coco-train" if self.random.random() < 0.65 else "f8k-train"
            rows = self.random.choice(self.data.rows(split), CELL_BATCH, replace=False)
            kept = torch.from_numpy(self.random.permutation(81)[: round(20 + 61 * self.random.random())])
            with torch.no_grad():
                cells = self.towers.cells(self.data.maps(rows))[:, kept]
            projected = head(cells)
            images = nn.functional.normalize(self.image.pooling.pool(projected, None), dim=-1)
            optimizer.zero_grad()
            self._batch_loss(images, rows).backward()
            factor = min(1, (step + 1) / 5) * cosine(step / CELL_STEPS)
            set_rates(optimizer, CELL_RATE * factor, GPO_RATE * factor)
            optimizer.step()


def cosine(passed: float) -> float:
    """From 1 at the start to 0 at the end."""
    return 0.5 * (1 + math.cos(math.pi * passed))


def set_rates(optimizer: torch.optim.Optimizer, *rates: float) -> None:
    """One learning rate for each group, the last for all further ones."""
    for place, group in enumerate(optimizer.param_groups):
        group["lr"] = rates[min(place, len(rates) - 1)]


if __name__ == "__main__":
    sys.exit(main())
