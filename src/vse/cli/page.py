"""A page of results, and in text how the next one is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vse.cli.console import PlainResult

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Page:
    """What was found on page ``number``; ``more`` says whether another follows."""

    found: PlainResult
    number: int
    more: bool

    def to_json(self) -> dict[str, Any]:
        """That of what was found, which says itself whether more follow."""
        return self.found.to_json()

    def lines(self) -> list[str]:
        """Those of what was found, and one for the next page."""
        return self.found.lines() + ([f"more with --page {self.number + 1}"] if self.more else [])

    def render(self, console: Console) -> None:
        """The lines, beside what else is drawn."""
        from vse.index.results import say

        say(console, self.lines())
