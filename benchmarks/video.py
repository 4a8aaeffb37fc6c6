"""Measure a training step of the four video models by its parts, and the scoring of a whole test split.

    python benchmarks/video.py                          # MSVD, embedding 512 and 1024, 8 steps each
    python benchmarks/video.py --sizes 512 --rounds 4 --no-evaluation --json

The step is that of the recipes ``msvd-…`` at batch 128: frames from the packed file, both towers with dropout, the
scores of all 128 × 128 pairs, triplet loss with the hardest negatives, Adam. The models take turns, so that other load
on the machine affects all of them; a part is the median over rounds. ``graph`` is a part of ``text``. The table also
has the processor time of all threads, which other load changes less than wall time.

The score "by definition" computes an attended frame for every pair of a video and a phrase, on the same features as the
fast one, both with their backward passes. The evaluation uses random weights, at the same cost. Its peak memory is that
of a separate process beyond what it held before it started to encode (Linux only).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vse.data import open_data
from vse.evaluation.metrics import metrics_of_scores
from vse.evaluation.retrieval_test import RetrievalTest, model_scores
from vse.hgr import SentenceFeatures, VideoFeatures
from vse.hgr.graphs import SentenceGraphs
from vse.hgr.scores import level_scores, plain_level_scores
from vse.progress import SilentProgress
from vse.training.batches import prefetch_batches
from vse.training.data import Splits, build_tokenizer, open_splits, training_pairs
from vse.training.distributed import Ranks
from vse.training.matcher import create_matcher
from vse.training.model import build_model
from vse.training.optimizer import create_optimizer, trained_parameters
from vse.training.recipe import Recipe
from vse.training.recipes import read_recipe, toml_text
from vse.training.run_folder import RunFolder
from vse.training.schedule import Objective
from vse.training.train import pack_videos

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "msvd"
MODELS = {"VSE++": "vse-plus-plus", "VSE∞": "vse-infinity", "HGR": "hgr", "HGR∞": "hgr-infinity"}
PARTS = ("reading", "frames", "text", "graph", "score", "loss", "backward", "update")


class Clock:
    """Wall and processor seconds by part."""

    def __init__(self) -> None:
        self.wall: dict[str, list[float]] = defaultdict(list)
        self.busy: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        wall, busy = time.perf_counter(), time.process_time()
        yield
        self.wall[name].append(time.perf_counter() - wall)
        self.busy[name].append(time.process_time() - busy)

    def around(self, module: nn.Module, name: str) -> None:
        """Count the time of a module's forward pass."""
        began: list[tuple[float, float]] = []

        def before(*_: Any) -> None:
            began.append((time.perf_counter(), time.process_time()))

        def after(*_: Any) -> None:
            wall, busy = began.pop()
            self.wall[name].append(time.perf_counter() - wall)
            self.busy[name].append(time.process_time() - busy)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)

    def medians(self) -> dict[str, dict[str, float]]:
        """Return milliseconds, without the first round."""
        return {
            name: {
                "wall_ms": round(1000 * statistics.median(self.wall[name][1:]), 2),
                "processor_ms": round(1000 * statistics.median(self.busy[name][1:]), 2),
            }
            for name in self.wall
        }


class Contestant:
    """One model and what a step of it needs."""

    def __init__(self, recipe: Recipe, splits: Splits, folder: Path) -> None:
        tokenizer = build_tokenizer(recipe, splits.train.captions)
        self.recipe = recipe
        self.model = build_model(recipe, tokenizer, splits, "benchmark").train()
        packed = pack_videos(splits.train, RunFolder(folder), Ranks(), SilentProgress())
        graphs = splits.graphs if recipe.model.kind == "hgr" else None
        self.pairs = training_pairs(recipe, self.model, packed, graphs)
        self.matcher = create_matcher(self.model)
        self.objective = Objective(recipe.loss, 1, recipe.schedule.epochs)
        self.optimizer = create_optimizer(trained_parameters(self.model, backbone=False), recipe.optimizer)
        self.clock = Clock()
        hgr = recipe.model.kind == "hgr"
        self.clock.around(self.model.video_encoder if hgr else self.model.image_encoder, "frames")
        self.clock.around(self.model.text_encoder, "text")
        if hgr:
            self.clock.around(self.model.text_encoder.graph, "graph")

    def samples(self, number: int) -> np.ndarray:
        size = self.recipe.schedule.batch_size
        return self.pairs.order(0)[number * size : (number + 1) * size]

    def step(self, batch: Any) -> None:
        """Do what :class:`vse.training.step.TrainingStep` does for one process and the whole batch."""
        clock = self.clock
        ids = torch.from_numpy(batch.image_ids)
        arrays = self.matcher.inputs(batch)
        inputs = {name: None if array is None else torch.from_numpy(array) for name, array in arrays.items()}
        self.optimizer.zero_grad(set_to_none=True)
        images, texts = self.matcher(**inputs)
        with clock.part("score"):
            scores = self.matcher.scores(images, texts)
        with clock.part("loss"):
            loss = self.objective(scores, ids, 0, softened=False)
        with clock.part("backward"):
            loss.backward()
        with clock.part("update"):
            self.optimizer.step()

    def round(self, number: int) -> None:
        with self.clock.part("step"):
            with self.clock.part("reading"):
                batch = self.pairs.batch(0, self.samples(number))
            self.step(batch)

    def waiting(self, rounds: int) -> float:
        """Return the share of time that steps wait while threads prefetch, the first batch excluded."""
        waited, began = 0.0, 0.0
        parts = [self.samples(number) for number in range(rounds + 1)]
        for number, (batch, seconds) in enumerate(prefetch_batches(lambda part: self.pairs.batch(0, part), parts, 2)):
            waited += seconds if number else 0.0
            self.step(batch)
            began = began or time.perf_counter()
        return waited / (time.perf_counter() - began)


def score_costs(contestant: Contestant, rounds: int) -> dict[str, float]:
    """Return milliseconds of the score and its gradient, as computed and by definition."""
    batch = contestant.pairs.batch(0, contestant.samples(0))
    inputs = {name: None if a is None else torch.from_numpy(a) for name, a in contestant.matcher.inputs(batch).items()}
    with torch.no_grad():
        videos, sentences = contestant.matcher(**inputs)
    times: dict[str, list[float]] = {"fast": [], "plain": []}
    for _ in range(rounds + 1):
        for name, compute in (("fast", level_scores), ("plain", plain_level_scores)):
            seen, read = _leaves(videos), _leaves(sentences)
            began = time.perf_counter()
            compute(VideoFeatures(*seen), SentenceFeatures(*read)).mean.sum().backward()
            times[name].append(time.perf_counter() - began)
    return {name: round(1000 * statistics.median(taken[1:]), 1) for name, taken in times.items()}


def _leaves(side: tuple[Tensor, ...]) -> list[Tensor]:
    return [each.clone().requires_grad_(each.is_floating_point()) for each in side]


def evaluation_cost(data: str, method: str, size: int, threads: int) -> dict[str, float]:
    """Return seconds and peak memory of scoring and ranking the test split, in a separate process."""
    torch.set_num_threads(threads)
    recipe = recipe_of(data, method, size)
    splits = open_splits(recipe)
    model = build_model(recipe, build_tokenizer(recipe, splits.train.captions), splits, "benchmark").eval()
    split = open_data(data, "test", use="features")
    test = RetrievalTest.of(split)
    found = {"videos": len(split.images), "sentences": len(test.texts)}
    began = time.perf_counter()
    graphs = SentenceGraphs.of(test.texts) if recipe.model.kind == "hgr" else None
    parsed = time.perf_counter()
    held = reset_peak()
    scores = model_scores(model, split, test, graphs=graphs)
    scored = time.perf_counter()
    metrics_of_scores(scores, test.positives)
    peak = memory("VmHWM") - held
    times = {"graphs_s": parsed - began, "scores_s": scored - parsed, "ranks_s": time.perf_counter() - scored}
    return {**found, **{name: round(value, 1) for name, value in times.items()}, "peak_mb": round(peak / 1024)}


def reset_peak() -> int:
    """Reset the peak memory of this process; return its current memory in kB."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


def recipe_of(data: str, method: str, size: int) -> Recipe:
    recipe = read_recipe(f"msvd-{method}", [f"data.path={toml_text(data)}", f"model.embed_size={size}"])
    if not isinstance(recipe, Recipe):
        raise TypeError(method)
    return recipe


def steps(data: str, size: int, rounds: int, folder: Path) -> dict[str, Any]:
    splits = open_splits(recipe_of(data, "hgr", size))  # with graphs; VSE ignores them
    contestants = {name: Contestant(recipe_of(data, key, size), splits, folder) for name, key in MODELS.items()}
    for number in range(rounds + 1):
        for contestant in contestants.values():
            contestant.round(number)
    captions = {"5": 5 * len(splits.train.images), "10": 10 * len(splits.train.images)}
    captions["all"] = len(splits.train.captions)
    found: dict[str, Any] = {}
    for name, contestant in contestants.items():
        parts = contestant.clock.medians()
        seconds = parts["step"]["wall_ms"] / 1000
        epochs = {called: round(seconds * (count // 128), 1) for called, count in captions.items()}
        found[name] = {"parts": parts, "epoch_s": epochs, "waiting": round(contestant.waiting(rounds), 4)}
        if name.startswith("HGR"):
            found[name]["score_and_gradient_ms"] = score_costs(contestant, max(2, rounds // 2))
    return found


def show(size: int, found: dict[str, Any]) -> None:
    print(f"embedding {size}: milliseconds of a step of 128 pairs, wall (processor)")
    print(f"{'':8}" + "".join(f"{part:>16}" for part in (*PARTS, "step")))
    for name, each in found.items():
        cells = (each["parts"].get(part) for part in (*PARTS, "step"))
        row = (f"{cell['wall_ms']:.0f} ({cell['processor_ms']:.0f})" if cell else "" for cell in cells)
        print(f"{name:8}" + "".join(f"{cell:>16}" for cell in row))
    for name, each in found.items():
        epochs = ", ".join(f"{called} captions {seconds:.0f} s" for called, seconds in each["epoch_s"].items())
        score = each.get("score_and_gradient_ms")
        told = f"; score and gradient {score['fast']} ms, by definition {score['plain']} ms" if score else ""
        print(f"{name}: an epoch of {epochs}; {100 * each['waiting']:.1f} % waiting{told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=str(DATA), help="MSVD in HGR's layout")
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024], help="of the embedding")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-evaluation", action="store_true")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results: dict[str, Any] = {"threads": options.threads, "torch": torch.__version__, "steps": {}, "evaluation": {}}
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            results["steps"][size] = steps(options.data, size, options.rounds, Path(folder))
        if not options.json:
            show(size, results["steps"][size])
    context = multiprocessing.get_context("spawn")
    for size in [] if options.no_evaluation else options.sizes:
        for name in ("VSE∞", "HGR∞"):
            with context.Pool(1) as pool:
                cost = pool.apply(evaluation_cost, (options.data, MODELS[name], size, options.threads))
            results["evaluation"][f"{name} {size}"] = cost
            if not options.json:
                print(f"{name}, embedding {size}, test split: {cost}")
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
