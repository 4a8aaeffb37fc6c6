"""Report the progress of long-running functions to their caller.

The library never prints: it calls a reporter that the caller passes. Standard library only.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class ProgressReporter(Protocol):
    """The interface that long-running functions call: start, then advance and note as needed, then finish.

    Calling ``start`` again finishes the previous stage and begins another. ``note`` is allowed at any time, even before
    ``start``. ``finish`` has no effect if no stage is active.
    """

    def start(self, total: int, description: str) -> None:
        """Begin a stage of ``total`` steps."""

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        """Add ``steps`` to the completed steps and, if given, change the description."""

    def note(self, message: str) -> None:
        """Report one line worth reading on its own."""

    def finish(self) -> None:
        """End the current stage."""


class SilentProgress:
    """A reporter that ignores everything; the default of library calls."""

    def start(self, total: int, description: str) -> None:
        """Ignore the stage."""

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        """Ignore the steps."""

    def note(self, message: str) -> None:
        """Ignore the message."""

    def finish(self) -> None:
        """Do nothing."""
