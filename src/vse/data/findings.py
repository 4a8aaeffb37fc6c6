"""What a check has found, kind by kind: a count, and the first places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning"]
EXAMPLES = 20
"""How many places of a kind are kept; the others are counted."""


@dataclass(frozen=True)
class Finding:
    """``count`` flaws of one kind, the first :data:`EXAMPLES` places, and how many ``more`` there are."""

    severity: Severity
    kind: str
    count: int
    examples: tuple[str, ...]
    more: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "count": self.count, "examples": list(self.examples), "more": self.more}


@dataclass
class _Gathered:
    severity: Severity
    count: int = 0
    examples: list[str] = field(default_factory=list)
    more: int = 0


class Findings:
    """Gathers flaws. A flaw of a shared file is found again with every split, and counted once."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Gathered] = {}
        self._seen: set[tuple[str, str]] = set()

    def error(self, kind: str, place: str, count: int = 1) -> None:
        """Something that has to be mended before the data can be used; a place may have several flaws."""
        self._add("error", kind, place, count)

    def warning(self, kind: str, place: str, count: int = 1) -> None:
        """Something the user should know, and may have meant."""
        self._add("warning", kind, place, count)

    def _add(self, severity: Severity, kind: str, place: str, count: int) -> None:
        if (kind, place) in self._seen:
            return
        self._seen.add((kind, place))
        gathered = self._kinds.setdefault(kind, _Gathered(severity))
        gathered.count += count
        if len(gathered.examples) < EXAMPLES:
            gathered.examples.append(place)
        else:
            gathered.more += 1

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of a severity in the order in which their kinds first appeared."""
        return tuple(
            Finding(severity, kind, gathered.count, tuple(gathered.examples), gathered.more)
            for kind, gathered in self._kinds.items()
            if gathered.severity == severity
        )
