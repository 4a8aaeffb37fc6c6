"""What a scan leaves out: folders that hold no originals, patterns given by the user, and ``.vseignore`` files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse.errors import InputError
from vse.inputs.files import BadMediaError, open_regular, os_reason

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".vseignore"
MAX_IGNORE_BYTES = 1_000_000
DEFAULTS = (
    # Network storage: thumbnails, recycle bins and snapshots of Synology, QNAP and others.
    "@eaDir", "#recycle", "#snapshot", "@Recycle", "@Recently-Snapshot", ".@__thumb", ".snapshot", ".zfs",
    # Systems: bins, found fragments, unpacked archives.
    ".Trash*", ".Trashes", "$RECYCLE.BIN", "RECYCLER", "System Volume Information", "lost+found", "__MACOSX",
    # Thumbnails and caches of programs.
    ".thumbnails", ".thumbs", ".thumb", ".cache", ".picasaoriginals", ".dtrash", "Thumbs", "*.lrdata", "CaptureOne",
    "*.cocatalogdb", "*.photoslibrary/resources", "*.photoslibrary/private", "*.photoslibrary/scopes",
    "*.photoslibrary/database", "*.photolibrary/Thumbnails", "*.photolibrary/Previews", "*.aplibrary/Thumbnails",
    "*.aplibrary/Previews",
)  # fmt: skip
"""Folders left out unless a pattern such as ``!CaptureOne`` takes them in; ``*`` matches within a name."""


def _defaults() -> re.Pattern[str]:
    words = (re.escape(pattern).replace(r"\*", "[^/]*") for pattern in DEFAULTS)
    return re.compile(rf"(?:.*/)?(?:{'|'.join(words)})", re.IGNORECASE | re.DOTALL)


_LEFT_OUT = _defaults()


@dataclass(frozen=True)
class ScanRules:
    """How a folder is scanned; a collection remembers it for each of its roots.

    Attributes:
        exclude: Patterns as in ``.gitignore``, relative to the root. They come after :data:`DEFAULTS` and before
            ``.vseignore`` files: the last match decides, and ``!`` takes in again.
        follow_links: Follow symlinks that lead out of the root.
        ocr: Read the text in images.
    """

    exclude: tuple[str, ...] = ()
    follow_links: bool = False
    ocr: bool = False

    def __post_init__(self) -> None:
        _ = self.patterns

    @cached_property
    def patterns(self) -> GitIgnoreSpec | None:
        """The compiled patterns; raises :class:`InputError` for an invalid one."""
        return compiled(self.exclude, "--exclude") if self.exclude else None

    def to_json(self) -> dict[str, Any]:
        return {"exclude": list(self.exclude), "follow_links": self.follow_links, "ocr": self.ocr}


def rules_of(settings: Mapping[str, Any], root: str) -> ScanRules:
    """Return the rules that a collection's settings hold for a root."""
    known = settings.get("folders", {}).get(root, {})
    return ScanRules(
        tuple(known.get("exclude", ())), bool(known.get("follow_links", False)), bool(known.get("ocr", False))
    )


def with_rules(settings: Mapping[str, Any], root: str, rules: ScanRules) -> dict[str, Any]:
    """Return settings with the rules of a root; the default ones take no place."""
    folders = {**settings.get("folders", {}), root: rules.to_json()}
    if rules == ScanRules():
        del folders[root]
    return {**settings, "folders": folders}


def compiled(lines: Sequence[str], name: str) -> GitIgnoreSpec:
    """Compile patterns in the syntax of ``.gitignore``.

    Raises:
        InputError: A pattern is invalid; ``name`` says where it stands.
    """
    from pathspec import GitIgnoreSpec

    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{name}: {line[:60]!r} is no pattern ({error}): write it as in .gitignore, like '*.tmp' or 'drafts/'"
            ) from None
    return GitIgnoreSpec.from_lines(lines)


class Exclusion:
    """Decides for each path below a root; ``.vseignore`` files count from when their folder was :meth:`entered`."""

    def __init__(self, root: Path, rules: ScanRules) -> None:
        self._root, self._rules = root, rules
        self._by_folder: dict[str, GitIgnoreSpec] = {}
        self.files: dict[str, tuple[int, int]] = {}
        """Size and time of each ``.vseignore``, by path."""

    def entered(self, folder: str) -> str | None:
        """Read the ``.vseignore`` of a folder, if it has one; return why it cannot be used, None if all is well."""
        path = f"{folder}/{IGNORE_FILE}" if folder else IGNORE_FILE
        place = self._root / path
        try:
            with open_regular(place) as file:
                status = os.fstat(file.fileno())
                content = file.read(MAX_IGNORE_BYTES + 1)
            if len(content) > MAX_IGNORE_BYTES:
                return f"{IGNORE_FILE} has {max(status.st_size, len(content)):,} bytes, at most {MAX_IGNORE_BYTES:,}"
            self.files[path] = status.st_size, status.st_mtime_ns
            self._by_folder[folder] = compiled(content.decode().splitlines(), IGNORE_FILE)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, BadMediaError) as error:
            if isinstance(error, PermissionError) and not _is_listable(place.parent):
                return None  # nothing of it is found anyway: the walk reports the folder itself
            other = error.reason if isinstance(error, BadMediaError) else "not UTF-8"
            return f"{IGNORE_FILE} cannot be read ({os_reason(error) if isinstance(error, OSError) else other})"
        except InputError as error:
            return str(error)
        return None

    def excludes(self, path: str, *, folder: bool) -> bool:
        """Return whether an entry is left out, given that the folders above it are not."""
        asked = f"{path}/" if folder else path
        if self._by_folder:
            above = path
            while above:
                above = above.rpartition("/")[0]
                patterns = self._by_folder.get(above)
                verdict = None if patterns is None else patterns.check_file(asked[len(above) :].lstrip("/")).include
                if verdict is not None:
                    return verdict
        if self._rules.patterns is not None:
            verdict = self._rules.patterns.check_file(asked).include
            if verdict is not None:
                return verdict
        return folder and _LEFT_OUT.fullmatch(path) is not None

    def covers(self, path: str) -> bool:
        """Return whether a file is left out, or a folder above it."""
        ends = [end for end, letter in enumerate(path) if letter == "/"]
        return any(self.excludes(path[:end], folder=True) for end in ends) or self.excludes(path, folder=False)


def _is_listable(folder: Path) -> bool:
    try:
        os.scandir(folder).close()
    except OSError:
        return False
    return True
