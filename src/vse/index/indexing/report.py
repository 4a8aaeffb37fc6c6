"""What bringing a collection up to date with a folder came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vse.index.scan import Problem
from vse.inputs.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

COUNTS = ("new", "changed", "touched", "moved", "removed", "kept", "waiting", "skipped")


@dataclass(frozen=True)
class IndexReport:
    """Files by what became of them, and what stood in the way.

    ``touched`` files have another time or fewer captions, and the same content; ``kept`` ones were not found and may
    still be there; ``waiting`` ones are being written, or are missing while others are being written; ``skipped`` are
    as they were.
    ``images`` counts the pictures and frames that went through the model, in ``seconds`` of reading and computing.
    ``problems`` are files that could not be used; they are tried again the next time.
    """

    root: str
    new: int = 0
    changed: int = 0
    touched: int = 0
    moved: int = 0
    removed: int = 0
    kept: int = 0
    waiting: int = 0
    skipped: int = 0
    images: int = 0
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds if self.images else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "root": self.root,
            **{name: getattr(self, name) for name in COUNTS},
            "images": self.images,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.images_per_second, 2),
            "problems": [{"path": problem.path, "reason": problem.reason} for problem in self.problems],
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """The counts in one line, then the notes, then the problems."""
        counts = [f"{getattr(self, name):,} {name}" for name in COUNTS if getattr(self, name)]
        rate = f" ({self.images_per_second:.1f} images/s)" if self.images else ""
        said = [f"{self.root}: {', '.join(counts) or 'no pictures or clips'}{rate}", *self.notes]
        if self.problems:
            said.append(f"{len(self.problems):,} that could not be used:")
            said.extend(f"  {problem}" for problem in self.problems)
        return [printable(line) for line in said]

    def render(self, console: Console) -> None:
        """The lines as they are, however long: a path that is broken over two lines cannot be copied."""
        from rich.text import Text

        for line in self.lines():
            console.print(Text(line), soft_wrap=True)
