"""Progress: few lines in a log, a bar on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from vse.cli.progress import BarProgress, LineProgress
from vse.progress import ProgressReporter, SilentProgress


def bar() -> BarProgress:
    return BarProgress(Console(file=io.StringIO(), force_terminal=True, width=80))


@pytest.mark.parametrize("make", [SilentProgress, bar, lambda: LineProgress(io.StringIO())])
def test_progress_accepts_calls_in_any_order(make):
    """Notes first, a second start, steps after the end."""
    reporter = make()
    assert isinstance(reporter, ProgressReporter)
    reporter.finish()
    reporter.advance()
    reporter.note("before [bold]anything")
    reporter.start(2, "one")
    reporter.start(0, "two [of] two")
    reporter.advance(5, "beyond the total")
    reporter.finish()
    reporter.finish()


def test_progress_lines_are_few_and_estimate_time():
    """A thousand quick steps write a line per interval, and the estimate is proportional."""
    now, stream = [0.0], io.StringIO()
    reporter = LineProgress(stream, every=10.0, clock=lambda: now[0])
    reporter.start(1000, "training")
    for _ in range(1000):
        now[0] += 0.03125  # exact in binary, so that the lines fall on exact steps
        reporter.advance()
    reporter.finish()
    assert stream.getvalue().splitlines() == [
        "training: 1000 steps",
        "training: 320/1000, about 21 s left",
        "training: 640/1000, about 11 s left",
        "training: 960/1000, about 1.2 s left",
        "training: 1000/1000 in 31 s",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(3.21, "3.2 s"), (59, "59 s"), (125, "2 min 5 s"), (7260, "2 h 1 min")])
def test_progress_durations_are_readable(seconds, text):
    """The last line gives the time in seconds, minutes or hours."""
    now, stream = [0.0], io.StringIO()
    reporter = LineProgress(stream, clock=lambda: now[0])
    reporter.start(1, "work")
    now[0] = seconds
    reporter.finish()
    assert stream.getvalue().splitlines()[-1] == f"work: 0/1 in {text}"


def test_progress_notes_are_not_markup():
    """Brackets in a message are text, not formatting."""
    console = Console(file=io.StringIO(), force_terminal=False, width=80)
    BarProgress(console).note("shape [bold](3, 4)[/]")
    assert console.file.getvalue() == "shape [bold](3, 4)[/]\n"
