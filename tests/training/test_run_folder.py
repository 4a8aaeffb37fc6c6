"""A run's checkpoints at any moment, after any failure: the old one or the new one, nothing left."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tests.training.support_disk import (
    NEW,
    OLD,
    OPERATIONS,
    failing,
    full_disk,
    holds,
    killed_during,
    listed,
    needs_fork,
    state,
    tensors,
    write,
)

from vse.errors import InputError, VSEError
from vse.training.run_folder import RunFolder


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    """Waiting for the disk takes most of the time here, and whether it was waited for cannot be seen from outside."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def test_the_last_checkpoint_counts_and_is_the_only_one(tmp_path):
    """Values come back bit for bit; the older ones are removed."""
    folder = RunFolder(tmp_path)
    assert folder.read_checkpoint() is None
    for step in (1, 2, 99_999_999, 100_000_000):
        write(folder, step)
        assert holds(folder) == step
        assert listed(tmp_path) == {"checkpoint.json", f"checkpoint-{step:08d}"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failure_leaves_the_old_checkpoint_or_the_new_one(tmp_path, operation):
    """Every call of every operation fails once; then the same run resumes and nothing of the failure is left."""
    number = 0
    while True:
        number += 1
        path = tmp_path / str(number)
        path.mkdir()
        folder = RunFolder(path)
        write(folder, OLD)
        with failing(operation, number, full_disk) as fault:
            try:
                write(folder, NEW)
            except (OSError, VSEError) as error:
                assert len(str(error).splitlines()) == 1  # noqa: PT017 (both kinds are allowed, and success too)
        if not fault.fired:
            assert holds(folder) == NEW
            break
        assert holds(folder) in {OLD, NEW}
        again = RunFolder(path)
        again.clear_leftovers()
        assert holds(again) in {OLD, NEW}
        write(again, NEW)
        assert holds(again) == NEW
        write(again, NEW + 1)
        assert holds(again) == NEW + 1
        assert listed(path) == {"checkpoint.json", f"checkpoint-{NEW + 1:08d}"}
    assert number > 1 or operation in {"link"}


@needs_fork
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_kill_leaves_the_old_checkpoint_or_the_new_one(tmp_path, operation):
    """A process that dies at any call, without a chance to clean up; the next one resumes."""
    number, died = 0, True
    while died:
        number += 1
        path = tmp_path / str(number)
        path.mkdir()
        folder = RunFolder(path)
        write(folder, OLD)
        died = killed_during(operation, number, lambda folder=folder: write(folder, NEW))
        assert holds(folder) in ({OLD, NEW} if died else {NEW})
        folder.clear_leftovers()
        assert not [name for name in listed(path) if name.startswith(".writing-")]
        write(folder, NEW)
        assert holds(folder) == NEW
    assert number > 1 or operation in {"link"}


@needs_fork
def test_a_kill_leaves_nothing_behind_for_good(tmp_path):
    """After the next process has begun and written, only its checkpoint is there."""
    for number in (1, 2):  # of the state inside the hidden folder, and of the pointer
        path = tmp_path / str(number)
        path.mkdir()
        folder = RunFolder(path)
        write(folder, OLD)
        assert killed_during("open a stream", number, lambda folder=folder: write(folder, NEW))
        folder.clear_leftovers()
        write(folder, NEW)
        assert listed(path) == {"checkpoint.json", f"checkpoint-{NEW:08d}"}, number


def test_a_checkpoint_counts_only_when_it_is_on_the_disk(tmp_path, monkeypatch):
    """Tensors, state and the folders' entries are flushed before the pointer is replaced; removal comes last."""
    folder = RunFolder(tmp_path)
    write(folder, OLD)
    told: list[str] = []
    real_replace, real_rmtree = os.replace, shutil.rmtree

    def flushed(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)
        told.append(f"flush {str(name).replace(f'.writing-checkpoint-{NEW:08d}', 'hidden')}")

    def replaced(source: Any, target: Any) -> None:
        told.append(f"rename {Path(target).name}")
        real_replace(source, target)

    def removed(path: Any, **options: Any) -> None:
        if Path(path).is_dir():
            told.append(f"remove {Path(path).name}")
        real_rmtree(path, **options)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc to see which file is flushed")
    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(shutil, "rmtree", removed)
    write(folder, NEW)
    steps = [step.split(".json.")[0] for step in told]  # temporary files have random endings
    steps = [step for step, _ in itertools.groupby(steps)]  # twice in a row is as good as once
    assert steps == [
        "flush hidden/state.safetensors",
        "flush hidden/.state",
        "rename state.json",
        "flush hidden",
        f"rename checkpoint-{NEW:08d}",
        "flush .",
        "flush .checkpoint",
        "rename checkpoint.json",
        "flush .",
        f"remove checkpoint-{OLD:08d}",
    ]


def test_half_written_tensors_do_not_count(tmp_path, monkeypatch):
    """The disk fills up in the middle of the file: one line, the old checkpoint, no half of the new one."""
    folder = RunFolder(tmp_path)
    write(folder, OLD)
    real = safetensors.torch.save_file

    def half(values: Any, path: Path) -> None:
        real(values, path)
        os.truncate(path, path.stat().st_size // 2)
        full_disk()

    monkeypatch.setattr(safetensors.torch, "save_file", half)
    with pytest.raises(VSEError, match=r"checkpoint-00000240 could not be written \(No space left on device\)"):
        write(folder, NEW)
    assert holds(folder) == OLD
    assert listed(tmp_path) == {"checkpoint.json", f"checkpoint-{OLD:08d}"}


@pytest.mark.parametrize("operation", ["rename", "make a temporary file", "open a stream", "flush", "change a mode"])
def test_every_failure_to_write_is_told_in_the_same_way(tmp_path, operation):
    """The pointer too: the folder, the reason, and that the run can be continued."""
    for number in range(1, 10):
        path = tmp_path / str(number)
        path.mkdir()
        folder = RunFolder(path)
        write(folder, OLD)
        with failing(operation, number, full_disk) as fault:
            try:
                write(folder, NEW)
            except VSEError as error:
                told = str(error)
            else:
                told = ""
        if not fault.fired:
            break
        assert str(path) in told
        assert "No space left on device" in told
        assert "run the same command again to resume" in told


def test_other_errors_are_not_called_a_full_disk(tmp_path):
    """A mistake in the state is a mistake, and the old checkpoint stays."""
    folder = RunFolder(tmp_path)
    write(folder, OLD)
    with pytest.raises(ValueError, match="JSON"):
        folder.write_checkpoint(NEW, {"loss": float("nan")}, tensors(NEW))
    assert holds(folder) == OLD
    assert listed(tmp_path) == {"checkpoint.json", f"checkpoint-{OLD:08d}"}


def test_an_interrupt_is_not_swallowed(tmp_path):
    """It passes through; what it leaves is hidden and removed by the next process."""
    folder = RunFolder(tmp_path)
    write(folder, OLD)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), failing("write tensors", 1, interrupt):
        write(folder, NEW)
    assert holds(folder) == OLD
    folder.clear_leftovers()
    assert listed(tmp_path) == {"checkpoint.json", f"checkpoint-{OLD:08d}"}


def test_the_same_step_again_keeps_the_newest_state(tmp_path):
    """A run stopped at the last step of an epoch saves again after its evaluation, at the same step."""
    folder = RunFolder(tmp_path)
    write(folder, OLD)
    later = state(OLD) | {"best": {"rsum": 300.0}, "epoch": 1}
    folder.write_checkpoint(OLD, later, tensors(OLD))
    found = folder.read_checkpoint()
    assert found is not None
    assert found[0] == later


def test_a_folder_left_at_the_same_step_is_replaced(tmp_path):
    """A process that died after the rename and before the pointer: its folder does not stand in the way."""
    folder = RunFolder(tmp_path)
    write(folder, OLD)
    left = tmp_path / f"checkpoint-{NEW:08d}"
    left.mkdir()
    (left / "state.json").write_text("{}")
    (left / "other").write_text("x")
    write(folder, NEW)
    assert holds(folder) == NEW
    assert listed(left) == {"state.json", "state.safetensors"}


def damage_pointer(path: Path) -> None:
    (path / "checkpoint.json").write_text('{"folder": ')


def damage_name(path: Path) -> None:
    (path / "checkpoint.json").write_text("{}")


def lose_folder(path: Path) -> None:
    shutil.rmtree(path / f"checkpoint-{OLD:08d}")


def cut_tensors(path: Path) -> None:
    os.truncate(path / f"checkpoint-{OLD:08d}" / "state.safetensors", 100)


def lose_tensors(path: Path) -> None:
    (path / f"checkpoint-{OLD:08d}" / "state.safetensors").unlink()


@pytest.mark.parametrize("damage", [damage_pointer, damage_name, lose_folder, cut_tensors, lose_tensors])
def test_a_damaged_checkpoint_is_an_error_of_one_line(tmp_path, damage):
    """Never silence, and never a start from the beginning."""
    folder = RunFolder(tmp_path)
    write(folder, OLD)
    damage(tmp_path)
    with pytest.raises(InputError) as caught:
        folder.read_checkpoint()
    assert len(str(caught.value).splitlines()) == 1
    assert str(tmp_path) in str(caught.value)


FULL = """
import resource, sys
from pathlib import Path
import torch
from vse.errors import VSEError
from vse.training.run_folder import RunFolder
folder = RunFolder(Path(sys.argv[1]))
folder.write_checkpoint(1, {"step": 1}, {"a": torch.arange(5)})
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    folder.write_checkpoint(2, {"step": 2}, {"a": torch.zeros(100_000)})
except VSEError as error:
    print(error)
"""


def test_a_file_that_may_not_grow(tmp_path):
    """The system itself refuses to write: one line that says why and what to do, and the old checkpoint stays."""
    pytest.importorskip("resource")
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=120, check=True
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{tmp_path / 'checkpoint-00000002'} could not be written (")
    assert "too large" in line
    assert "the checkpoint before it is intact; make it writable or make room, and run the same command again" in line
    found = RunFolder(tmp_path).read_checkpoint()
    assert found is not None
    assert found[0] == {"step": 1}
    assert torch.equal(found[1]["a"], torch.arange(5))
    assert listed(tmp_path) == {"checkpoint.json", "checkpoint-00000001"}
