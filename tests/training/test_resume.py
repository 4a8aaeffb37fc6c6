"""A run that is interrupted, at any moment and in any way, ends as if it had not been."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.support_models import BERT, RESNET, SIDE, write_wordpieces
from tests.training.support import tiny_recipe, tiny_values, write_pairs, write_pictures
from tests.training.support_runs import (
    EVERY_STEP,
    SHORT,
    Interrupting,
    assert_same_run,
    checkpoint,
    interrupted,
    position,
)

from vse.encoders.transformer_text import create_transformer
from vse.progress import SilentProgress
from vse.training import Recipe, train
from vse.training.data import build_tokenizer, open_splits
from vse.training.log import read_metrics
from vse.training.model import build_model

Make = Callable[[Path], Recipe]


def step_by_step(recipe: Recipe, folder: Path) -> int:
    """Train with a new beginning after every step; the number of beginnings."""
    steps, beginnings = -1, 0
    while (folder / "checkpoint.json").is_file() is False or position(folder)["step"] > steps:
        steps = position(folder)["step"] if (folder / "checkpoint.json").is_file() else 0
        reporter = _SecondStep()
        with pytest.raises(KeyboardInterrupt):
            train(recipe, folder, progress=reporter)
        beginnings += 1
    return beginnings


class _SecondStep(Interrupting):
    """Ctrl-C in the second step: the first has been saved, the second has changed the weights and has not."""

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        if description is not None:
            self.seen += 1
            if self.seen == 2:
                raise KeyboardInterrupt

    def start(self, total: int, description: str) -> None:
        """Only steps count."""

    def note(self, message: str) -> None:
        """Only steps count."""


def _regions(folder: Path, **changes: Any) -> Recipe:
    run = EVERY_STEP | changes.pop("run", {})
    return tiny_recipe(
        write_pairs(folder / "data", 16, 6), **{"schedule": SHORT, "optimizer": {"lr": 0.03}} | changes, run=run
    )


def _collapsing(folder: Path) -> Recipe:
    """Features that hardly differ, and the hardest negatives from the first step on: the guard acts after ten steps."""
    data = write_pairs(folder / "data", 16, 6)
    for split in ("train", "dev"):
        features = np.load(data / f"{split}_ims.npy")
        np.save(data / f"{split}_ims.npy", (1 + 0.1 * features).astype(np.float32))
    loss = {"objective": "triplet", "negatives": "hardest", "warmup_epochs": 0}
    guard = {"action": "soften", "spread": 0.02, "patience": 1}
    return tiny_recipe(data, schedule=SHORT | {"epochs": 5}, loss=loss, guard=guard, run=EVERY_STEP)


def _bert(folder: Path) -> Recipe:
    """A tiny pretrained BERT with dropout."""
    pytest.importorskip("transformers")
    source = write_wordpieces(folder / "bert")
    torch.manual_seed(0)
    create_transformer({**BERT, "hidden_dropout_prob": 0.3}).save_pretrained(source)
    values = tiny_values(write_pairs(folder / "data", 16, 6), schedule=SHORT, run=EVERY_STEP)
    values["model"]["text"] = {"kind": "transformer", "pretrained": str(source), "pooling": "avg"}
    return Recipe.model_validate(values)


def _pictures(folder: Path) -> Recipe:
    """A tiny grid CNN that is trained itself from the second epoch on."""
    values = tiny_values(
        write_pictures(folder / "data"),
        schedule={"epochs": 3, "batch_size": 8, "decay_epochs": 1, "frozen_epochs": 1},
        run=EVERY_STEP,
    )
    backbone = {"name": "caffe-resnet", "options": RESNET}
    values["model"]["image"] = {"kind": "grid", "backbone": backbone, "image_size": SIDE}
    return Recipe.model_validate(values)


def _replaced(recipe: Recipe, table: str, **values: Any) -> Recipe:
    return recipe.model_copy(update={table: getattr(recipe, table).model_copy(update=values)})


def _residual(folder: Path) -> Recipe:
    """A head with batch norm."""
    recipe = _regions(folder)
    return _replaced(recipe, "model", image=recipe.model.image.model_copy(update={"head": "residual-mlp"}))


VARIANTS: dict[str, Make] = {
    "averaged": lambda folder: _regions(folder, run={"average": 0.9}),
    "double": lambda folder: _regions(folder, run={"precision": "fp64"}),
    "micro-batches": lambda folder: _regions(folder, run={"micro_batches": 2}),
    "drawn-captions": lambda folder: _replaced(_regions(folder), "data", captions_per_image=2),
    "annealed-cosine": lambda folder: _regions(
        folder, loss={"objective": "annealed"}, schedule=SHORT | {"decay": "cosine", "warmup_epochs": 0.5}
    ),
    "batch-norm": _residual,
    "softened": _collapsing,
    "dropout": _bert,
    "pictures": _pictures,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_in_every_step_the_result_is_the_same(variant, tmp_path):
    """Whatever a step depends on is in the checkpoint: optimizer, average, guard, statistics, place in the epoch;
    and what the networks draw does not depend on what was drawn before."""
    recipe = VARIANTS[variant](tmp_path)
    interrupted(recipe, tmp_path / "whole")
    beginnings = step_by_step(recipe, tmp_path / "parts")
    steps = [line for line in read_metrics(tmp_path / "whole") if line["kind"] == "step"]
    assert beginnings >= len(steps)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_the_variants_exercise_what_they_are_for(tmp_path):
    """The guard of the collapsing run is active over its interruptions, and dropout changes the losses."""
    interrupted(_collapsing(tmp_path / "a"), tmp_path / "softened")
    assert position(tmp_path / "softened")["guard"]["collapsed"]
    recipe = _bert(tmp_path / "b")
    interrupted(recipe, tmp_path / "dropping")
    source = Path(recipe.model.text.pretrained)
    config = json.loads((source / "config.json").read_text())
    assert config["hidden_dropout_prob"] == 0.3
    (source / "config.json").write_text(
        json.dumps(config | {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0})
    )
    interrupted(recipe, tmp_path / "keeping")
    assert read_metrics(tmp_path / "dropping")[0]["loss"] != read_metrics(tmp_path / "keeping")[0]["loss"]


@pytest.mark.slow
def test_interrupted_at_every_report_the_result_is_the_same(tmp_path):
    """With checkpoints at the ends of epochs only: before the first step, in a step, while evaluating an epoch."""
    recipe = _regions(tmp_path, run={"checkpoint_minutes": 0, "average": 0.9})
    reports = interrupted(recipe, tmp_path / "whole").seen
    assert reports >= 2 + 6 + 2  # the data, the start, six steps, two epochs
    for at in range(1, reports + 1):
        folder = tmp_path / f"at-{at}"
        interrupted(recipe, folder, at)
        interrupted(recipe, folder)
        assert_same_run(folder, tmp_path / "whole")


class _Signalling(SilentProgress):
    """Sends SIGINT to this process in the n-th step."""

    def __init__(self, step: int) -> None:
        self._left = step

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        self._left -= description is not None
        if self._left == 0:
            signal.raise_signal(signal.SIGINT)


def test_asked_to_stop_after_any_step_it_saves_that_step(tmp_path):
    """Also the last step of an epoch, before its evaluation, and the last of the run; then it resumes to the same."""
    recipe = _regions(tmp_path, run={"checkpoint_minutes": 0, "average": 0.9})
    interrupted(recipe, tmp_path / "whole")
    for step in range(1, 7):
        folder = tmp_path / f"at-{step}"
        with pytest.raises(KeyboardInterrupt):
            train(recipe, folder, progress=_Signalling(step))
        assert position(folder)["step"] == step
        interrupted(recipe, folder)
        assert_same_run(folder, tmp_path / "whole")


def test_a_frozen_backbone_is_trained_after_its_epochs_and_its_statistics_never(tmp_path):
    """Weights of the backbone: those of the start throughout epoch 1, others after it; batch-norm statistics always
    those of the start."""
    recipe = _pictures(tmp_path)
    splits = open_splits(recipe)
    start = build_model(recipe, build_tokenizer(recipe, splits.train.captions), splits, "start").state_dict()
    interrupted(recipe, tmp_path / "run", at=3 + 2 + 1)  # the data, start; two steps, their epoch; a third step
    assert position(tmp_path / "run")["epoch"] == 1

    def backbone() -> dict[str, torch.Tensor]:
        state = load_file(checkpoint(tmp_path / "run") / "state.safetensors")
        prefix = "model|image_encoder.backbone."
        return {name.removeprefix("model|"): value for name, value in state.items() if name.startswith(prefix)}

    def changed() -> set[str]:
        return {name for name, value in backbone().items() if not torch.equal(value, start[name])}

    assert len(backbone()) > 20
    assert changed() == set()
    interrupted(recipe, tmp_path / "run")
    statistics = {name for name in start if "running_" in name or "num_batches" in name}
    assert not changed() & statistics
    assert changed() == backbone().keys() - statistics


def test_the_number_of_readers_changes_nothing(tmp_path):
    """Batches are drawn by name, not by turn, and a run may be continued with another number of readers."""
    one, three = (_regions(tmp_path, run={"readers": readers}) for readers in (1, 3))
    interrupted(one, tmp_path / "one")
    interrupted(three, tmp_path / "three")
    assert_same_run(tmp_path / "three", tmp_path / "one")
    interrupted(one, tmp_path / "both", at=6)
    interrupted(three, tmp_path / "both")
    assert_same_run(tmp_path / "both", tmp_path / "one")


def test_a_finished_run_is_not_trained_again(tmp_path):
    """Its result is read, and no file changes."""

    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}

    recipe = _regions(tmp_path)
    first = train(recipe, tmp_path / "run")
    before = contents()
    reporter = Interrupting()
    again = train(recipe, tmp_path / "run", progress=reporter)
    assert contents() == before
    assert reporter.notes == [f"{tmp_path / 'run'}: this run is finished"]
    assert again.to_json() == first.to_json()


def test_resume_removes_partial_writes(tmp_path):
    """A finished run holds nothing hidden but its lock."""
    recipe = _regions(tmp_path)
    interrupted(recipe, tmp_path / "run", at=6)
    run = tmp_path / "run"
    (run / ".writing-checkpoint-00000099").mkdir()
    (run / ".checkpoint.json.abcdefgh").write_text("{")
    (run / ".best").symlink_to("model-00000099")
    interrupted(recipe, run)
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == [".lock"]
