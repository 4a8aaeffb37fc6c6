"""Time and peak memory of each file that workers decode, and of the process that gives it to them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from vse._util.worker_process import DEFAULT_MEMORY, FREE
from vse._util.workers import WorkerPool, _Process

LIMIT = 60.0
"""Seconds for one file: a safety limit on a busy machine, since the product itself ends everything here."""
WORKER = DEFAULT_MEMORY + FREE + 150_000_000
"""Bytes of a worker: what all may share, what each may take without asking, and what it holds besides."""


class Measured:
    """What was decoded, by task and name: the longest time in seconds, and the largest peak of its worker in bytes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}
        self.grown = 0
        self._began: dict[int, tuple[str, float]] = {}

    def begin(self, process: _Process, header: Mapping[str, Any]) -> None:
        name = f"{header['task']} {header['arguments'].get('name', '')}"
        _forget_peak(process._popen.pid)
        self._began[process._popen.pid] = name, time.monotonic()

    def look(self, process: _Process) -> None:
        """Record the worker's peak: its task has ended, or it is about to be killed."""
        name, began = self._began.get(process._popen.pid, ("start", time.monotonic()))
        self.seconds[name] = max(self.seconds.get(name, 0.0), time.monotonic() - began)
        self.peaks[name] = max(self.peaks.get(name, 0), peak_memory(process._popen.pid))

    def check(self, *, parent: int) -> None:
        """Expect every file within the bounds, and this process within ``parent`` bytes more than before."""
        assert self.seconds, "nothing was decoded"
        assert {name: took for name, took in self.seconds.items() if took > LIMIT} == {}
        assert {name: peak for name, peak in self.peaks.items() if peak > WORKER} == {}
        assert self.grown < parent


@contextmanager
def measured() -> Iterator[Measured]:
    """Measure what workers decode within the context, also those that end or are killed meanwhile."""
    found, send = Measured(), _Process.send
    give_up, kill = WorkerPool._give_up, _Process.kill

    def sending(self: _Process, header: Mapping[str, Any], content: bytes = b"") -> None:
        if "task" in header:
            found.begin(self, header)
        send(self, header, content)

    def giving_up(self: WorkerPool, process: _Process, *given: Any, **named: Any) -> None:
        found.look(process)
        give_up(self, process, *given, **named)

    def killing(self: _Process) -> None:
        found.look(self)
        kill(self)

    _forget_peak("self")
    before = peak_memory("self")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Process, "send", sending)
        patch.setattr(WorkerPool, "_give_up", giving_up)
        patch.setattr(_Process, "kill", killing)
        yield found
    found.grown = peak_memory("self") - before


def peak_memory(process: int | str) -> int:
    """Return the most memory that a process held since :func:`_forget_peak`; 0 if it is gone, or where none is told."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM"):
                return 1024 * int(line.split()[1])
    return 0


def _forget_peak(process: int | str) -> None:
    with suppress(OSError):  # some containers forbid it: the peak is then that of all files before, too
        Path(f"/proc/{process}/clear_refs").write_text("5")
