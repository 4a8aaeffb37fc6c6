"""Interrupted runs, and their exact comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import vse
from vse.progress import SilentProgress
from vse.training import Recipe, train

EVERY_STEP: dict[str, Any] = {"checkpoint_minutes": 1e-6, "threads": 1, "readers": 1}
SHORT = {"epochs": 2, "batch_size": 16, "decay_epochs": 1}


class Interrupting(SilentProgress):
    """Presses Ctrl-C at the n-th report; and at the last one, since the images take longer than the training."""

    def __init__(self, at: int | None = None) -> None:
        self.seen = 0
        self._at = at
        self.notes: list[str] = []

    def _report(self) -> None:
        self.seen += 1
        if self.seen == self._at:
            raise KeyboardInterrupt

    def start(self, total: int, description: str) -> None:
        self._report()

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        self._report()

    def note(self, message: str) -> None:
        self.notes.append(message)
        self._report()

    def finish(self) -> None:
        raise KeyboardInterrupt


def interrupted(recipe: Recipe, folder: Path, at: int | None = None) -> Interrupting:
    """Train until report ``at``, or until only the images and ``result.json`` are missing."""
    reporter = Interrupting(at)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, folder, progress=reporter)
    return reporter


def checkpoint(folder: Path) -> Path:
    return folder / json.loads((folder / "checkpoint.json").read_text())["folder"]


def position(folder: Path) -> dict[str, Any]:
    return json.loads((checkpoint(folder) / "state.json").read_text())


def assert_same_run(found: Path, expected: Path) -> None:
    """Equal exactly: every tensor of the checkpoint, where the run stands, its metrics, and its models."""
    ours, theirs = (load_file(checkpoint(folder) / "state.safetensors") for folder in (found, expected))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        assert ours[name].numpy().tobytes() == tensor.numpy().tobytes(), name
    assert position(found) == position(expected)
    assert (found / "metrics.jsonl").read_bytes() == (expected / "metrics.jsonl").read_bytes()
    links = {path.name for path in expected.iterdir() if path.is_symlink()}
    assert {path.name for path in found.iterdir() if path.is_symlink() and not path.name.startswith(".")} == links
    for link in links:
        assert (found / link).readlink() == (expected / link).readlink()
        assert vse.load(found / link).fingerprint() == vse.load(expected / link).fingerprint(), link
        weights = [(folder / link / "model.safetensors").read_bytes() for folder in (found, expected)]
        assert weights[0] == weights[1], f"{link}: equal tensors in files that differ"
