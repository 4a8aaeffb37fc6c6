"""What ``vse collection verify`` says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class VerifyReport:
    """Everything was read: ``problems`` in the rows need a backup or indexing again, in the cache only a rebuild."""

    where: str
    files: int
    items: int
    captions: int
    problems: tuple[str, ...]
    cache_problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems and not self.cache_problems

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        lists = {name: list(values[name]) for name in ("problems", "cache_problems")}
        return {**values, **lists, "ok": self.ok}

    def render(self, console: Console) -> None:
        """One line for each problem, and what to do."""
        from rich.text import Text

        def say(text: str) -> None:
            console.print(Text(text), soft_wrap=True)  # Text: a bracket in a file name is no markup

        say(f"{self.where}: {self.files} files, {self.items} items, {self.captions} captions")
        for problem in self.problems:
            say(f"damaged: {problem}")
        for problem in self.cache_problems:
            say(f"cache: {problem}")
        if self.problems:
            say("restore the collection from a backup, or index these files again")
        elif self.cache_problems:
            say("the vectors are sound: 'vse collection rebuild' makes the cache anew")
        else:
            say("no problems")
