"""Which captions a file should have now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vse.index.media_file import MediaFile
from vse.index.scan import Problem, ScanLimits, read_captions


@dataclass(frozen=True)
class FolderCaptions:
    """The captions of a folder by path; ``complete`` unless a file of captions could not be read at all."""

    by_path: dict[str, tuple[str, ...]]
    complete: bool = True
    problems: tuple[Problem, ...] = ()

    def wanted(self, path: str, known: MediaFile | None) -> tuple[str, ...]:
        """The captions for the file at ``path``. Known ones are not forgotten because they cannot be read today."""
        found = self.by_path.get(path, ())
        if self.complete or known is None:
            return found
        return tuple(dict.fromkeys((*known.captions, *found)))


def folder_captions(root: str | Path, limits: ScanLimits) -> FolderCaptions:
    """Read the captions that came with a folder."""
    problems: list[Problem] = []
    by_path = read_captions(root, limits=limits, on_problem=problems.append)
    rows_alone = all(problem.reason.startswith("line ") for problem in problems)
    return FolderCaptions(by_path, rows_alone, tuple(problems))


def have_vectors(wanted: tuple[str, ...], known: MediaFile) -> bool:
    """Whether every wanted caption is among the known ones, so that no sentence has to be encoded."""
    return set(wanted) <= set(known.captions)
