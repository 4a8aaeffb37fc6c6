"""A tiny dataset that can be learned, and recipes that train on it in a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tests.support_models import picture

from vse._util.strict import parse
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


def write_pictures(folder: Path, train_count: int = 16, dev: int = 4) -> Path:
    """PNG files and a table of their captions."""
    folder.mkdir(parents=True)
    rows = []
    for number in range(train_count + dev):
        Image.fromarray(picture(number)).save(folder / f"{number}.png")
        split = "train" if number < train_count else "dev"
        rows.append({"path": f"{number}.png", "caption": f"picture number word{number % 7}", "split": split})
    table = folder / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return table


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


def write_toml(path: Path, values: dict[str, Any]) -> Path:
    """Tables as one line each."""

    def inline(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key} = {inline(each)}" for key, each in value.items()) + "}"
        return "[" + ", ".join(map(inline, value)) + "]" if isinstance(value, list) else json.dumps(value)

    path.write_text("".join(f"{key} = {inline(value)}\n" for key, value in values.items()))
    return path
