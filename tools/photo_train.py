"""Train the photo model on stored feature maps: heads, sentence encoder and the last stage of the image backbone.

    python tools/photo_train.py FEATURES --into runs/photo-joint --set most_steps=72

FEATURES is what ``tools/photo_features.py`` wrote: the maps that the first six stages of EfficientNet-Lite2 compute,
9 × 9 cells of 208 channels. Those stages cost most of the time and are not trained, so that the rest can be trained on
a CPU. The loss has two parts:

- cross-entropy over the batch in both directions, with a learned temperature. A batch holds images of one dataset,
  whose captions are harder to tell apart than those of two;
- single words: the images whose captions contain a word, or whose ImageNet class has that name, against the other
  images of the batch. People search with one or two words, and captions are sentences.

With ``average`` the weights are averaged over the steps, and the average is what is evaluated and saved. An interrupted
run goes on from its last checkpoint when the same command is given again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vse.evaluation import retrieval_metrics
from vse.inputs.tokenizer import TextTokenizer
from vse.models import VSEModel
from vse.models.card import save_with_card
from vse.models.config import About, BackboneConfig, GridConfig, ModelConfig, PoolingConfig, Score, TransformerConfig
from vse.models.storage import load_towers, read_weights

SIDE, CHANNELS = 9, 208
ROW = SIDE * SIDE * CHANNELS * 2  # bytes of one map in float16
FIRST = 6  # the first stage of the backbone that is computed here
COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on at with and or to is are be being its it his her their by for from as that this "
        "these those there has have having while some two three four five one several many very next near "
        "other another up down out off over under into onto around behind front top side man woman people "
        "person men women who which he she they him them standing sitting holding ",
    )
)  # words that are no use in a search


@dataclass(frozen=True)
class Settings:
    """One run."""

    epochs: float = 5
    batch: int = 256
    lr: float = 1e-3
    text_factor: float = 0.05
    backbone_factor: float = 0.2
    weight_decay: float = 0.02
    warmup: int = 60
    temperature: float = 0.05
    learn_temperature: bool = True
    cells: int = 81
    least_cells: int = 20
    views: int = 1
    flickr: int = 2
    words: int = 48
    word_weight: float = 0.3
    smoothing: float = 0.0
    average: float = 0.0
    pooling: str = "gpo"
    seed: int = 0
    start: str = ""
    bf16: bool = True
    most_steps: int = 0
    frozen_image: bool = False
    text_layers: int = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path, metavar="FEATURES")
    parser.add_argument("--into", type=Path, required=True, metavar="DIR")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one of the settings")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = read_settings(options.set)
    Trainer(Data(options.features, settings), settings, options.into).run()
    return 0


def read_settings(given: list[str]) -> Settings:
    """Defaults, and what was given as KEY=VALUE."""
    kinds = {field.name: type(field.default) for field in fields(Settings)}
    changed: dict[str, Any] = {}
    for each in given:
        key, _, value = each.partition("=")
        if key not in kinds:
            raise SystemExit(f"--set {key}: expected one of {', '.join(kinds)}")
        changed[key] = value == "true" if kinds[key] is bool else kinds[key](value)
    return replace(Settings(), **changed)


class Data:
    """Maps and captions of all images; ``rows[split]`` are the numbers of its images."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.meta = json.loads((folder / "base.meta.json").read_text("utf-8"))
        self.splits = np.array([each["split"] for each in self.meta])
        self.captions = [each["captions"] for each in self.meta]
        self.first_train = int(np.flatnonzero(self.splits == "f8k-train")[0])
        self.files = [os.open(folder / "base.f16", os.O_RDONLY)]
        for view in range(1, settings.views):
            self.files.append(os.open(folder / f"view{view}.f16", os.O_RDONLY))
        self.classes = folder / "classes.npy"
        self.tokens: list[list[NDArray[np.int64]]] = []

    def rows(self, split: str) -> NDArray[np.int64]:
        return np.flatnonzero(self.splits == split)

    def maps(self, rows: NDArray[np.int64], views: NDArray[np.int64] | None = None) -> Tensor:
        """``(B, 208, 9, 9)``, channels last."""
        out = np.empty((len(rows), SIDE, SIDE, CHANNELS), np.float16)
        for place, row in enumerate(rows.tolist()):
            view = 0 if views is None else int(views[place])
            number = row if view == 0 else row - self.first_train
            out[place] = np.frombuffer(os.pread(self.files[view], ROW, number * ROW), np.float16).reshape(out.shape[1:])
        return torch.from_numpy(out).permute(0, 3, 1, 2)

    def tokenize(self, tokenizer: TextTokenizer) -> None:
        flat = [caption for each in self.captions for caption in each]
        ids = tokenize(tokenizer, flat)
        place = 0
        for each in self.captions:
            self.tokens.append(ids[place : place + len(each)])
            place += len(each)


def tokenize(tokenizer: TextTokenizer, sentences: list[str]) -> list[NDArray[np.int64]]:
    found = []
    for start in range(0, len(sentences), 1000):
        batch = tokenizer.encode(sentences[start : start + 1000])
        found += [row[:length].copy() for row, length in zip(batch.tokens, batch.lengths.tolist(), strict=True)]
    return found


def padded(rows: list[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    lengths = np.array([len(row) for row in rows])
    out = np.zeros((len(rows), int(lengths.max())), np.int64)
    for target, row in zip(out, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(out), torch.from_numpy(lengths)


class Words:
    """Words and pairs of words of the training captions, and which image has which."""

    def __init__(self, data: Data, tokenizer: TextTokenizer, seed: int, least: int = 25, most: float = 0.08) -> None:
        train = np.flatnonzero(np.char.endswith(data.splits.astype(str), "train"))
        per_image = {row: self._of(data.captions[row]) for row in train.tolist()}
        counts = Counter(word for words in per_image.values() for word in words)
        self.names = sorted(w for w, n in counts.items() if least <= n <= most * len(train))
        number = {word: place for place, word in enumerate(self.names)}
        self.of = {row: [number[w] for w in words if w in number] for row, words in per_image.items()}
        if data.classes.exists():
            names = json.loads(data.classes.with_suffix(".json").read_text("utf-8"))
            seen = np.load(data.classes)  # (images,) class or -1
            known = Counter(int(c) for c in seen[train] if c >= 0)
            for index in sorted(known):
                if names[index].lower() not in number:
                    number[names[index].lower()] = len(self.names)
                    self.names.append(names[index].lower())
            for row in train.tolist():
                if seen[row] >= 0:
                    self.of[row].append(number[names[int(seen[row])].lower()])
        self.tokens = [
            tokenize(tokenizer, [form.format(w) for w in self.names]) for form in ("{}", "a {}", "a photo of a {}")
        ]

    @staticmethod
    def _of(captions: list[str]) -> set[str]:
        found: set[str] = set()
        for caption in captions:
            words = re.findall(r"[a-z]+", caption.lower())
            found |= {w for w in words if w not in COMMON and len(w) > 2}
            found |= {f"{a} {b}" for a, b in pairwise(words) if a not in COMMON and b not in COMMON}
        return found

    def choose(self, rows: NDArray[np.int64], count: int, random: np.random.Generator) -> tuple[list[int], Tensor]:
        """``count`` words of a batch, and ``(count, B)``: which image has which."""
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

    def draw(
        self, rows: NDArray[np.int64], count: int, random: np.random.Generator
    ) -> tuple[list[NDArray[np.int64]], Tensor]:
        """As :meth:`choose`, with the tokens of the words in one of three forms."""
        chosen, target = self.choose(rows, count, random)
        return [self.tokens[int(random.integers(3))][word] for word in chosen], target


def build(settings: Settings) -> VSEModel:
    """The model at the start: published weights, class words, poolings that average."""
    tokenizer = TextTokenizer.from_pretrained("all-minilm-l6-v2", 64)
    pooling = PoolingConfig(name=settings.pooling)
    config = ModelConfig(
        embed_size=512,
        image=GridConfig(
            backbone=BackboneConfig(name="efficientnet-lite2"), head="class-words", hidden_size=1000, pooling=pooling
        ),
        text=TransformerConfig(pretrained="all-minilm-l6-v2", pooling=pooling),
        about=About(name="photo", data="coco, flickr8k", source="trained with vse"),
    )
    torch.manual_seed(settings.seed)
    if settings.start:
        return load_towers(Path(settings.start))
    return VSEModel.build(config, tokenizer, pretrained=True)


DATA = (
    "Flickr8k (train split, 6,000 images) and COCO (27,304 images of train2017, none of Karpathy's val and test splits)"
)
NOTES = (
    "Captions of COCO: Creative Commons Attribution 4.0. Images of COCO and Flickr8k: the terms of use of Flickr; each "
    "image belongs to its photographer. No image is part of this model.",
    "It does not read text, count, tell left from right, or know names of people and places. It knows few things that "
    "neither COCO's everyday scenes nor Flickr8k nor ImageNet's classes show.",
)


def describe(model: VSEModel, recipe: dict[str, Any], found: dict[str, Any]) -> None:
    """Say in the model where it comes from, and how well it did on the dev splits."""
    named = {"coco-dev": "coco", "f8k-dev": "flickr8k"}
    scores = [
        Score(protocol="dev images, one ranking", data=data, split="dev", values=found[split])
        for split, data in named.items()
    ]
    everyday = {"precision_at_8": found["everyday"]}
    scores.append(Score(protocol="60 everyday queries", data="coco", split="dev", values=everyday))
    about = About(name="photo", data=DATA, source="trained with vse", recipe=recipe, scores=tuple(scores), notes=NOTES)
    model.config = model.config.model_copy(update={"about": about})


class Towers:
    """Both towers as they are trained."""

    def __init__(self, model: VSEModel, settings: Settings) -> None:
        self.model, self.bf16 = model, settings.bf16
        self.image: Any = model.image_encoder
        self.text: Any = model.text_encoder
        self.net = self.image.backbone.model

    def cells(self, maps: Tensor) -> Tensor:
        x = maps.float().contiguous(memory_format=torch.channels_last)
        for stage in self.net.blocks[FIRST:]:
            x = stage(x)
        return self.net.bn2(self.net.conv_head(x)).flatten(2).transpose(1, 2)

    def images(self, maps: Tensor, keep: Tensor | None = None) -> Tensor:
        """``keep (B, n)`` are the cells of each image that count."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            cells = maps if maps.dim() == 3 else self.cells(maps)
            if keep is not None:
                cells = cells.gather(1, keep.unsqueeze(-1).expand(-1, -1, cells.shape[2]))
            projected = self.image.projection(cells)
        return nn.functional.normalize(self.image.pooling.pool(projected.float(), None), dim=-1)

    def texts(self, rows: list[NDArray[np.int64]]) -> Tensor:
        tokens, lengths = padded(rows)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            projected, mask = self.text.elements(tokens, lengths)
        return nn.functional.normalize(self.text.pooling.pool(projected.float(), mask), dim=-1)


@torch.inference_mode()
def evaluate(towers: Towers, data: Data) -> dict[str, Any]:
    """Retrieval on both dev splits, and precision@8 of everyday queries on that of COCO."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
    from everyday import QUERIES, judged

    towers.model.eval()
    result: dict[str, Any] = {}
    for split in ("coco-dev", "f8k-dev"):
        rows = data.rows(split)
        images = torch.cat([towers.images(data.maps(part)) for part in np.array_split(rows, 16)]).numpy()
        captions = [tokens for row in rows.tolist() for tokens in data.tokens[row][:5]]
        owner = np.repeat(np.arange(len(rows)), [len(data.tokens[row][:5]) for row in rows.tolist()])
        order = np.argsort([len(each) for each in captions], kind="stable")
        texts = np.empty((len(captions), images.shape[1]), np.float32)
        for part in np.array_split(order, 20):
            texts[part] = towers.texts([captions[one] for one in part.tolist()]).numpy()
        figures = retrieval_metrics(images, texts, owner).figures()
        result[split] = {key: round(float(figures[key]), 2) for key in figures if "_r" in key or key == "rsum"}
        if split == "coco-dev":
            known = [tuple(data.captions[row]) for row in rows.tolist()]
            relevant = np.array([[query.mentions(each) > 0 for each in known] for query in QUERIES])
            asked = towers.texts(tokenize(towers.model.tokenizer, [query.text for query in QUERIES])).numpy()
            found = judged(asked @ images.T, relevant)
            result["everyday"] = round(found["precision_at_8"], 4)
            result["low"] = {k: v["hits"] for k, v in found["queries"].items() if v["hits"] < 0.5 * v["of"]}
    return result


class Trainer:
    """The loop: batches, loss, averages, checkpoints."""

    def __init__(self, data: Data, settings: Settings, into: Path) -> None:
        self.data, self.settings, self.into = data, settings, into
        into.mkdir(parents=True, exist_ok=True)
        self.model = build(settings)
        self.towers = Towers(self.model, settings)
        data.tokenize(self.model.tokenizer)
        self._classes()
        self.stage = self._stage() if settings.frozen_image else None
        self.words = Words(data, self.model.tokenizer, settings.seed)
        self.scale = nn.Parameter(
            torch.tensor(math.log(1 / settings.temperature)), requires_grad=settings.learn_temperature
        )
        self.groups = self._groups()
        self.trained = [value for group in self.groups for value in group["params"]]
        self.optimizer = torch.optim.AdamW(self.groups, lr=settings.lr, fused=True)
        self.step = 0
        self.average = {
            name: value.detach().clone() for name, value in self.model.named_parameters() if value.requires_grad
        }

    def _groups(self) -> list[dict[str, Any]]:
        s = self.settings
        sort: dict[tuple[float, float], list[nn.Parameter]] = {}
        trained_stages = tuple(
            f"image_encoder.backbone.model.{part}"
            for part in (*(f"blocks.{n}." for n in range(FIRST, 7)), "conv_head", "bn2")
        )
        for name, value in self.model.named_parameters():
            factor = 1.0
            if name.startswith("image_encoder.backbone."):
                factor = s.backbone_factor if name.startswith(trained_stages) and not s.frozen_image else 0.0
            elif name.startswith("text_encoder.transformer."):
                found = re.search(r"layer\.(\d+)\.", name)
                factor = s.text_factor if found and int(found[1]) >= 6 - s.text_layers else 0.0
            value.requires_grad_(factor > 0)
            if factor > 0:
                decay = s.weight_decay if value.dim() > 1 else 0.0
                sort.setdefault((factor, decay), []).append(value)
        groups = [{"params": v, "full": s.lr * f, "weight_decay": d} for (f, d), v in sort.items()]
        if s.learn_temperature:
            groups.append({"params": [self.scale], "full": s.lr, "weight_decay": 0.0})
        return groups

    @torch.inference_mode()
    def _classes(self) -> None:
        """The class that the published classifier sees in an image, where it is sure."""
        data = self.data
        if data.classes.exists():
            return
        from timm.data.imagenet_info import ImageNetInfo

        model = self.model.eval()
        if self.settings.start:
            model = build(replace(self.settings, start="")).eval()
        towers, head = Towers(model, self.settings), model.image_encoder.projection
        seen = []
        train = np.arange(data.first_train, len(data.meta))
        for part in np.array_split(train, max(1, len(train) // 64)):
            with torch.autocast("cpu", torch.bfloat16):
                pooled = towers.cells(data.maps(part)).mean(1)
            logits = nn.functional.linear(pooled.float(), head.classes_weight, head.classes_bias)
            best = logits.softmax(-1).max(-1)
            seen.append(torch.where(best.values > 0.4, best.indices, -1))
        info = ImageNetInfo()
        names = [info.index_to_description(index).split(",")[0] for index in range(1000)]
        data.classes.with_suffix(".json").write_text(json.dumps(names), "utf-8")
        np.save(data.classes, np.concatenate([np.full(data.first_train, -1), torch.cat(seen).numpy()]))

    def _stage(self) -> Any:
        """What is left of the backbone, for ONNX Runtime, which takes half the time of torch."""
        import onnxruntime

        net, path = self.towers.net, self.into / "stage.onnx"
        last = nn.Sequential(*net.blocks[FIRST:], net.conv_head, net.bn2).eval()
        torch.onnx.export(
            last,
            (torch.zeros(2, CHANNELS, SIDE, SIDE),),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "b"}, "y": {0: "b"}},
        )
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])

    def _frozen_cells(self, maps: Tensor, keep: Tensor) -> Tensor:
        out = torch.empty(*keep.shape, self.model.feature_size, dtype=torch.bfloat16)
        for start in range(0, len(maps), 4):
            cells = self.stage.run(None, {"x": maps[start : start + 4].float().contiguous().numpy()})[0]
            kept = torch.from_numpy(cells).flatten(2).transpose(1, 2)
            chosen = keep[start : start + 4].unsqueeze(-1).expand(-1, -1, kept.shape[2])
            out[start : start + 4] = kept.gather(1, chosen)
        return out

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Rows of one dataset each, shuffled."""
        random = np.random.default_rng([self.settings.seed, epoch])
        size = self.settings.batch
        parts: list[NDArray[np.int64]] = []
        for split, times in (("coco-train", 1), ("f8k-train", self.settings.flickr)):
            rows = np.concatenate([random.permutation(self.data.rows(split)) for _ in range(times)])
            parts += [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]
        return [parts[place] for place in random.permutation(len(parts))]

    def prepared(self, epoch: int, number: int, rows: NDArray[np.int64]) -> tuple[Any, ...]:
        random = np.random.default_rng([self.settings.seed, epoch, number])
        maps = self.data.maps(rows, random.integers(len(self.data.files), size=len(rows)))
        captions = [self.data.tokens[row][int(random.integers(len(self.data.tokens[row])))] for row in rows.tolist()]
        most, least = self.settings.cells, self.settings.least_cells
        count = round(least + (most - least) * random.random() ** 2)  # fewer cells cost less
        keep = torch.from_numpy(random.random((len(rows), 81)).argsort(1)[:, :count].copy())
        if self.stage is not None:
            maps, keep = self._frozen_cells(maps, keep), None
        words = self.words.draw(rows, self.settings.words, random) if self.settings.words else None
        return rows, maps, captions, keep, words

    def loss(
        self, rows: NDArray[np.int64], maps: Tensor, captions: list[Any], keep: Tensor, words: Any
    ) -> tuple[Tensor, Tensor]:
        image = self.towers.images(maps, keep)
        asked = [] if words is None else words[0]
        text = self.towers.texts(captions + asked)
        scale = self.scale.exp().clamp(max=100)
        logits = image @ text[: len(captions)].T * scale
        ids = torch.from_numpy(rows)
        same = (ids[:, None] == ids[None]) & ~torch.eye(len(ids), dtype=torch.bool)
        logits = logits.masked_fill(same, -1e4)
        own = torch.arange(len(ids))
        smooth = self.settings.smoothing
        pairs = (
            nn.functional.cross_entropy(logits, own, label_smoothing=smooth)
            + nn.functional.cross_entropy(logits.T, own, label_smoothing=smooth)
        ) / 2
        if words is None:
            return pairs, pairs.new_zeros(())
        target = words[1]
        found = (text[len(captions) :] @ image.T * scale).log_softmax(1)
        single = -((found * target).sum(1) / target.sum(1) + target.sum(1).log()).mean()
        return pairs, single

    def run(self) -> None:
        s = self.settings
        per_epoch = len(self.batches(0))
        total = math.ceil(s.epochs * per_epoch)
        log = self.into / "log.jsonl"
        self._resume()
        began, last, sums = time.perf_counter(), time.perf_counter(), np.zeros(3)
        if self.step == 0:
            self._note(log, {"settings": asdict(s), "steps": total, "words": len(self.words.names)})
        first = self.step
        for epoch, number, batch in self._stream(per_epoch, total):
            self.model.train()
            for module in self.model.image_encoder.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
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
                rate_now = (self.step - first) * s.batch / (time.perf_counter() - began)
                print(
                    f"step {self.step}/{total} loss {sums[0] / sums[2]:.3f} words {sums[1] / sums[2]:.3f} "
                    f"temperature {1 / float(self.scale.exp()):.4f} {rate_now:.1f} pairs/s",
                    flush=True,
                )
                sums[:] = 0
            if time.perf_counter() - last > 300:
                self._checkpoint()
                last = time.perf_counter()
            if self.step % per_epoch == 0 or self.step == total or (s.most_steps and self.step == s.most_steps):
                self._evaluate(log, epoch, number)
                self._checkpoint()

    def _stream(self, per_epoch: int, total: int) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
        with ThreadPoolExecutor(1) as pool:
            until = min(total, self.settings.most_steps or total)
            places = [divmod(step, per_epoch) for step in range(self.step, until)]
            order: dict[int, list[NDArray[np.int64]]] = {}

            def make(epoch: int, number: int) -> tuple[Any, ...]:
                if epoch not in order:
                    order[epoch] = self.batches(epoch)
                return self.prepared(epoch, number, order[epoch][number])

            waiting = [pool.submit(make, *place) for place in places[:2]]
            for count, (epoch, number) in enumerate(places):
                batch = waiting.pop(0).result()
                if count + 2 < len(places):
                    waiting.append(pool.submit(make, *places[count + 2]))
                yield epoch, number, batch

    @torch.no_grad()
    def _average(self) -> None:
        decay = min(self.settings.average, (1 + self.step) / (10 + self.step))
        for name, value in self.model.named_parameters():
            if name in self.average:
                self.average[name].lerp_(value, 1 - decay)

    @torch.no_grad()
    def _evaluate(self, log: Path, epoch: int, number: int) -> None:
        kept = {name: value.detach().clone() for name, value in self.model.named_parameters() if name in self.average}
        named = dict(self.model.named_parameters())
        for name, value in self.average.items():
            named[name].copy_(value)
        found = evaluate(self.towers, self.data)
        self._note(log, {"step": self.step, **found})
        describe(self.model, {key: value for key, value in asdict(self.settings).items() if key != "start"}, found)
        save_with_card(self.model, self.into / "last", draw=False)
        for name, value in kept.items():
            named[name].copy_(value)

    def _note(self, log: Path, row: dict[str, Any]) -> None:
        print(json.dumps(row), flush=True)
        with log.open("a", encoding="utf-8") as file:
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
