"""Progress of a command: a bar on a terminal, occasional lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SECONDS_BETWEEN_LINES = 10.0


class BarProgress:
    """A ``ProgressReporter`` that draws a bar with the time spent and the time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def start(self, total: int, description: str) -> None:
        """Draw a new bar."""
        self.finish()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,  # results follow on stdout; a finished bar is clutter
        )
        self._task = self._bar.add_task(description, total=total)
        self._bar.start()

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, advance=steps, description=description)

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        self._console.print(message, markup=False)

    def finish(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class LineProgress:
    """A ``ProgressReporter`` for logs and pipes: a line at the start, one every few seconds, one at the end."""

    def __init__(
        self,
        stream: TextIO,
        every: float = SECONDS_BETWEEN_LINES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._every = every
        self._clock = clock
        self._lock = Lock()  # worker threads report too
        self._running = False

    def start(self, total: int, description: str) -> None:
        """Write what starts."""
        self.finish()
        with self._lock:
            self._total, self._done, self._description = total, 0, description
            self._began = self._last_line = self._clock()
            self._running = True
            self._write(f"{description}: {total} steps")

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        """Write how far the work is, if the last line is old enough."""
        with self._lock:
            if not self._running:
                return
            self._done += steps
            self._description = description or self._description
            now = self._clock()
            if now - self._last_line < self._every or self._done >= self._total:
                return
            self._last_line = now
            left = (now - self._began) * (self._total - self._done) / max(self._done, 1)
            self._write(f"{self._description}: {self._done}/{self._total}, about {_duration(left)} left")

    def note(self, message: str) -> None:
        """Write the message as a line."""
        with self._lock:
            self._write(message)

    def finish(self) -> None:
        """Write how much was done, and how long it took."""
        with self._lock:
            if self._running:
                self._running = False
                taken = _duration(self._clock() - self._began)
                self._write(f"{self._description}: {self._done}/{self._total} in {taken}")

    def _write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def _duration(seconds: float) -> str:
    """``seconds`` in a readable unit."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
