"""A run's folder at any moment, after any failure: the old checkpoint or the new one, models whole, nothing left."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tests.support_models import assert_same_model, build

from vse.errors import InputError, VSEError
from vse.storage import load_model, save_model
from vse.training.run_folder import RunFolder

# Everything that touches the disk, at the level where the standard library and safetensors do it.
OPERATIONS: dict[str, tuple[Any, str]] = {
    "make a folder": (os, "mkdir"),
    "rename": (os, "replace"),
    "flush": (os, "fsync"),
    "open a descriptor": (os, "open"),
    "close a descriptor": (os, "close"),
    "open a stream": (os, "fdopen"),
    "open a file": (io, "open"),
    "change a mode": (os, "chmod"),
    "unlink": (os, "unlink"),
    "link": (os, "symlink"),
    "list": (os, "scandir"),
    "remove a folder": (shutil, "rmtree"),
    "make a temporary file": (tempfile, "mkstemp"),
    "write tensors": (safetensors.torch, "save_file"),
}
OLD, NEW = 120, 240


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    """Waiting for the disk takes most of the time here, and whether it was waited for cannot be seen from outside."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def state(step: int) -> dict[str, Any]:
    return {"step": step, "best": None, "sums": {"loss": step / 7}}


def tensors(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {"model|a": torch.randn(40, 3, generator=generator).T, "model|n": torch.tensor(step), "e": torch.zeros(0)}


def write(folder: RunFolder, step: int) -> None:
    folder.write_checkpoint(step, state(step), tensors(step))


def holds(folder: RunFolder) -> int:
    """The step of the checkpoint that counts, every value of which is compared."""
    found = folder.read_checkpoint()
    assert found is not None
    known, arrays = found
    step = int(known["step"])
    assert known == state(step)
    expected = tensors(step)
    assert arrays.keys() == expected.keys()
    for name, value in expected.items():
        assert arrays[name].dtype == value.dtype
        assert torch.equal(arrays[name], value)
    return step


def listed(path: Path) -> set[str]:
    return {each.name for each in path.iterdir()}


class Fault:
    """The n-th call of an operation fails before it does anything, or ends the process."""

    def __init__(self, number: int, effect: Callable[[], None]) -> None:
        self.left, self.effect, self.fired = number, effect, False

    def around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.fired = True
                self.effect()
            return real(*arguments, **options)

        return call


@contextmanager
def failing(operation: str, number: int, effect: Callable[[], None]) -> Iterator[Fault]:
    place, name = OPERATIONS[operation]
    fault = Fault(number, effect)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, fault.around(getattr(place, name)))
        yield fault


def full_disk() -> None:
    raise OSError(28, "No space left on device")


def killed_during(operation: str, number: int, work: Callable[[], object]) -> bool:
    """Run ``work`` in a child that dies, without any clean-up, at that call; False if it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with failing(operation, number, lambda: os._exit(9)):
                work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, 9}
    return code == 9


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


# Checkpoints


def test_the_last_checkpoint_counts_and_is_the_only_one(tmp_path):
    """Values come back to the bit; the older ones are removed."""
    folder = RunFolder(tmp_path)
    assert folder.read_checkpoint() is None
    for step in (1, 2, 99_999_999, 100_000_000):
        write(folder, step)
        assert holds(folder) == step
        assert listed(tmp_path) == {"checkpoint.json", f"checkpoint-{step:08d}"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failure_leaves_the_old_checkpoint_or_the_new_one(tmp_path, operation):
    """Every call of every operation fails once; then the same run goes on and nothing of the failure is left."""
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
    """A process that dies at any call, without a chance to clean up; the next one goes on."""
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
        assert "run the same command again to continue" in told


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


# Models and links


@pytest.fixture(scope="module")
def models():
    return {OLD: build(seed=1), NEW: build(seed=2)}


@pytest.fixture(scope="module")
def saved(models, tmp_path_factory) -> Path:
    return save_model(models[OLD], tmp_path_factory.mktemp("saved") / "model", draw=False)


def keep(folder: RunFolder, step: int, models: dict, suffix: str = "") -> str:
    name = f"model-{step:08d}{suffix}"
    folder.write_model(name, lambda path: save_model(models[step], path, draw=False))
    return name


def leads_to(path: Path, models: dict) -> int:
    """The step of the model behind a link, all of whose files belong together."""
    assert path.is_symlink()
    assert not path.readlink().is_absolute()  # so that a run can be moved
    found = load_model(path)
    step = next(step for step, model in models.items() if model.fingerprint() == found.fingerprint())
    assert_same_model(found, models[step])
    return step


def test_links_lead_to_models(tmp_path, models):
    """One folder for each step, links to them, and only what no link leads to is removed."""
    folder = RunFolder(tmp_path)
    old = keep(folder, OLD, models)
    folder.show_models({"last": old, "best": old})
    new, averaged = keep(folder, NEW, models), keep(folder, NEW, models, "-averaged")
    assert leads_to(tmp_path / "last", models) == OLD  # until the checkpoint that knows the new one counts
    folder.show_models({"last": new, "best": old, "averaged": averaged})
    assert leads_to(tmp_path / "last", models) == leads_to(tmp_path / "averaged", models) == NEW
    assert leads_to(tmp_path / "best", models) == OLD
    assert listed(tmp_path) == {"best", "last", "averaged", old, new, averaged}
    folder.show_models({"last": new, "best": new, "averaged": averaged})
    assert leads_to(tmp_path / "best", models) == NEW
    assert listed(tmp_path) == {"best", "last", "averaged", new, averaged}


def test_links_of_a_copied_folder_are_mended(tmp_path, models):
    """Copied with links followed, they are folders; copied without, they are gone: both are links again."""
    folder = RunFolder(tmp_path)
    name = keep(folder, OLD, models)
    shutil.copytree(tmp_path / name, tmp_path / "last")
    folder.show_models({"last": name, "best": name})
    assert leads_to(tmp_path / "last", models) == leads_to(tmp_path / "best", models) == OLD


def test_a_model_that_is_lost_is_missed(tmp_path, models):
    """The folder was not copied whole: said at once, and nothing is removed."""
    folder = RunFolder(tmp_path)
    name = keep(folder, OLD, models)
    with pytest.raises(InputError, match="model-00000999, the best model of this run, is missing"):
        folder.show_models({"best": "model-00000999"})
    assert listed(tmp_path) == {name}


def test_a_disk_without_links_gets_copies(tmp_path, models, monkeypatch):
    """The same names lead to the same models."""

    def refused(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "symlink_to", refused)
    folder = RunFolder(tmp_path)
    for step in (OLD, NEW):
        folder.show_models({"last": keep(folder, step, models)})
        assert load_model(tmp_path / "last").fingerprint() == models[step].fingerprint()


@pytest.mark.parametrize("operation", sorted(OPERATIONS.keys() - {"list", "close a descriptor"}))
@pytest.mark.parametrize("kill", [pytest.param(True, marks=needs_fork), False])
def test_a_link_never_leads_to_half_a_model(tmp_path, models, saved, operation, kill):
    """A failure or a kill at any call: the link leads to the old model or to the new one, and the next try works."""
    number, happened = 0, True
    while happened:
        number += 1
        path = tmp_path / str(number)
        path.mkdir()
        folder = RunFolder(path)
        shutil.copytree(saved, path / f"model-{OLD:08d}")
        folder.show_models({"last": f"model-{OLD:08d}"})

        def change(folder: RunFolder = folder) -> None:
            folder.show_models({"last": keep(folder, NEW, models)})

        if kill:
            happened = killed_during(operation, number, change)
        else:
            with failing(operation, number, full_disk) as fault:
                try:
                    change()
                except (OSError, VSEError) as error:
                    assert len(str(error).splitlines()) == 1  # noqa: PT017
            happened = fault.fired
        assert leads_to(path / "last", models) in ({OLD, NEW} if happened else {NEW})
        folder.clear_leftovers()
        change()
        assert leads_to(path / "last", models) == NEW
        assert {name for name in listed(path) if not name.startswith(".")} == {"last", f"model-{NEW:08d}"}
        shutil.rmtree(path)


def test_leftovers_are_cleared_and_nothing_else(tmp_path, models):
    """What a killed process was writing goes; checkpoints, models and other people's files stay."""
    folder = RunFolder(tmp_path)
    write(folder, OLD)
    keep(folder, OLD, models)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".git").mkdir()
    before = listed(tmp_path)
    (tmp_path / ".writing-checkpoint-00000240" / "deep").mkdir(parents=True)
    (tmp_path / ".writing-model-00000240").mkdir()
    folder.clear_leftovers()
    assert listed(tmp_path) == before
