"""A run that is interrupted, at any moment and in any way, ends as if it had not been."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tests.support_models import BERT, RESNET, SIDE, picture, write_wordpieces
from tests.training.support import tiny_recipe, tiny_values, write_pairs
from tests.training.test_ensemble import write_toml

import vse
from vse.encoders.transformer_text import create_transformer
from vse.errors import VSEError
from vse.progress import SilentProgress
from vse.training import Recipe, train
from vse.training.build import build_model, build_tokenizer, open_splits
from vse.training.metrics_log import read_metrics

EVERY_STEP: dict[str, Any] = {"checkpoint_minutes": 1e-6, "threads": 1, "readers": 1}
SHORT = {"epochs": 2, "batch_size": 16, "decay_epochs": 1}
Make = Callable[[Path], Recipe]


class Interrupting(SilentProgress):
    """Presses Ctrl-C at the n-th report; and at the last one, since the pictures take longer than the training."""

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
    """Train until report ``at``, or until only the pictures and ``result.json`` are missing."""
    reporter = Interrupting(at)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, folder, progress=reporter)
    return reporter


def checkpoint(folder: Path) -> Path:
    return folder / json.loads((folder / "checkpoint.json").read_text())["folder"]


def position(folder: Path) -> dict[str, Any]:
    return json.loads((checkpoint(folder) / "state.json").read_text())


def assert_same_run(found: Path, expected: Path) -> None:
    """Equal to the bit: every tensor of the checkpoint, where the run stands, its metrics, and its models."""
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
    """Whatever a step depends on is in the checkpoint: optimiser, average, guard, statistics, place in the epoch;
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
    """Also the last step of an epoch, before its evaluation, and the last of the run; then it goes on to the same."""
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


# Imports once and forks, so that many processes can be killed: before a chosen operation on a file of the run.
FORKS = """
import json
import os
import signal
import sys
from pathlib import Path

from vse.strict import parse
from vse.training import Recipe, train
from vse.training.build import build_model, build_tokenizer, open_splits

EVENTS = {"open", "os.rename", "os.remove", "os.symlink", "os.truncate", "os.mkdir", "os.rmdir", "os.chmod"}


def work(recipe, run, operations):
    seen = 0

    def count(event, arguments):
        nonlocal seen
        if event in EVENTS and str(run) in str(arguments[:2]):
            seen += 1
            if seen == operations:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    try:
        train(recipe, run)
        os._exit(0)
    except BaseException as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)


recipe = parse(Recipe, json.loads(sys.argv[1]), "test")
splits = open_splits(recipe)
model = build_model(recipe, build_tokenizer(recipe, splits.train.captions), splits, "warm")
model.encode_images(splits.dev.images)  # loads what the children would load each for themselves
model.encode_texts(splits.dev.captions, unknown="allow")
import torch._dynamo, matplotlib.pyplot
for line in sys.stdin:
    operations, run = line.rstrip().split(" ", 1)
    child = os.fork()
    if child == 0:
        work(recipe, Path(run), int(operations))
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Forks:
    """Processes that train a recipe and are killed before their n-th operation on the run's files."""

    def __init__(self, values: dict[str, Any]) -> None:
        command = [sys.executable, "-c", FORKS, json.dumps(values)]
        self._parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *error: object) -> None:
        self._parent.communicate(timeout=30)

    def train(self, run: Path, operations: int) -> int:
        """The exit code; -9 if killed."""
        self._parent.stdin.write(f"{operations} {run}\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())


@pytest.mark.slow
def test_killed_before_any_operation_on_a_file_the_result_is_the_same(tmp_path):
    """kill -9 between any two operations, again and again, also while saving; the best model always loads."""
    values = tiny_values(write_pairs(tmp_path / "data", 16, 6), schedule=SHORT, run=EVERY_STEP | {"average": 0.9})
    interrupted(Recipe.model_validate(values), tmp_path / "whole")
    draw = random.Random(5)
    kills = 0
    with Forks(values) as forks:
        operations = 25  # beyond the first record of the run
        while (code := forks.train(tmp_path / "run", operations)) == -signal.SIGKILL:
            kills += 1
            if (tmp_path / "run" / "best").exists():
                assert vse.load(tmp_path / "run" / "best").embed_size == 16
            operations = draw.randint(12, 160)  # the end of an epoch takes about a hundred
        assert code == 0
        for operations in range(26, 48):  # each one of the second checkpoint, and of the removal of the first
            run = tmp_path / f"run-{operations}"
            assert [forks.train(run, operations), forks.train(run, 16)] == [-signal.SIGKILL] * 2
            assert position(run)["step"] in {1, 2}
    assert kills >= 5
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_killed_before_the_run_is_recorded_the_same_command_begins_again(tmp_path):
    """The folder is the run's own from its first file on."""
    values = tiny_values(write_pairs(tmp_path / "data", 16, 6), schedule=SHORT, run=EVERY_STEP)
    codes = []
    with Forks(values) as forks:
        for operations in range(2, 8):
            assert forks.train(tmp_path / f"run-{operations}", operations) == -signal.SIGKILL
            codes.append(forks.train(tmp_path / f"run-{operations}", 40))
    assert codes == [-signal.SIGKILL] * 6


def test_what_a_killed_process_was_writing_is_removed(tmp_path):
    """A finished run holds nothing hidden but its lock."""
    recipe = _regions(tmp_path)
    interrupted(recipe, tmp_path / "run", at=6)
    run = tmp_path / "run"
    (run / ".writing-checkpoint-00000099").mkdir()
    (run / ".checkpoint.json.abcdefgh").write_text("{")
    (run / ".best").symlink_to("model-00000099")
    interrupted(recipe, run)
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == [".lock"]


class Command:
    """``vse train`` as a process."""

    def __init__(self, recipe: Path, into: Path, *more: str) -> None:
        arguments = [sys.executable, "-m", "vse", "train", str(recipe), "--into", str(into), "--json", *more]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._training = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if line.startswith("training: "):
                self._training.set()

    def wait_until_training(self) -> None:
        assert self._training.wait(60), self.lines

    def end(self) -> int:
        code = self.process.wait(60)
        self._listener.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.mark.slow
def test_the_command_continues_after_every_signal(tmp_path):
    """Killed at random moments, interrupted, terminated: the same command goes on, and ends with the same bits.

    SIGINT and SIGTERM save a checkpoint of the last step and exit with 130. While a process trains, another one is
    told so.
    """
    schedule = {"epochs": 20, "batch_size": 16, "decay_epochs": 1}
    values = tiny_values(write_pairs(tmp_path / "data", 24, 6), schedule=schedule, run=EVERY_STEP | {"average": 0.9})
    recipe, run = write_toml(tmp_path / "tiny.toml", values), tmp_path / "run"
    parsed = Recipe.model_validate(values)
    draw = random.Random(11)
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        command = Command(recipe, run)
        command.wait_until_training()
        time.sleep(draw.uniform(0.05, 0.5))
        with pytest.raises(VSEError, match=rf"is being written by process {command.process.pid}: wait for it"):
            train(parsed, run)
        os.kill(command.process.pid, number)
        code = command.end()
        if number == signal.SIGKILL:
            assert code == -signal.SIGKILL
        else:
            assert (code, command.lines[-1]) == (130, "vse: interrupted")
            stopped = f"stopped at step {position(run)['step']}; run the same command again to continue"
            assert stopped in command.lines
        if (run / "best").exists():
            vse.load(run / "best")
    assert any(line.startswith("continuing at step ") for line in command.lines)
    for folder in (run, tmp_path / "whole"):
        interrupted(parsed, folder)
    assert_same_run(run, tmp_path / "whole")
