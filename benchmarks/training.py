"""Compare one training step of the region + BiGRU model with a plain formulation, in turns, in one process.

    python benchmarks/training.py            # 10 rounds
    python benchmarks/training.py --rounds 4 --json

The step: 128 pairs of 36 regions × 2048 on disk and a caption, 20 % of the regions and words dropped; projection and
BiGRU to 1024, GPO on both sides, triplet loss with the hardest negatives, gradient norm clipped at 2, AdamW. The plain
step is what retrieval code commonly does: each caption copies its image's rows and then its slot of the padded batch,
every row of the batch has its positions encoded and run through a packed GRU, poolings sort with ``torch.sort``, padded
regions are projected and counted by the batch norm, sentences go through ``nn.GRU``.

First both get the same weights and a batch without padded regions, in float64: loss and gradients must agree. Then they
take turns, on the same batches and with the batch built in the step, and each ratio is the median over rounds. Finally
our step runs alone while a thread prefetches, and the share of time that it waits for batches is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vse.data import CaptionedImages, FeatureRows
from vse.encoders import BiGRUEncoder, RegionEncoder
from vse.encoders.image import create_projection
from vse.inputs.vocabulary import FIRST, MASK, Vocabulary
from vse.losses import pair_scores, triplet_from_scores
from vse.pooling import GPO
from vse.pooling.gpo import sincos_positions
from vse.training.augmentation import TextAugmentation, keep_elements
from vse.training.batches import TokenStore, TrainingPairs, prefetch_batches
from vse.training.keyed import Purpose, keyed
from vse.training.recipe import AugmentationRecipe

BATCH, REGIONS, FEATURES, SIZE, HIDDEN = 128, 36, 2048, 1024, 512
IMAGES, CAPTIONS, WORDS, WORD_SIZE = 512, 5, 8000, 300
RATE, MARGIN, CLIP, SEED = 0.2, 0.2, 2.0, 0
PADDING_VALUE = -10000.0
PARTS = ("data", "image forward", "text forward", "pooling forward", "loss", "pooling backward")
PARTS += ("text backward", "image backward", "clip", "optimiser")
Batch = tuple[Tensor, Tensor, Tensor, Tensor]  # regions and how many, tokens and how many


class Clock:
    """Seconds by part; a lap ends one part and starts the next. On the CPU torch computes synchronously."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = defaultdict(float)
        self._last = time.perf_counter()

    def lap(self, part: str | None) -> None:
        now = time.perf_counter()
        if part is not None:
            self.parts[part] += now - self._last
        self._last = now


class _Lap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, clock: Clock, part: str) -> Tensor:
        ctx.clock, ctx.part = clock, part
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.clock.lap(ctx.part)
        return grad, None, None


class TimedPooling(nn.Module):
    """A pooling between laps; ``preceding`` is the part of the backward pass before it."""

    def __init__(self, inner: nn.Module, clock: Clock, side: str, preceding: str) -> None:
        super().__init__()
        self.inner, self.clock, self.side, self.preceding = inner, clock, side, preceding

    def pool(self, features: Tensor, sizes: Tensor | None) -> Tensor:
        self.clock.lap(f"{self.side} forward")
        call = getattr(self.inner, "pool", self.inner)
        pooled = call(_Lap.apply(features, self.clock, "pooling backward"), sizes)
        self.clock.lap("pooling forward")
        return _Lap.apply(pooled, self.clock, self.preceding)

    forward = pool


class PlainGPO(nn.Module):
    """Compute the coefficients of every row with a packed GRU over its positions, and sort with ``torch.sort``."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(32, 32, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(32, 1, bias=False)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        longest = int(lengths.max())
        mask = torch.arange(longest) < lengths.unsqueeze(1)
        positions = sincos_positions(longest, 32, dtype=features.dtype).expand(len(features), -1, -1)
        packed = pack_padded_sequence(positions, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        scores = self.linear((states[..., :32] + states[..., 32:]) / 2).squeeze(-1)
        weights = torch.softmax(scores.masked_fill(~mask, PADDING_VALUE) / 0.1, dim=1)
        padded = features[:, :longest].masked_fill(~mask.unsqueeze(-1), PADDING_VALUE)
        ordered = padded.sort(dim=1, descending=True)[0].masked_fill(~mask.unsqueeze(-1), 0)
        return (ordered * weights.unsqueeze(-1)).sum(1)


class PlainProjection(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.hidden = nn.Linear(FEATURES, SIZE), nn.Linear(FEATURES, HIDDEN)
        self.norm, self.out = nn.BatchNorm1d(HIDDEN), nn.Linear(HIDDEN, SIZE)

    def forward(self, features: Tensor) -> Tensor:
        inner = self.norm(self.hidden(features).flatten(0, 1)).relu()
        return self.fc(features) + self.out(inner).view(*features.shape[:2], -1)


class PlainImages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.projection, self.pooling = PlainProjection(), PlainGPO()

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        return unit(self.pooling(self.projection(features), lengths))


class PlainTexts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.pooling = nn.Embedding(WORDS, WORD_SIZE), PlainGPO()
        self.rnn = nn.GRU(WORD_SIZE, SIZE, batch_first=True, bidirectional=True)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return unit(self.pooling((states[..., :SIZE] + states[..., SIZE:]) / 2, lengths))


def unit(vectors: Tensor) -> Tensor:
    return vectors / (vectors.norm(dim=1, keepdim=True) + 1e-8)


def plain_loss(images: Tensor, texts: Tensor) -> Tensor:
    scores = images @ texts.T
    own = scores.diag().view(-1, 1)
    itself = torch.eye(len(scores)) > 0.5
    by_image = (MARGIN + scores - own).clamp(min=0).masked_fill(itself, 0)
    by_text = (MARGIN + scores - own.T).clamp(min=0).masked_fill(itself, 0)
    return by_image.max(1)[0].sum() + by_text.max(0)[0].sum()


def our_loss(images: Tensor, texts: Tensor) -> Tensor:
    return triplet_from_scores(pair_scores(images, texts), negatives="hardest", margin=MARGIN)


class Step:
    """One contestant: towers, loss, optimiser, and a clock between their parts."""

    def __init__(
        self, images: nn.Module, texts: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], fused: bool
    ) -> None:
        self.clock = Clock()
        images.pooling = TimedPooling(images.pooling, self.clock, "image", "text backward")
        texts.pooling = TimedPooling(texts.pooling, self.clock, "text", "loss")
        self.towers = nn.ModuleList([images, texts]).train()
        self.loss = loss
        options = {"fused": True} if fused else {}
        self.optimizer = torch.optim.AdamW(self.towers.parameters(), lr=5e-4, weight_decay=1e-4, **options)

    def gradients(self, batch: Batch) -> Tensor:
        features, sizes, tokens, lengths = batch
        self.optimizer.zero_grad()
        images, texts = self.towers[0](features, sizes), self.towers[1](tokens, lengths)
        loss = self.loss(images, texts)
        loss.backward()
        self.clock.lap("image backward")
        return loss

    def __call__(self, make: Callable[[], Batch]) -> dict[str, float]:
        """Run one step; return the seconds of each part."""
        self.clock.parts.clear()
        self.clock.lap(None)
        batch = make()
        self.clock.lap("data")
        self.gradients(batch)
        torch.nn.utils.clip_grad_norm_(self.towers.parameters(), CLIP)
        self.clock.lap("clip")
        self.optimizer.step()
        self.clock.lap("optimiser")
        return dict(self.clock.parts)


def contestants() -> dict[str, Step]:
    """Return both contestants with the same weights."""
    torch.manual_seed(SEED)
    images = RegionEncoder(create_projection("residual-mlp", FEATURES, SIZE, HIDDEN), GPO(), FEATURES)
    texts = BiGRUEncoder(WORDS, WORD_SIZE, SIZE, GPO())
    plain_images, plain_texts = PlainImages(), PlainTexts()
    plain_images.load_state_dict(images.state_dict())
    plain_texts.load_state_dict(texts.state_dict())
    return {
        "plain": Step(plain_images, plain_texts, plain_loss, fused=False),
        "ours": Step(images, texts, our_loss, fused=True),
    }


class Data:
    """Features on disk and captions: words that follow Zipf's law, a full stop, 8 to 25 tokens with start and end."""

    def __init__(self, folder: Path) -> None:
        generator = np.random.default_rng(SEED)
        np.save(folder / "features.npy", generator.random((IMAGES, REGIONS, FEATURES), dtype=np.float32))
        self.array = np.load(folder / "features.npy", mmap_mode="r")
        self.owners = np.repeat(np.arange(IMAGES), CAPTIONS)
        names = [f"word{number}" for number in range(WORDS - len(FIRST) - 2)]
        odds = 1 / np.arange(1, len(names) + 1)
        lengths = np.clip(np.rint(5 + generator.gamma(2.7, 2.0, len(self.owners))), 5, 22).astype(int)
        drawn = generator.choice(len(names), int(lengths.sum()), p=odds / odds.sum())
        captions = tuple(" ".join([*(names[w] for w in part), "."]) for part in np.split(drawn, lengths.cumsum()[:-1]))
        tokenizer = Vocabulary([*FIRST, ".", *names, MASK]).tokenizer()
        rows = FeatureRows(self.array, np.arange(IMAGES), tuple(map(str, range(IMAGES))))
        self.captioned = CaptionedImages("generated", "train", "precomp", rows, captions, self.owners)
        self.tokens = TokenStore.build(captions, tokenizer)
        self.text = TextAugmentation("drop", RATE, tokenizer)
        order = generator.permutation(len(captions))
        self.samples = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)

    def pairs(self, regions: str) -> TrainingPairs:
        recipe = AugmentationRecipe(image=regions, text="drop", rate=RATE)
        return TrainingPairs(self.captioned, self.tokens, self.text, recipe, seed=SEED)

    def plain_batch(self, samples: np.ndarray) -> Batch:
        """Build the batch item by item, then pad; the draws are those of :class:`TrainingPairs`."""
        items = []
        for sample in samples.tolist():
            tokens, words = self.tokens.caption(sample)
            tokens = self.text(tokens, words, keyed(SEED, 0, Purpose.TEXT_ELEMENTS, sample))
            kept = keep_elements(REGIONS, RATE, keyed(SEED, 0, Purpose.IMAGE_ELEMENTS, sample))
            items.append((torch.tensor(self.array[self.owners[sample]][kept]), torch.tensor(tokens, dtype=torch.int64)))
        sizes, lengths = (torch.tensor([len(item[side]) for item in items]) for side in (0, 1))
        features = torch.zeros(len(items), int(sizes.max()), FEATURES)
        padded = torch.zeros(len(items), int(lengths.max()), dtype=torch.int64)
        for row, (regions, tokens) in enumerate(items):
            features[row, : len(regions)] = regions
            padded[row, : len(tokens)] = tokens
        return features, sizes, padded, lengths


def tensors(batch: Any) -> Batch:
    sizes = np.full(len(batch), REGIONS) if batch.lengths is None else batch.lengths
    return tuple(map(torch.from_numpy, (batch.images, sizes, batch.tokens, batch.token_lengths)))


def differences(data: Data) -> dict[str, float]:
    """Return relative differences of loss and gradients in float64, undropped: plain's batch norm sees padding."""
    features, *others = tensors(data.pairs("none").batch(0, data.samples[0]))
    found = []
    for step in contestants().values():
        step.towers.double()
        loss = step.gradients((features.double(), *others))
        found.append((loss.item(), {name: value.grad for name, value in step.towers.named_parameters()}))
    (plain, expected), (ours, gradients) = found
    # A bias before a batch norm has only a rounding gradient: small ones are compared with the norm of all.
    least = 1e-6 * torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    by_name = [
        (gradient - gradients[name]).norm() / gradient.norm().clamp(min=least) for name, gradient in expected.items()
    ]
    return {"loss": abs(ours - plain) / plain, "gradients": float(max(by_name))}


def take_turns(data: Data, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Return the seconds of each part, round by round, after one warm-up round."""
    steps = contestants()
    pairs = data.pairs("drop")
    times: dict[str, list[dict[str, float]]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        samples = data.samples[number % len(data.samples)]
        makes = {
            "plain": lambda samples=samples: data.plain_batch(samples),
            "ours": lambda samples=samples: tensors(pairs.batch(0, samples)),
        }
        for name, step in steps.items():
            taken = step(makes[name])
            if number:
                times[name].append(taken)
    return times


def waiting_share(data: Data, rounds: int) -> float:
    """Return the share of time that our steps wait while one thread prefetches, the first batch excluded."""
    step, pairs = contestants()["ours"], data.pairs("drop")
    parts = [data.samples[number % len(data.samples)] for number in range(rounds + 1)]
    waited, began = 0.0, 0.0
    for number, (batch, seconds) in enumerate(prefetch_batches(lambda part: pairs.batch(0, part), parts, 1)):
        if number:
            waited += seconds
        step(lambda batch=batch: tensors(batch))
        began = began or time.perf_counter()
    return waited / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    note = f"batch {BATCH}, float32, {torch.get_num_threads()} threads, torch {torch.__version__}, "
    note += torch.backends.cpu.get_cpu_capability()
    print(note, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        data = Data(Path(folder))
        apart = differences(data)
        times = take_turns(data, options.rounds)
        waiting = waiting_share(data, options.rounds)
    totals = {name: [sum(parts.values()) for parts in rounds] for name, rounds in times.items()}
    ratios = [plain / ours for plain, ours in zip(totals["plain"], totals["ours"], strict=True)]
    table = {
        part: {name: statistics.median(parts[part] for parts in rounds) for name, rounds in times.items()}
        for part in PARTS
    }
    sums = {name: sum(row[name] for row in table.values()) for name in times}
    result = {
        "machine": note,
        "plain_over_ours": statistics.median(ratios),
        "rounds": ratios,
        "shares": {part: {name: row[name] / sums[name] for name in row} for part, row in table.items()},
        "milliseconds": {part: {name: 1e3 * row[name] for name in row} for part, row in table.items()},
        "waiting": waiting,
        "differences": apart,
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"same step: loss differs by {apart['loss']:.0e}, gradients by {apart['gradients']:.0e} (relative, float64)")
    print("part               plain/ours   share of plain   share of ours   plain ms   ours ms")
    for part, row in table.items():
        shares = [100 * row[name] / sums[name] for name in ("plain", "ours")]
        print(
            f"{part:18} {row['plain'] / row['ours']:9.2f}x {shares[0]:14.1f} % {shares[1]:13.1f} %"
            f" {1e3 * row['plain']:10.1f} {1e3 * row['ours']:9.1f}"
        )
    spread = f"rounds {min(ratios):.2f}–{max(ratios):.2f}"
    print(f"whole step         {result['plain_over_ours']:9.2f}x ({spread})")
    print(f"waiting for data, one thread prefetching: {100 * waiting:.1f} % of our step")


if __name__ == "__main__":
    main()
