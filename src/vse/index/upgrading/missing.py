"""Files that an upgrade would lose: the collection knows them, and they are not there to be encoded anew."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from vse.errors import InputError
from vse.index.collection import Collection
from vse.index.media_file import MediaFile
from vse.index.scan import empty_folders, why_absent
from vse.inputs.printable import printable
from vse.inputs.problem import os_reason
from vse.progress import ProgressReporter


@dataclass
class Missing:
    """Folders that are not there, with the number of their files and the reason, and single files that are gone."""

    where: str
    absent: dict[str, tuple[int, str]] = field(default_factory=dict)
    gone: int = 0
    first_gone: tuple[str, str, str] = ("", "", "")
    """Its root, its path and the reason."""

    @property
    def count(self) -> int:
        return self.gone + sum(count for count, _ in self.absent.values())

    def add(self, file: MediaFile, reason: str) -> None:
        """Count one file that is gone."""
        if not self.gone:
            self.first_gone = file.root, file.path, reason
        self.gone += 1

    def notes(self) -> list[str]:
        """What was left out, a line for each folder and one for the single files."""
        lines = [
            f"{printable(root)}: {why}; its {count:,} files were left out" for root, (count, why) in self.absent.items()
        ]
        if self.gone:
            lines.append(f"{self.gone:,} files that are gone were left out, the first is {self._first_file()}")
        return lines

    def refusal(self) -> InputError:
        """How many there are, the first, and the ways out for that one."""
        if self.absent:
            root, (_, why) = next(iter(self.absent.items()))
            first, fix = f"those of {printable(root)} ({why})", self._fix_for_folder(root)
        else:
            first, fix = self._first_file(), self._fix_for_file()
        return InputError(
            f"{self.count:,} files of {self.where} are not there and would be lost, first {first}: {fix}, or leave "
            "them out with --drop-missing"
        )

    def _fix_for_folder(self, folder: str) -> str:
        """Indexing again is none: it keeps the files of a folder that is away."""
        if _is_closed(Path(folder)):
            return "allow reading it"
        return f"mount the disk, forget its files ({self._command('collection remove', self.where, folder)})"

    def _fix_for_file(self) -> str:
        root, path, _ = self.first_gone
        place = empty_folders(root, [path]).get(path)
        if place is not None:
            return self._fix_for_folder(f"{root}/{place}")
        if _is_closed(Path(root) / path):
            return "allow reading it"
        return f"let the collection take note of deletions ({self._command('index', root, '--into', self.where)})"

    def _command(self, name: str, *arguments: str) -> str:
        return printable(f"vse {name} {shlex.join(arguments)}")

    def _first_file(self) -> str:
        root, path, reason = self.first_gone
        return f"{printable(f'{root}/{path}')} ({reason})"


def find_missing(collection: Collection, progress: ProgressReporter) -> Missing:
    """Look for every file that ``collection`` knows; none is opened."""
    info = collection.info()
    missing = Missing(info.where)
    progress.start(info.files, "looking for the files")
    for root in info.roots:
        if why_absent(root, known=1) is not None:
            progress.advance(note_absent(missing, collection, root))
            continue
        for file in collection.files(root):
            reason = why_missing(file)
            if reason is not None:
                missing.add(file, reason)
            progress.advance()
    progress.finish()
    return missing


def note_absent(missing: Missing, collection: Collection, root: str) -> int:
    """Count all files of a folder that is not there, and return how many these are."""
    count = sum(1 for _ in collection.files(root))
    missing.absent[root] = count, why_absent(root, known=count) or "was not there for a moment"
    return count


def why_missing(file: MediaFile) -> str | None:
    """Why a file cannot be read now, None if it can."""
    path = Path(file.root) / file.path
    try:
        path.stat()
    except FileNotFoundError:
        return "no such file"
    except OSError as error:
        return os_reason(error)
    return None if os.access(path, os.R_OK) else "may not be read"


def _is_closed(path: Path) -> bool:
    """Whether something is there that this user may not read."""
    try:
        if path.is_dir():
            os.scandir(path).close()
    except PermissionError:
        return True
    except OSError:
        return False
    return path.exists() and not os.access(path, os.R_OK)
