"""How long work tells its caller where it stands.

The library never prints: it calls a reporter that the caller hands in. Standard library only.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class ProgressReporter(Protocol):
    """What a long-running function calls, in the order start, advance and note as needed, finish.

    ``start`` may be called again for a second stage; the first one is then finished. ``note`` is allowed
    at any time, before ``start`` too. ``finish`` is harmless when nothing runs.
    """

    def start(self, total: int, description: str) -> None:
        """Begin a stage of ``total`` steps."""

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        """Count ``steps`` as done and, if given, change the description."""

    def note(self, message: str) -> None:
        """Say one line that is worth reading on its own."""

    def finish(self) -> None:
        """End the current stage."""


class SilentProgress:
    """A reporter that says nothing: the default of library calls."""

    def start(self, total: int, description: str) -> None:
        """Ignore the stage."""

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        """Ignore the steps."""

    def note(self, message: str) -> None:
        """Ignore the message."""

    def finish(self) -> None:
        """Nothing to end."""
