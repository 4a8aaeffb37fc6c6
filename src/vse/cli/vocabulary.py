"""``vse data vocabulary``: the words of a data set's training captions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vse.cli.console import show
from vse.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class _Built:
    file: Path
    words: int
    captions: int
    min_count: int

    def to_json(self) -> dict[str, Any]:
        return {"file": str(self.file), "words": self.words, "captions": self.captions, "min_count": self.min_count}

    def render(self, console: Console) -> None:
        told = f"{self.words} words that occur {self.min_count} times or more in {self.captions} training captions"
        console.print(f"{told}, in {self.file}", markup=False, soft_wrap=True)


def vocabulary(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The data set; its training split is read.")],
    into: Annotated[Path, typer.Option(metavar="FILE", help="Where the vocabulary JSON is written.")],
    min_count: Annotated[int, typer.Option(metavar="N", min=1, help="How often a word must occur.")] = 4,
    split: Annotated[str, typer.Option(metavar="NAME", help="The split to read.")] = "train",
    as_json: JsonOption = False,
) -> None:
    """Collect the words of the training captions, and of no others."""
    from vse.data import open_data
    from vse.inputs import Vocabulary

    captions = open_data(path, split).captions
    words = Vocabulary.build(captions, min_count)
    words.save(into)
    show(_Built(into, len(words), len(captions), min_count), as_json=as_json)
