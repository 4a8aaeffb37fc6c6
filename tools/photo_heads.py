"""Train the heads of the photo model on pooled features, in large batches.

    python tools/photo_heads.py FEATURES --into runs/photo-heads

FEATURES is what ``tools/photo_features.py`` wrote. Both encoders keep their weights, published ones or those of
``--start MODEL``. With poolings that average, an image is linear in what is averaged: the mean of its cells and the
mean of their class probabilities. So both are computed once, as are the mean token states of captions, and the heads
are trained on them in batches of 2,048, at a hundredth of the cost of a step over cells.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from photo_data import Data, Words, tokenize
from photo_model import Towers, build, certain_classes, describe, evaluate, pair_loss, word_loss
from vse.models import VSEModel
from vse.models.card import save_with_card
from vse.pooling import GPO

EPOCHS, BATCH, RATE, DECAY, DROPPED = 12, 2048, 1e-3, 0.02, 0.1
WORDS, WORD_WEIGHT, TEMPERATURE, AVERAGE = 384, 0.3, 0.05, 0.98
RECIPE = {"heads": f"{EPOCHS} epochs of {BATCH} pairs on pooled features, AdamW {RATE}, EMA {AVERAGE}", "seed": 0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path, metavar="FEATURES")
    parser.add_argument("--start", type=Path, metavar="MODEL", help="a trained model [default: published weights]")
    parser.add_argument("--into", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pooling", default="gpo", help="of both sides, for a new model [default: gpo]")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if (options.into / "last" / "config.json").exists():
        print(f"{options.into}: done already", file=sys.stderr)
        return 0
    torch.set_num_threads(options.threads)
    data, model = Data(options.features), build(options.start, pooling=options.pooling).eval()
    data.tokenize(model.tokenizer)
    heads = Heads(data, model, options.into)
    print(json.dumps({"start": evaluate(heads.towers, data)}), flush=True)
    heads.train()
    found = evaluate(heads.towers, data)
    print(json.dumps(found), flush=True)
    describe(model, RECIPE, found)
    save_with_card(model, options.into / "last", draw=False)
    return 0


class Heads:
    """What is computed once, and the training on it."""

    def __init__(self, data: Data, model: VSEModel, into: Path) -> None:
        self.data, self.model, self.towers = data, model, Towers(model)
        self.image, self.text = self.towers.image, self.towers.text
        for pooling in (self.image.pooling, self.text.pooling):
            if isinstance(pooling, GPO):
                pooling.begin_as_average()
        self.random = np.random.default_rng(0)
        self.words = Words(data, certain_classes(data), model.tokenizer)
        into.mkdir(parents=True, exist_ok=True)
        self.cells, self.classes = cached(into / "images.npz", self._images)
        self.states, self.word_states = cached(into / "texts.npz", self._texts)
        self.first = np.cumsum([0, *(len(each) for each in data.captions)])  # of an image's captions in ``states``
        self.scale = nn.Parameter(torch.tensor(math.log(1 / TEMPERATURE)))

    @torch.inference_mode()
    def _images(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the mean cell and the mean class probabilities of every image."""
        head = self.image.projection
        means, classes = [], []
        for rows in np.array_split(np.arange(len(self.data.meta)), len(self.data.meta) // 32):
            cells = self.towers.cells(self.data.maps(rows))
            logits = nn.functional.linear(cells, head.classes_weight, head.classes_bias)
            means.append(cells.mean(1))
            classes.append((logits / head.TEMPERATURE).softmax(-1).mean(1))
        return torch.cat(means).numpy(), torch.cat(classes).numpy()

    @torch.inference_mode()
    def _texts(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the mean token state of every caption, and of every word."""
        captions = [tokens for each in self.data.tokens for tokens in each]
        several = captions + tokenize(self.model.tokenizer, self.words.names)
        lengths = np.array([len(each) for each in several])
        states = np.empty((len(several), self.text.linear.in_features), np.float32)
        for length in np.unique(lengths):
            same = np.flatnonzero(lengths == length)
            for part in np.array_split(same, math.ceil(len(same) / 96)):
                tokens = torch.from_numpy(np.stack([several[one] for one in part.tolist()]))
                with torch.autocast("cpu", torch.bfloat16):
                    found = self.text.transformer(input_ids=tokens, attention_mask=torch.ones_like(tokens))
                states[part] = found.last_hidden_state.float().mean(1).numpy()
        return states[: len(captions)], states[len(captions) :]

    def _loss(self, rows: NDArray[np.int64]) -> Tensor:
        head, scale = self.image.projection, self.scale.exp().clamp(max=100)
        cells = nn.functional.dropout(self.cells[rows], DROPPED)
        classes = nn.functional.dropout(self.classes[rows], DROPPED)
        images = nn.functional.normalize(head.fc(cells) + head.words(classes), dim=-1)
        drawn = self.first[rows] + self.random.integers(self.first[rows + 1] - self.first[rows])
        texts = nn.functional.normalize(self.text.linear(self.states[drawn]), dim=-1)
        numbers, target = self.words.choose(rows, WORDS, self.random)
        words = nn.functional.normalize(self.text.linear(self.word_states[numbers]), dim=-1)
        return pair_loss(images, texts, rows, scale) + WORD_WEIGHT * word_loss(images, words, target, scale)

    def _batches(self) -> list[NDArray[np.int64]]:
        """Return one pass over COCO and two over Flickr8k, in batches of one dataset each."""
        parts: list[NDArray[np.int64]] = []
        for split in ("coco-train", "f8k-train", "f8k-train"):
            rows = self.random.permutation(self.data.rows(split))
            parts += [rows[start : start + BATCH] for start in range(0, len(rows) - BATCH + 1, BATCH)]
        return [parts[place] for place in self.random.permutation(len(parts))]

    def train(self) -> None:
        """Train the heads of both sides; their average over the steps is the result."""
        head = self.image.projection
        trained = [*head.fc.parameters(), *head.words.parameters(), *self.text.linear.parameters()]
        groups = [{"params": trained, "weight_decay": DECAY}, {"params": [self.scale], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=RATE, fused=True)
        average = [value.detach().clone() for value in trained]
        total, step = EPOCHS * len(self._batches()), 0
        for _ in range(EPOCHS):
            for rows in self._batches():
                for group in optimizer.param_groups:
                    group["lr"] = RATE * min(1, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / total))
                optimizer.zero_grad()
                self._loss(rows).backward()
                optimizer.step()
                step += 1
                decay = min(AVERAGE, (1 + step) / (10 + step))
                with torch.no_grad():
                    for mean, value in zip(average, trained, strict=True):
                        mean.lerp_(value, 1 - decay)
        with torch.no_grad():
            for mean, value in zip(average, trained, strict=True):
                value.copy_(mean)


def cached(path: Path, compute: Callable[[], tuple[Any, Any]]) -> tuple[Tensor, Tensor]:
    """Return two arrays from a file, computed first if it is not there."""
    if not path.exists():
        first, second = compute()
        with path.with_suffix(".new").open("wb") as file:
            np.savez(file, first=first, second=second)
        path.with_suffix(".new").replace(path)
    with np.load(path) as found:
        return torch.from_numpy(found["first"]), torch.from_numpy(found["second"])


if __name__ == "__main__":
    sys.exit(main())
