"""Output of the command: results on stdout, progress on stderr.

rich is imported inside the functions, so that parsing a command line does not load it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from rich.console import Console


PIPED_WIDTH = 120  # rich assumes 80 columns where it cannot ask, and truncates tables in files and pipes


class Result(Protocol):
    """What a command shows at its end; :mod:`vse.cli.render` has a renderer for each class of result."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as one JSON object: plain numbers, strings, lists and dictionaries."""


def show(result: Result, *, as_json: bool) -> None:
    """Write a result to stdout."""
    if as_json:
        print_json(result.to_json())
        return
    from vse.cli.render import is_plain, lines_of, render

    if is_plain(result):
        print("".join(f"{line}\n" for line in lines_of(result)), end="")
    else:
        render(result, stdout_console())


def print_json(value: dict[str, Any]) -> None:
    """Write exactly one JSON object: in ASCII, so that the encoding of a pipe cannot break it, and without NaN."""
    print(json.dumps(value, indent=2, allow_nan=False))


def stdout_console() -> Console:
    """Return a rich console for results."""
    from rich.console import Console

    known_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if known_width else PIPED_WIDTH, highlight=False)


@contextmanager
def progress_on_stderr() -> Iterator[ProgressReporter]:
    """Report progress within the block: a bar on a terminal, otherwise a few plain lines."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    reporter: ProgressReporter
    if sys.stderr.isatty() and console.is_interactive:
        from vse.cli.progress import BarProgress

        reporter = BarProgress(console)
    else:
        from vse.cli.progress import LineProgress

        reporter = LineProgress(sys.stderr)
    try:
        yield reporter
    finally:
        reporter.finish()
