"""A run whose process is killed, or asked to end by a signal, resumes and ends as if it had not been."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.training.support import tiny_values, write_pairs, write_toml
from tests.training.support_runs import EVERY_STEP, SHORT, assert_same_run, interrupted, position

import vse
from vse.errors import VSEError
from vse.training import Recipe, train

# Imports once and forks, so that many processes can be killed: before a chosen operation on a file of the run.
FORKS = """
import json
import os
import signal
import sys
from pathlib import Path

from vse._util.strict import parse
from vse.training import Recipe, train
from vse.training.data import build_tokenizer, open_splits
from vse.training.model import build_model

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
    """Killed at random moments, interrupted, terminated: the same command resumes, and ends with the same bits.

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
            stopped = f"stopped at step {position(run)['step']}; run the same command again to resume"
            assert stopped in command.lines
        if (run / "best").exists():
            vse.load(run / "best")
    assert any(line.startswith("resuming at step ") for line in command.lines)
    for folder in (run, tmp_path / "whole"):
        interrupted(parsed, folder)
    assert_same_run(run, tmp_path / "whole")
