"""What an upgrade came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vse.index.scan import Problem
from vse.inputs.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

    from vse.index.collection import CollectionInfo


@dataclass(frozen=True)
class UpgradeReport:
    """``info`` is the collection with its new generation, which serves by now.

    ``encoded`` files went through the new model this time, ``resumed`` ones in an attempt that was cut short;
    ``left_out`` were not there, and ``problems`` are files that can no longer be used: both are forgotten.
    ``images`` counts the pictures and frames that went through the model, in ``seconds`` of reading and computing.
    """

    info: CollectionInfo
    encoded: int = 0
    resumed: int = 0
    left_out: int = 0
    images: int = 0
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds if self.images else 0.0

    def to_json(self) -> dict[str, Any]:
        info = self.info
        return {
            "index": info.where,
            "generation": info.generation,
            "model": info.model,
            "model_source": info.model_source,
            "dimensions": info.dimensions,
            "files": info.files,
            "items": info.items,
            "captions": info.captions,
            "encoded": self.encoded,
            "resumed": self.resumed,
            "left_out": self.left_out,
            "images": self.images,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.images_per_second, 2),
            "problems": [{"path": problem.path, "reason": problem.reason} for problem in self.problems],
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """The counts in one line, what serves now, then the notes, then the problems."""
        info = self.info
        counts = [f"{self.encoded:,} files encoded anew"]
        counts += [f"{self.resumed:,} encoded before the interruption"] if self.resumed else []
        counts += [f"{self.left_out:,} left out"] if self.left_out else []
        rate = f" ({self.images_per_second:.1f} images/s)" if self.images else ""
        said = [
            f"{info.where}: {', '.join(counts)}{rate}",
            f"generation {info.generation} serves: {info.files:,} files, {info.items:,} vectors of model {info.model}",
            f"'vse index' and 'vse search' use {info.model_source} for it from now on",
            *self.notes,
        ]
        if self.problems:
            said.append(f"{len(self.problems):,} that could not be used, and are no longer in it:")
            said.extend(f"  {problem}" for problem in self.problems)
        return [printable(line) for line in said]

    def render(self, console: Console) -> None:
        """The lines as they are, however long: a path that is broken over two lines cannot be copied."""
        from rich.text import Text

        for line in self.lines():
            console.print(Text(line), soft_wrap=True)
