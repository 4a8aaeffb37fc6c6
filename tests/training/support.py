"""A tiny data set that can be learned, and recipes that train on it in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vse.strict import parse
from vse.training.recipe import Recipe

COLOURS = ("red", "green", "blue", "black", "white", "grey")
THINGS = ("dog", "cat", "man", "car", "tree", "ball", "bird", "house")
REGIONS, WIDTH = 6, 16


def write_pairs(folder: Path, train: int = 48, dev: int = 12, *, captions: int = 3, seed: int = 0) -> Path:
    """Region features and captions in the layout of precomputed sets: each image shows a thing of a colour.

    One region holds the sum of two fixed directions, the others noise; a caption names both.
    """
    generator = np.random.default_rng(seed)
    directions = np.random.default_rng(99).standard_normal((len(COLOURS) + len(THINGS), WIDTH)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("dev", dev), ("test", dev)):
        features = 0.3 * generator.standard_normal((count, REGIONS, WIDTH)).astype(np.float32)
        lines = []
        for image in features:
            colour, thing = generator.integers(len(COLOURS)), generator.integers(len(THINGS))
            image[generator.integers(REGIONS)] += directions[colour] + directions[len(COLOURS) + thing]
            words = f"{COLOURS[colour]} {THINGS[thing]}"
            lines += [f"a {words}", f"there is one {words} here", f"the {words} is in the picture"][:captions]
        np.save(folder / f"{split}_ims.npy", features)
        (folder / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")
        (folder / f"{split}_ids.txt").write_text("".join(f"{split}{n}\n" for n in range(count)))
    return folder


def tiny_values(data: Path, /, **changes: Any) -> dict[str, Any]:
    """The tables of a recipe over :func:`write_pairs`; ``changes`` are laid over, table by table."""
    values: dict[str, Any] = {
        "seed": 3,
        "data": {"path": str(data), "min_count": 1},
        "model": {
            "embed_size": 16,
            "image": {"kind": "region", "feature_size": WIDTH, "hidden_size": 8, "head": "linear"},
            "text": {"kind": "bigru", "word_size": 8},
        },
        "schedule": {"epochs": 3, "batch_size": 16, "decay_epochs": 1},
        "loss": {"objective": "contrastive"},
        "optimizer": {"lr": 0.01},
        "run": {"threads": 1, "readers": 1},
    }
    for table, given in changes.items():
        values[table] = values.get(table, {}) | given if isinstance(given, dict) else given
    return values


def tiny_recipe(data: Path, /, **changes: Any) -> Recipe:
    """:func:`tiny_values` as a recipe."""
    return parse(Recipe, tiny_values(data, **changes), "test")
