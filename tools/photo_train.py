"""Fine-tune the photo model on stored feature maps: heads, poolings, sentence encoder, last stages of the backbone.

    python tools/photo_train.py FEATURES --start runs/photo-heads/last --into runs/photo --set epochs=8

FEATURES is what ``tools/photo_features.py`` wrote: the maps that the first five stages of EfficientNet-Lite2 compute,
17 × 17 cells of 120 channels. Those stages cost most of the time and are not trained, so that the rest can be trained
on a CPU. The loss has two parts:

- cross-entropy over the batch in both directions, with a learned temperature. A batch holds images of one dataset,
  whose captions are harder to tell apart than those of two;
- single words: the images whose captions contain a word, or whose ImageNet class has that name, against the other
  images of the batch. People search with one or two words, and captions are sentences.

The weights are averaged over the steps (EMA), and the average is what is evaluated and saved. An interrupted run
resumes from its last checkpoint when the same command is given again.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from photo_data import Data, Words
from photo_model import FIRST, Towers, build, certain_classes, describe, evaluate, pair_loss, word_loss
from vse.models.card import save_with_card
from vse.models.storage import read_weights

CELLS = 81


@dataclass(frozen=True)
class Settings:
    """Settings of a run. The ``_factor`` of a part multiplies ``lr``."""

    epochs: float = 8.0
    batch: int = 512
    lr: float = 5e-4
    text_factor: float = 0.1
    backbone_factor: float = 0.4
    pooling_factor: float = 4.0
    weight_decay: float = 0.02
    warmup: int = 40
    temperature: float = 0.05
    least_cells: int = 24
    views: int = 3
    flickr: int = 2
    words: int = 64
    word_weight: float = 0.3
    average: float = 0.99
    pooling: str = "gpo"
    seed: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path, metavar="FEATURES")
    parser.add_argument("--start", type=Path, metavar="MODEL", help="a trained model [default: published weights]")
    parser.add_argument("--into", type=Path, required=True, metavar="DIR")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one of the settings")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = read_settings(options.set)
    Trainer(Data(options.features, settings.views), settings, options.start, options.into).run()
    return 0


def read_settings(given: list[str]) -> Settings:
    """Return the defaults with what was given as KEY=VALUE."""
    kinds = {field.name: type(field.default) for field in fields(Settings)}
    changed: dict[str, Any] = {}
    for each in given:
        key, _, value = each.partition("=")
        if key not in kinds:
            raise SystemExit(f"--set {key}: expected one of {', '.join(kinds)}")
        changed[key] = kinds[key](value)
    return replace(Settings(), **changed)


class Trainer:
    """The loop: batches, loss, EMA, checkpoints."""

    def __init__(self, data: Data, settings: Settings, start: Path | None, into: Path) -> None:
        self.data, self.settings, self.into = data, settings, into
        into.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(settings.seed)
        self.model = build(start, pooling=settings.pooling, seed=settings.seed)
        self.towers = Towers(self.model)
        self.towers.fold_norms()
        data.tokenize(self.model.tokenizer)
        self.words = Words(data, certain_classes(data), self.model.tokenizer)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / settings.temperature)))
        self.groups = self._groups()
        self.trained = [value for group in self.groups for value in group["params"]]
        self.optimizer = torch.optim.AdamW(self.groups, lr=settings.lr, fused=True)
        self.step = 0
        self.average = {
            name: value.detach().clone() for name, value in self.model.named_parameters() if value.requires_grad
        }

    def _factor(self, name: str) -> float:
        """Return the learning rate of a parameter, relative to ``lr``; 0 for a frozen one."""
        backbone, transformer = "image_encoder.backbone.model.", "text_encoder.transformer."
        stages = tuple(f"{backbone}{part}" for part in (*(f"blocks.{n}." for n in range(FIRST, 7)), "conv_head", "bn2"))
        if name.startswith(backbone):
            scale = re.search(r"bn\d\.weight$", name)  # folded into the convolution
            return self.settings.backbone_factor if name.startswith(stages) and not scale else 0.0
        if name.startswith(transformer):  # the embeddings of words stay: most words are rare
            return self.settings.text_factor if re.search(r"layer\.\d+\.", name) else 0.0
        return self.settings.pooling_factor if ".pooling." in name else 1.0

    def _groups(self) -> list[dict[str, Any]]:
        s = self.settings
        sort: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, value in self.model.named_parameters():
            factor = self._factor(name)
            value.requires_grad_(factor > 0)
            if factor > 0:
                sort.setdefault((factor, s.weight_decay if value.dim() > 1 else 0.0), []).append(value)
        groups = [{"params": v, "full": s.lr * f, "weight_decay": d} for (f, d), v in sort.items()]
        return [*groups, {"params": [self.scale], "full": s.lr, "weight_decay": 0.0}]

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the images of each batch of an epoch, those of one dataset together."""
        random = np.random.default_rng([self.settings.seed, epoch])
        size = self.settings.batch
        parts: list[NDArray[np.int64]] = []
        for split, times in (("coco-train", 1), ("f8k-train", self.settings.flickr)):
            for _ in range(times):
                rows = random.permutation(self.data.rows(split))
                parts += [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]
        return [parts[place] for place in random.permutation(len(parts))]

    def prepared(self, epoch: int, number: int, rows: NDArray[np.int64]) -> tuple[Any, ...]:
        """Return what a step needs; the same for the same seed, epoch and number."""
        random = np.random.default_rng([self.settings.seed, epoch, number])
        views = random.integers(len(self.data.files), size=len(rows))
        maps = self.data.maps(rows, views, random.random(len(rows)) < 0.5)
        captions = [self.data.tokens[row][int(random.integers(len(self.data.tokens[row])))] for row in rows.tolist()]
        least = self.settings.least_cells
        count = round(least + (CELLS - least) * random.random())  # size augmentation
        keep = torch.from_numpy(random.random((len(rows), CELLS)).argsort(1)[:, :count].copy())
        return rows, maps, captions, keep, self.words.draw(rows, self.settings.words, random)

    def loss(
        self, rows: NDArray[np.int64], maps: Tensor, captions: list[Any], keep: Tensor, words: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the losses of captions and of single words."""
        image = self.towers.images(maps, keep)
        asked, target = words
        text = self.towers.texts(captions + asked)
        scale = self.scale.exp().clamp(max=100)
        known = len(captions)
        return pair_loss(image, text[:known], rows, scale), word_loss(image, text[known:], target, scale)

    def run(self) -> None:
        """Train from the last checkpoint to the end."""
        s = self.settings
        per_epoch = len(self.batches(0))
        total = math.ceil(s.epochs * per_epoch)
        self._resume()
        if self.step == 0:
            self._note({"settings": asdict(s), "steps": total, "words": len(self.words.names)})
        began, last, first, sums = time.perf_counter(), time.perf_counter(), self.step, np.zeros(3)
        for batch in self._stream(per_epoch, total):
            self.model.train()
            passed = (self.step - s.warmup) / max(1, total - s.warmup)
            rate = (self.step + 1) / s.warmup if self.step < s.warmup else 0.5 * (1 + math.cos(math.pi * passed))
            for group in self.optimizer.param_groups:
                group["lr"] = group["full"] * rate
            pairs, single = self.loss(*batch)
            self.optimizer.zero_grad(set_to_none=True)
            (pairs + s.word_weight * single).backward()
            nn.utils.clip_grad_norm_(self.trained, 2.0)
            self.optimizer.step()
            self.step += 1
            self._average()
            sums += (pairs.item(), single.item(), 1)
            if self.step % 10 == 0:
                speed = (self.step - first) * s.batch / (time.perf_counter() - began)
                print(
                    f"step {self.step}/{total} loss {sums[0] / sums[2]:.3f} words {sums[1] / sums[2]:.3f} "
                    f"temperature {1 / float(self.scale.exp()):.4f} {speed:.1f} pairs/s",
                    flush=True,
                )
                sums[:] = 0
            if time.perf_counter() - last > 300:
                self._checkpoint()
                last = time.perf_counter()
            if self.step % per_epoch == 0 or self.step == total:
                self._evaluate()
                self._checkpoint()

    def _stream(self, per_epoch: int, total: int) -> Iterator[tuple[Any, ...]]:
        """Yield the batches that are left, each prepared while the one before it is used."""
        order: dict[int, list[NDArray[np.int64]]] = {}

        def make(step: int) -> tuple[Any, ...]:
            epoch, number = divmod(step, per_epoch)
            if epoch not in order:
                order[epoch] = self.batches(epoch)
            return self.prepared(epoch, number, order[epoch][number])

        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(make, self.step) if self.step < total else None
            for step in range(self.step, total):
                batch = ahead.result()
                ahead = pool.submit(make, step + 1) if step + 1 < total else None
                yield batch

    @torch.no_grad()
    def _average(self) -> None:
        decay = min(self.settings.average, (1 + self.step) / (10 + self.step))
        for name, value in self.model.named_parameters():
            if name in self.average:
                self.average[name].lerp_(value, 1 - decay)

    @torch.no_grad()
    def _evaluate(self) -> None:
        """Evaluate and save the averaged weights."""
        kept = {name: value.detach().clone() for name, value in self.model.named_parameters() if name in self.average}
        named = dict(self.model.named_parameters())
        for name, value in self.average.items():
            named[name].copy_(value)
        found = evaluate(self.towers, self.data)
        self._note({"step": self.step, **found})
        describe(self.model, asdict(self.settings), found)
        save_with_card(self.model, self.into / "last", draw=False)
        for name, value in kept.items():
            named[name].copy_(value)

    def _note(self, row: dict[str, Any]) -> None:
        print(json.dumps(row), flush=True)
        with (self.into / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _checkpoint(self) -> None:
        from safetensors.torch import save_file

        tensors = {f"average|{name}": value for name, value in self.average.items()}
        tensors |= {
            f"model|{name}": value.detach() for name, value in self.model.named_parameters() if name in self.average
        }
        tensors["scale"] = self.scale.detach().reshape(1)
        for place, value in enumerate(self.trained):
            for what, state in self.optimizer.state.get(value, {}).items():
                tensors[f"optimizer|{place}|{what}"] = state.reshape(1) if state.dim() == 0 else state
        path = self.into / "checkpoint.safetensors"
        new = path.with_suffix(".new")
        save_file({k: v.contiguous().clone() for k, v in tensors.items()}, new, metadata={"step": str(self.step)})
        new.replace(path)

    @torch.no_grad()
    def _resume(self) -> None:
        path = self.into / "checkpoint.safetensors"
        if not path.exists():
            return
        tensors, about = read_weights(path)
        self.step = int(about["step"])
        named = dict(self.model.named_parameters())
        self.scale.copy_(tensors["scale"][0])
        for key, value in tensors.items():
            kind, _, rest = key.partition("|")
            if kind == "average":
                self.average[rest].copy_(value)
            elif kind == "model":
                named[rest].copy_(value)
            elif kind == "optimizer":
                place, _, what = rest.partition("|")
                self.optimizer.state[self.trained[int(place)]][what] = value[0] if what == "step" else value


if __name__ == "__main__":
    sys.exit(main())
