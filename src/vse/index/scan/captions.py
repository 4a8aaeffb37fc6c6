"""Read the caption files of a folder."""

from __future__ import annotations

import os
import posixpath
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse._util.worker_process import available_memory
from vse.errors import InputError
from vse.index.scan.walk import ScanLimits
from vse.inputs.files import Problem, is_text, os_reason

if TYPE_CHECKING:
    from vse.data.reading import OnProblem

CAPTION_FILES = ("captions.csv", "captions.jsonl")
LONGEST_CAPTION = 10_000  # characters
ENTRY_BYTES = 100
"""About what a caption, or a path, takes besides its characters."""
LEAST_MEMORY = 256_000_000
"""Captions may take so many bytes on any machine, and a quarter of its memory on a large one."""
UNCHECKED = 100_000
"""Paths that are remembered whether they exist or not; further ones only if they do, which bounds memory."""


def read_captions(
    root: str | Path,
    *,
    limits: ScanLimits | None = None,
    on_problem: Callable[[Problem], None] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Return captions by path, from ``captions.csv`` and ``captions.jsonl`` in ``root``; empty without them.

    Rows have ``path`` (below ``root``, with ``/`` between its parts) and ``caption``, in JSONL a text or a list of
    texts. A path may have several rows; its captions are deduplicated, in row order.

    Args:
        root: The indexed folder.
        limits: Maximum number of captions, of those of one file, their memory, and the size of a caption file.
        on_problem: Called for each unusable row and each unreadable caption file; both are skipped.
    """
    limits = limits or ScanLimits()
    report = on_problem or (lambda problem: None)
    folder, found = Path(root), _Found(limits)
    count = 0
    for name in CAPTION_FILES:
        file = folder / name
        try:
            size = file.stat().st_size
            if not file.is_file():
                continue
            if size > limits.max_caption_bytes:
                raise InputError(f"{size:,} bytes, at most {limits.max_caption_bytes:,}: raise max_caption_bytes")
            from vse.data.files import read_rows  # lazy: few folders have captions

            for place, row in read_rows(file, _row_problem(file, report), max_bytes=limits.max_caption_bytes):
                try:
                    path, captions = _row(folder, row)
                except InputError as error:
                    _row_problem(file, report)("", f"{place}: {error}")
                    continue
                count += len(captions)
                if count > limits.max_captions:
                    raise InputError(f"more than {limits.max_captions:,} captions: raise max_captions")
                known = found.captions
                if len(known) >= UNCHECKED and path not in known and not os.path.lexists(f"{folder}/{path}"):
                    continue
                if found.add(path, captions):
                    most = f"{limits.max_captions_per_file:,}"
                    message = f"{place}: more than {most} captions of this file, the first {most} are kept"
                    _row_problem(file, report)("", message)
        except FileNotFoundError:
            continue
        except OSError as error:
            report(Problem(name, f"cannot be read ({os_reason(error)})"))
        except InputError as error:
            report(Problem(name, str(error)))
    return {path: tuple(captions) for path, captions in found.captions.items()}


class _Found:
    """Captions by path, within limits: a tuple, which is small, or a dictionary as an ordered set from two rows on."""

    def __init__(self, limits: ScanLimits) -> None:
        self.captions: dict[str, tuple[str, ...] | dict[str, None]] = {}
        self._most = limits.max_captions_per_file
        self._memory = limits.max_caption_memory or max(LEAST_MEMORY, available_memory() // 4)
        self._used = 0

    def add(self, path: str, captions: list[str]) -> int:
        """Add captions to those of a path, and return how many were too many for one file.

        Raises:
            InputError: All captions together would take more memory than is allowed; nothing was added.
        """
        known = self.captions.get(path)
        new = [caption for caption in dict.fromkeys(captions) if known is None or caption not in known]
        room = self._most - (0 if known is None else len(known))
        new, more = new[:room], max(0, len(new) - room)
        # A character takes four bytes in a text with one beyond the first 65,536.
        need = sum(sys.getsizeof(caption) + ENTRY_BYTES for caption in new)
        need += sys.getsizeof(path) + ENTRY_BYTES if known is None else 0
        if self._used + need > self._memory:
            raise InputError(f"captions that take more than {self._memory:,} bytes of memory: raise max_caption_memory")
        self._used += need
        if known is None:
            self.captions[path] = tuple(new)
            return more
        if isinstance(known, tuple):
            known = self.captions[path] = dict.fromkeys(known)
        known.update(dict.fromkeys(new))
        return more


def _row_problem(file: Path, report: Callable[[Problem], None]) -> OnProblem:
    """Return a callback that reports a row by its line; the problem already names the file."""

    def on_problem(_kind: str, message: str) -> None:
        report(Problem(file.name, "line " + message.removeprefix(f"{file}:")))

    return on_problem


def _row(root: Path, row: dict[str, Any]) -> tuple[str, list[str]]:
    path, captions = row["path"], row["caption"]
    if not isinstance(path, str) or not path.strip():
        raise InputError(f"path is {path!r}, expected the path of a file below the folder")
    captions = captions if isinstance(captions, list) else [captions]
    for caption in captions:
        if not isinstance(caption, str) or not is_text(caption):
            raise InputError(f"caption is {str(caption)[:60]!a}, expected a text or a list of texts")
        if not caption.strip():
            raise InputError("empty caption")
        if len(caption) > LONGEST_CAPTION:
            raise InputError(f"a caption of {len(caption):,} characters, at most {LONGEST_CAPTION:,}: shorten it")
    return _below(root, path.strip()), [" ".join(caption.split()) for caption in captions]


def _below(root: Path, path: str) -> str:
    """Return the path as :func:`~vse.index.scan.walk.walk` reports it, with ``./`` or an absolute root stripped."""
    if os.path.isabs(path):  # noqa: PTH117 - millions of rows
        try:
            path = Path(path).relative_to(root.absolute()).as_posix()
        except ValueError:
            raise InputError(f"path {path!a} is not below the folder") from None
    path = posixpath.normpath(path)
    if path.split("/")[0] in ("..", "."):
        raise InputError(f"path {path!a} is not the path of a file below the folder")
    return path
