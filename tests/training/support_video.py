"""Videos that can be learned, written in HGR's layout, and recipes of the four models that train on them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.data.video_support import write_hgr
from tests.training.support import tiny_values

from vse._util.strict import parse
from vse.training import Recipe

THINGS = ("dog", "cat", "man", "woman", "bird", "boy")
ACTS = ("runs", "sleeps", "eats", "jumps", "swims")
WIDTH, MOST = 12, 7
VSE = {"kind": "vse", "embed_size": 16}
HGR = {"kind": "hgr", "embed_size": 16, "feature_size": WIDTH, "word_size": 8}
CALM = {"dropout": 0.0, "graph_dropout": 0.0}  # what dropout draws depends on parts and processes


def towers(pooling: str) -> dict[str, Any]:
    image = {"kind": "frames", "feature_size": WIDTH, "pooling": pooling}
    return VSE | {"image": image, "text": {"kind": "words", "word_size": 8, "pooling": pooling}}


MODELS: dict[str, dict[str, Any]] = {
    "vse-plus-plus": towers("avg"),
    "vse-infinity": towers("gpo"),
    "hgr": HGR,
    "hgr-infinity": HGR | {"video_pooling": "gpo", "sentence_pooling": "gpo"},
}


def write_videos(
    root: Path, train: int = 40, dev: int = 15, *, width: int = WIDTH, captions: int = 4, seed: int = 0
) -> Path:
    """Each video shows a thing that acts: two to seven frames near the sum of two directions, and sentences with both.

    Several videos show the same, so that sentences are shared.
    """
    generator = np.random.default_rng(seed)
    directions = np.random.default_rng(99).standard_normal((len(THINGS) + len(ACTS), width))
    told: dict[str, list[str]] = {}
    splits: dict[str, dict[str, np.ndarray]] = {}
    for split, count in (("train", train), ("val", dev), ("test", dev)):
        splits[split] = {}
        for number in range(count):
            thing, act = generator.integers(len(THINGS)), generator.integers(len(ACTS))
            shown = directions[thing] + directions[len(THINGS) + act]
            size = (int(generator.integers(2, MOST + 1)), width)
            frames = shown + 0.3 * generator.standard_normal(size)
            name = f"{split}/{number}"
            splits[split][name] = frames.astype(np.float16)
            noun, verb = THINGS[thing], ACTS[act]
            frame = ("a {}", "the {} outside", "one {} in a park", "{}")
            told[name] = [sentence.format(f"{noun} {verb}") for sentence in frame[:captions]]
    return write_hgr(root, told, splits)


def video_values(data: Path, model: str, /, **changes: Any) -> dict[str, Any]:
    """The tables of a recipe over :func:`write_videos`; ``changes`` are laid over, table by table."""
    table = changes.pop("model", {})
    augmentation = {"image": "none", "text": "none"}
    values = tiny_values(data, **{"augmentation": augmentation, "schedule": SCHEDULE} | changes)
    return values | {"model": MODELS[model] | table}


SCHEDULE = {"epochs": 2, "batch_size": 16, "decay_epochs": 0}


def video_recipe(data: Path, model: str, /, **changes: Any) -> Recipe:
    """:func:`video_values` as a recipe."""
    return parse(Recipe, video_values(data, model, **changes), "test")


@contextmanager
def without_matplotlib() -> Iterator[None]:
    """As in an install without it, where runs draw no images: these take longer than a small training."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("matplotlib", "matplotlib.figure"):
            patch.setitem(sys.modules, name, None)
        yield
