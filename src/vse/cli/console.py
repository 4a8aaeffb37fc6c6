"""Where the command writes: data on stdout, narration on stderr.

rich is imported inside the functions, so that parsing a command line does not pay for it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TextIO, runtime_checkable

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

from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from rich.console import Console


PIPED_WIDTH = 120  # rich assumes 80 columns when it cannot ask, which cuts tables short in files and pipes


class Result(Protocol):
    """What a command shows at its end."""

    def to_json(self) -> dict[str, Any]:
        """The result as one JSON object: plain numbers, strings, lists and dictionaries."""

    def render(self, console: Console) -> None:
        """The result as a person reads it."""


@runtime_checkable
class PlainResult(Result, Protocol):
    """A result that is plain lines for a person too: these are written as they are, and rich is not loaded."""

    def lines(self) -> list[str]:
        """What :meth:`render` shows, without its wrapping and colours."""


def show(result: Result, *, as_json: bool) -> None:
    """Write a result to stdout."""
    if as_json:
        print_json(result.to_json())
    elif isinstance(result, PlainResult):
        print("".join(f"{line}\n" for line in result.lines()), end="")
    else:
        result.render(stdout_console())


def print_json(value: dict[str, Any]) -> None:
    """Write exactly one JSON object, in ASCII so that no encoding of a pipe can break it, and never NaN."""
    print(json.dumps(value, indent=2, allow_nan=False))


def stdout_console() -> Console:
    """A rich console for results."""
    from rich.console import Console

    known_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if known_width else PIPED_WIDTH, highlight=False)


@contextmanager
def progress_on_stderr() -> Iterator[ProgressReporter]:
    """A reporter for the time of the block: a bar on a terminal, else a few plain lines."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    reporter: ProgressReporter
    if sys.stderr.isatty() and console.is_interactive:
        reporter = BarProgress(console)
    else:
        reporter = LineProgress(sys.stderr)
    try:
        yield reporter
    finally:
        reporter.finish()


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
            transient=True,  # results follow on stdout; a finished bar would only be in their way
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
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class LineProgress:
    """A ``ProgressReporter`` for logs and pipes: a line at the start, one now and then, one at the end."""

    def __init__(
        self,
        stream: TextIO,
        every: float = SECONDS_BETWEEN_LINES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._every = every
        self._clock = clock
        self._lock = Lock()  # workers may report from several threads
        self._running = False

    def start(self, total: int, description: str) -> None:
        """Say what begins."""
        self.finish()
        with self._lock:
            self._total, self._done, self._description = total, 0, description
            self._began = self._last_line = self._clock()
            self._running = True
            self._write(f"{description}: {total} steps")

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        """Say where the work stands, if the last line is old enough."""
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
        """Say how much was done, and how long it took."""
        with self._lock:
            if self._running:
                self._running = False
                taken = _duration(self._clock() - self._began)
                self._write(f"{self._description}: {self._done}/{self._total} in {taken}")

    def _write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def _duration(seconds: float) -> str:
    """A length of time in the unit a person would choose."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
