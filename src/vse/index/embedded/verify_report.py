"""What ``vse collection verify`` says."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vse.index.media_file import Place
from vse.inputs.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

MOST_NAMED = 20


@dataclass(frozen=True)
class VerifyReport:
    """Everything was read: ``problems`` in the rows need a backup or indexing again, in the cache only a rebuild.

    ``damaged_files`` are those, by root and path, to which damaged rows belong.
    """

    where: str
    files: int
    items: int
    captions: int
    problems: tuple[str, ...]
    cache_problems: tuple[str, ...]
    damaged_files: tuple[Place, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems and not self.cache_problems

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        lists = {name: list(values[name]) for name in ("problems", "cache_problems")}
        return {**values, **lists, "damaged_files": ["/".join(place) for place in self.damaged_files], "ok": self.ok}

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
            say(f"restore the collection from a backup, or {self._again()}")
        elif self.cache_problems:
            say("the vectors are sound: 'vse collection rebuild' makes the cache anew")
        else:
            say("no problems")

    def _again(self) -> str:
        """What brings back what is damaged: 'vse index' passes over a file as long as it is known."""
        if not self.damaged_files:
            return f"index its folders into a new one: 'vse index' with another name than {shlex.quote(self.where)}"
        first = self.damaged_files[:MOST_NAMED]
        files = " ".join(shlex.quote("/".join(place)) for place in first)
        roots = " ".join(shlex.quote(root) for root in dict.fromkeys(root for root, _ in first))
        index, all_files = shlex.quote(self.where), len(self.damaged_files)
        more = f", and so on for all {all_files:,}" if all_files > MOST_NAMED else ""
        return printable(
            f"forget these files and index them again: vse collection remove {index} {files}; "
            f"vse index {roots} --into {index}{more}"
        )
