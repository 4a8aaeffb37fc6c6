"""The recipes that come with vse, as ``vse train --list`` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vse.training.recipes import find_recipe, read_values

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class RecipeList:
    """Names, each with the sentence its file begins with."""

    names: Sequence[str]

    def _about(self, name: str) -> str:
        return str(read_values(find_recipe(name)).get("about", ""))

    def to_json(self) -> dict[str, Any]:
        return {"recipes": {name: self._about(name) for name in self.names}}

    def render(self, console: Console) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name in self.names:
            table.add_row(Text(name), Text(self._about(name)))
        console.print(table)
