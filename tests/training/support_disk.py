"""Checkpoints to write and compare, and a disk each operation of which can fail or end the process."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

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
