"""Walk a folder: every image and video below it, in order, one at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from vse._util.walk import folder_identity, walk_tree
from vse.errors import InputError
from vse.index.scan.exclude import Exclusion, ScanRules
from vse.index.scan.sidecars import ENDINGS, Beside, is_live_video, sidecar_state
from vse.inputs.files import (
    SNIFFED_BYTES,
    BadMediaError,
    MediaKind,
    Problem,
    is_text,
    kind_of_bytes,
    kind_of_name,
    open_regular,
    os_reason,
    worth_sniffing,
)
from vse.inputs.images import ImageLimits
from vse.inputs.text import printable
from vse.inputs.video.file import VideoLimits


@dataclass(frozen=True, slots=True)
class Found:
    """A file found by a walk.

    Attributes:
        path: Path below the root, with ``/`` between its parts.
        size: Bytes.
        modified_ns: Time of the last change, in nanoseconds since 1970.
        kind: Kind by its name or, without a known extension, by its first bytes.
        sidecars: Names of the files beside it that describe it, see :mod:`vse.index.scan.sidecars`.
        sidecar_state: A number that changes with them; 0 without any.
    """

    path: str
    size: int
    modified_ns: int
    kind: MediaKind
    sidecars: tuple[str, ...] = ()
    sidecar_state: int = 0


@dataclass(frozen=True)
class ScanLimits:
    """Limits of one scan.

    Attributes:
        max_files: Files of one walk.
        max_depth: Nested folders.
        max_captions: Captions of one folder.
        max_captions_per_file: Captions of one image or video.
        max_caption_bytes: Size of one caption file.
        max_caption_memory: Bytes of memory for the captions of one folder; None for a quarter of this machine's, or of
            what its container may use.
        image: Limits of an image.
        video: Limits of a video.
    """

    max_files: int = 10_000_000
    max_depth: int = 200
    max_captions: int = 5_000_000
    max_captions_per_file: int = 1_000
    max_caption_bytes: int = 500_000_000
    max_caption_memory: int | None = None
    image: ImageLimits = field(default_factory=ImageLimits)
    video: VideoLimits = field(default_factory=VideoLimits)


def why_absent(root: str | Path, known: int = 0) -> str | None:
    """Return why ``root`` cannot be read now, or None if it can.

    A folder that held files and is now missing or empty counts as absent: it may be the mount point of an unplugged
    disk, and forgetting all files of a disk is worse than keeping some for too long. Hidden entries are ignored, since
    systems put them on mount points.

    Args:
        root: The folder.
        known: Files it held when last read.
    """
    try:
        if not stat.S_ISDIR(Path(root).stat().st_mode):
            return "not a folder"
        empty = _is_empty(root)
    except FileNotFoundError:
        return "no such folder"
    except OSError as error:
        return f"cannot be read ({os_reason(error)})"
    except ValueError:  # a NUL character
        return "no such folder"
    if empty and known > 0:
        return f"empty, but held {known:,} files: is its disk mounted?"
    return None


def empty_folders(root: str | Path, paths: Iterable[str]) -> dict[str, str]:
    """Map each of the missing ``paths`` that may be on an unmounted disk to the folder that would be its mount point.

    That folder is the nearest existing one above the path, if it is empty; both are relative to ``root``, with ``/``
    between parts. A path in a deleted folder is not included, unless the folder above is empty as well: a folder
    emptied by hand cannot be distinguished from a mount point.
    """

    @cache
    def nearest(folder: str) -> str | None:
        if not folder:
            return None  # the caller has checked that the root exists
        try:
            return folder if _is_empty(Path(root) / folder) else None
        except (FileNotFoundError, NotADirectoryError):
            return nearest(folder.rpartition("/")[0])
        except OSError:
            return None

    found = ((path, nearest(path.rpartition("/")[0])) for path in paths)
    return {path: folder for path, folder in found if folder is not None}


def _is_empty(folder: str | Path) -> bool:
    with os.scandir(folder) as entries:
        return all(entry.name.startswith(".") for entry in entries)


VANISHED = "gone before it could be read"


def walk(
    root: str | Path, *, hidden: bool = False, rules: ScanRules | None = None, limits: ScanLimits | None = None
) -> Scan:
    """Return a scan of the images and videos below ``root``, recognised by extension (see ``vse.inputs.files``).

    Symlinks are followed unless the target is found at its own place anyway; each file and folder is visited once.

    Args:
        root: The folder.
        hidden: Include files and folders whose names begin with a dot.
        rules: What is left out, and whether symlinks that lead out of ``root`` are followed.
        limits: Maximum number of files and depth.

    Raises:
        InputError: The folder is absent.
    """
    reason = why_absent(root)
    if reason is not None:
        raise InputError(f"{printable(str(root))}: {reason}: expected a folder of images and videos")
    return Scan(Path(root), hidden=hidden, rules=rules or ScanRules(), limits=limits or ScanLimits())


class Scan(Iterator[Found]):
    """One pass over a folder. Nothing in it aborts the pass: what could not be read is added to ``problems``.

    Files are yielded in the order of their paths as strings, which equals the order of their UTF-8 bytes. Only the
    names in the folders leading to the current file are held in memory.
    """

    def __init__(self, root: Path, *, hidden: bool, rules: ScanRules, limits: ScanLimits) -> None:
        self.root = root
        self.exclusion = Exclusion(root, rules)
        self.problems: list[Problem] = []
        self._real_root = os.path.realpath(root)
        self._hidden = hidden
        self._outside = rules.follow_links
        self._limits = limits
        self._unseen: set[str] = set()
        self._visited: set[tuple[int, int]] = set()  # folders and symlinked files, by device and inode
        self._listed = 0  # number of problems already sorted
        self._beside: dict[str, Beside] = {}  # by folder, for those on the way to the current file
        self.live_videos = 0
        """Videos left out because they belong to a live photo."""
        self._found = self._pass()

    def __next__(self) -> Found:
        return next(self._found)

    def hides(self, path: str) -> bool:
        """Return whether a file at ``path`` may exist although it was not found; call it after the pass.

        True for paths in an unreadable folder or behind a dangling symlink. A known file that was neither found nor
        hidden has been deleted or moved.
        """
        if path in self._unseen or "" in self._unseen:
            return True
        return any(path[:end] in self._unseen for end, letter in enumerate(path) if letter == "/")

    def excludes(self, path: str) -> bool:
        """Return whether a file that was not found is left out by the rules; call it after the pass."""
        return self.exclusion.covers(path)

    def _pass(self) -> Iterator[Found]:
        count = 0
        if not self._may_enter(""):
            return
        identity = folder_identity(self.root)
        paths = walk_tree(
            self.root,
            select=self._select,
            enter=self._enter,
            on_error=self._unreadable,
            on_listed=self._sort_problems,
            visited=self._visited,
        )
        for path, linked in paths:
            found = self._file(path, linked)
            if found is not None:
                if count == self._limits.max_files:
                    self._problem("", f"more than {count:,} files: raise max_files", unseen=True)
                    return
                count += 1
                yield found
            self._listed = len(self.problems)
        if folder_identity(self.root) != identity or not self.root.is_dir():
            self._problem("", "the folder was replaced or unmounted while it was read", unseen=True)

    def _enter(self, path: str, depth: int) -> bool | None:
        """Return whether a folder is a symlink, None to skip it."""
        is_link: bool | None = None
        if depth > self._limits.max_depth:
            self._problem(path, f"more than {self._limits.max_depth} folders deep", unseen=True)
        else:
            try:
                is_link = self._place(path).is_symlink()
            except OSError as error:  # the path is too long
                self._problem(path, f"the folder cannot be read ({os_reason(error)})", unseen=True)
            if (is_link and not self._follow(path)) or (is_link is not None and not self._may_enter(path)):
                is_link = None
        self._listed = len(self.problems)
        return is_link

    def _may_enter(self, path: str) -> bool:
        """Read the folder's own patterns. If they cannot be read, what they would leave out must not be taken in."""
        reason = self.exclusion.entered(path)
        if reason is not None:
            self._problem(path, f"{reason}: the folder is left out until it can be used", unseen=True)
        return reason is None

    def _unreadable(self, path: str, error: OSError) -> None:
        vanished = isinstance(error, FileNotFoundError)
        self._problem(path, VANISHED if vanished else f"the folder cannot be read ({os_reason(error)})", unseen=True)

    def _sort_problems(self) -> None:
        """Sort the problems of the folder that was just listed."""
        self.problems[self._listed :] = sorted(self.problems[self._listed :], key=lambda problem: problem.path)
        self._listed = len(self.problems)

    def _select(self, path: str, entry: os.DirEntry[str]) -> bool | None:
        """Return whether an entry is a folder, None to skip it early and save memory."""
        name = entry.name
        if name.startswith(".") and not self._hidden:
            return None
        try:
            is_folder = entry.is_dir()
            dangling = not is_folder and entry.is_symlink() and not self._place(path).exists()
        except OSError:  # a symlink loop, or a symlink through an unreadable folder
            is_folder, dangling = False, True
        wanted = is_folder or dangling or kind_of_name(name) is not None or worth_sniffing(name)
        sidecar = not wanted and name.lower().endswith(ENDINGS) and entry.is_file(follow_symlinks=False)
        if not (wanted or sidecar) or self.exclusion.excludes(path, folder=is_folder):
            return None
        if sidecar or (wanted and not is_folder and not dangling):
            self._note_beside(path)
        if sidecar:
            return None
        if not is_text(name):
            self._problem(path, "its name is not UTF-8: rename it")
            return None
        if dangling:
            self._problem(path, "a dangling symlink", unseen=True)
            return None
        return is_folder

    def _note_beside(self, path: str) -> None:
        """Remember a name for the other files of its folder; finished folders are forgotten."""
        folder, _, name = path.rpartition("/")
        if folder not in self._beside:
            above = {each: names for each, names in self._beside.items() if not each or folder.startswith(f"{each}/")}
            self._beside = {**above, folder: Beside()}
        self._beside[folder].add(name)

    def _file(self, path: str, linked: bool) -> Found | None:
        try:
            return self._visit(path, linked)
        except FileNotFoundError:
            self._problem(path, VANISHED)
        except BadMediaError as error:
            self._problem(path, error.reason)
        except OSError as error:
            self._problem(path, f"cannot be read ({os_reason(error)})", unseen=True)
        return None

    def _visit(self, path: str, linked: bool) -> Found | None:
        status = os.lstat(f"{self.root}/{path}")  # half of the walk's time; a Path would cost more than the call
        if stat.S_ISLNK(status.st_mode):
            if not self._follow(path):
                return None
            linked, status = True, self._place(path).stat()
        kind = self._kind(path, status)
        if kind is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            self._problem(path, "not a regular file")
            return None
        if linked and status.st_ino:  # other files are met only once, so millions of them need no memory
            identity = (status.st_dev, status.st_ino)
            if identity in self._visited:
                return None
            self._visited.add(identity)
        return self._with_sidecars(Found(path, status.st_size, status.st_mtime_ns, kind))

    def _with_sidecars(self, found: Found) -> Found | None:
        """Return the file with its sidecars, None for the video of a live photo."""
        folder, _, name = found.path.rpartition("/")
        beside = self._beside.get(folder)
        if beside is None:
            return found
        if found.kind == "video" and beside.has_image_for(name) and is_live_video(self._place(found.path)):
            self.live_videos += 1
            return None
        sidecars = beside.sidecars(name)
        state = sidecar_state(f"{self.root}/{folder}", sidecars) if sidecars else 0
        return replace(found, sidecars=sidecars, sidecar_state=state) if state else found

    def _kind(self, path: str, status: os.stat_result) -> MediaKind | None:
        name = path.rpartition("/")[2]
        kind = kind_of_name(name)
        if kind is not None or not worth_sniffing(name) or not stat.S_ISREG(status.st_mode):
            return kind
        with open_regular(self._place(path)) as file:
            return kind_of_bytes(file.read(SNIFFED_BYTES))

    def _follow(self, path: str) -> bool:
        """Return whether a symlink's target belongs to the scan: allowed, and not found at its own place."""
        real = Path(os.path.realpath(self._place(path)))
        own_kind = real.is_dir() or kind_of_name(real.name) is not None or worth_sniffing(real.name)
        if not real.is_relative_to(self._real_root):
            if not self._outside and own_kind:
                place = printable(str(real))
                reason = f"a symlink to {place}, outside the folder: add --follow-links, or index that folder"
                self._problem(path, reason)
            return self._outside
        visible = self._hidden or not any(part.startswith(".") for part in real.relative_to(self._real_root).parts)
        return not (visible and own_kind)

    def _place(self, path: str) -> Path:
        return self.root / path

    def _problem(self, path: str, reason: str, *, unseen: bool = False) -> None:
        self.problems.append(Problem(path or ".", reason))
        if unseen:
            self._unseen.add(path)
