"""What ``vse collection info`` says."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse.index.collection import Collection, CollectionInfo
from vse.inputs.printable import printable

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Overview:
    """What a collection holds, to be shown; ``note`` is what has just been done with it.

    ``bytes`` is what its files take, None where a server keeps them; ``unfinished`` what an upgrade has made so far.
    """

    info: CollectionInfo
    bytes: int | None = None
    unfinished: CollectionInfo | None = None
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        info, left = self.info, self.unfinished
        values = {name: value for name, value in asdict(info).items() if name != "root_files"}
        values["roots"] = list(info.roots)
        values["folders"] = [{"root": root, "files": count} for root, count in self._folders()]
        values["bytes"] = self.bytes
        values["unfinished"] = left and {
            name: getattr(left, name) for name in ("generation", "model", "model_source", "dimensions", "files")
        }
        return values if self.note is None else {**values, "note": self.note}

    def lines(self) -> list[str]:
        """What was done, the counts, the origin, the upgrade that was not finished, a line for each folder."""
        info, left = self.info, self.unfinished
        said = [] if self.note is None else [self.note]
        size = "" if self.bytes is None else f", {_size(self.bytes)} on disk"
        said += [
            f"{info.where}: {info.files:,} files, {info.items:,} items, {info.captions:,} captions{size}",
            f"model {info.model} ({info.model_source}), {info.dimensions} dimensions",
            f"backend {info.backend}, generation {info.generation}",
        ]
        if left is not None:
            command = f"vse collection upgrade {shlex.quote(info.where)}"
            source = f" ({left.model_source})" if left.model_source else ""
            said.append(
                f"an upgrade to model {left.model}{source} is not finished, {left.files:,} files are encoded: "
                f"'{command} --model {shlex.quote(left.model_source or 'MODEL')}' goes on, "
                f"'{command} --discard' throws it away"
            )
        said += [f"folder {root}: {count:,} files" for root, count in self._folders()]
        return [printable(line) for line in said]

    def render(self, console: Console) -> None:
        """The lines as they are, however long: a path that is broken over two lines cannot be copied."""
        from rich.text import Text

        for line in self.lines():
            console.print(Text(line), soft_wrap=True)  # Text: a bracket in a file name is no markup

    def _folders(self) -> list[tuple[str, int]]:
        return list(zip(self.info.roots, self.info.root_files, strict=True))


def overview_of(collection: Collection, note: str | None = None) -> Overview:
    """Look at everything that is shown."""
    info = collection.info()
    return Overview(info, bytes_below(Path(info.where)), collection.unfinished(), note)


def bytes_below(folder: Path) -> int | None:
    """The sizes of all files in a folder, as far as they can be seen; None when it is no folder."""
    if not folder.is_dir():
        return None
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a writer may remove it at this moment
                total += Path(place, name).lstat().st_size
    return total


def _size(count: int) -> str:
    """With three digits or so: 1.2 MB is 1,200,000 bytes."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count:,} bytes" if unit == "bytes" else f"{size:.3g} {unit}" if size < 999.5 else f"{size:,.0f} {unit}"
