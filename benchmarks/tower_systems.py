"""Compare one training step of every two-tower system with VSE∞'s, in turns, in one process.

    python benchmarks/tower_systems.py            # 5 rounds
    python benchmarks/tower_systems.py --rounds 3 --json

The recipes are ``flickr8k-small`` and ``flickr8k-small-SYSTEM``: 128 pairs of 49 cells × 256 and a caption. Cells are
random, captions are drawn from 3,000 invented words with Zipf frequencies and have 7 to 18 of them. Each ratio is the
median over rounds of CPU seconds, after one step that is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from vse.models.system_config import NAMES
from vse.progress import SilentProgress
from vse.training.data import build_tokenizer, open_splits, training_pairs
from vse.training.distributed import Ranks
from vse.training.model import build_model
from vse.training.recipes import read_recipe
from vse.training.run_folder import RunFolder
from vse.training.trainer import Trainer

BASE = "flickr8k-small"
CELLS, WIDTH, WORDS, CAPTIONS, SEED = 49, 256, 3000, 5, 0
IMAGES = {"train": 1500, "dev": 20}


def write_data(folder: Path) -> None:
    """Write random cells and captions in the layout of precomputed sets."""
    draw = np.random.default_rng(SEED)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(draw.choice(letters, 6)) + "o" for _ in range(WORDS)]
    chances = 1 / np.arange(3, WORDS + 3)
    chances /= chances.sum()
    for split, count in IMAGES.items():
        np.save(folder / f"{split}_ims.npy", draw.standard_normal((count, CELLS, WIDTH), dtype=np.float32))
        lengths = draw.integers(7, 19, count * CAPTIONS)
        lines = (" ".join(words[each] for each in draw.choice(WORDS, length, p=chances)) for length in lengths)
        (folder / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")
        (folder / f"{split}_ids.txt").write_text("".join(f"{split}{number}\n" for number in range(count)))


def trainer_of(name: str, folder: Path) -> Trainer:
    """Return a trainer of a recipe at step 0."""
    recipe = read_recipe(name, [f"data.path={json.dumps(str(folder))}"])
    splits = open_splits(recipe)
    model = build_model(recipe, build_tokenizer(recipe, splits.train.captions), splits, name)
    pairs = training_pairs(recipe, model, splits.train)
    run, report = RunFolder(folder / "run"), SilentProgress()
    trainer = Trainer(
        recipe, model, pairs, splits.dev, run, Ranks(), report, stored_features=False, stopping=lambda: False
    )
    trainer.step.prepare(train_backbone=False)
    return trainer


def sizes(trainer: Trainer) -> dict[str, int]:
    """Return how many parameters the towers have, and how many only training needs."""
    found = {"towers": 0, "training only": 0}
    for name, parameter in trainer.model.named_parameters():
        found["training only" if name.startswith("auxiliary.") else "towers"] += parameter.numel()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    recipes = (BASE, *(f"{BASE}-{name}" for name in NAMES))
    seconds: dict[str, list[float]] = {name: [] for name in recipes}
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        trainers = {name: trainer_of(name, Path(folder)) for name in recipes}
        for number in range(options.rounds + 1):
            for name, trainer in trainers.items():
                batch = trainer.pairs.batch(0, trainer.pairs.order(0)[128 * number : 128 * (number + 1)])
                began = time.process_time()
                trainer.step(batch, number)
                seconds[name].append(time.process_time() - began)
    rows = {}
    for name, found in seconds.items():
        ratios = [ours / plain for ours, plain in zip(found[1:], seconds[BASE][1:], strict=True)]
        rows[name] = {**sizes(trainers[name]), "ratio": round(statistics.median(ratios), 2)}
    if options.json:
        print(json.dumps(rows))
        return
    for name, row in rows.items():
        print(f"{name:22} {row['towers']:>12,} {row['training only']:>12,} {row['ratio']:>8.2f}")


if __name__ == "__main__":
    main()
