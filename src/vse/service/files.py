"""Files handed to the user: names for downloads, archives of several files, lists, and the desktop's file manager."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from urllib.parse import quote

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from vse.index.types import Item, MediaFile, full_path, readable
from vse.service.media import BLOCK, OpenFile, open_media
from vse.service.problems import NO_DESKTOP_TYPE, ProblemError

EARLIEST = 315_532_800  # 1980 in seconds since 1970: a ZIP archive has no earlier date
LATEST = 4_354_819_198
UNSAFE = '<>:"|?*\\'
"""Characters that a file name of Windows cannot contain."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters that a spreadsheet reads as a formula."""
MISSING_LIST = "missing.txt"
REVEAL_SECONDS = 2.0
NO_DESKTOP = "no file manager can be opened on this machine: copy the path instead"


def disposition(name: str, *, attachment: bool) -> str:
    """Return a Content-Disposition header that every browser reads and that ``name`` cannot break out of (RFC 6266)."""
    clean = "".join("_" if each in '/\\"' or not each.isprintable() else each for each in readable(name)) or "file"
    plain = clean.encode("ascii", "replace").decode("ascii").replace("?", "_").replace("%", "_")
    kind = "attachment" if attachment else "inline"
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(clean, safe='')}"


@dataclass(frozen=True)
class Listed:
    """A line of an exported list. ``root`` is None if the client may not see it."""

    id: int
    path: str
    root: str | None
    kind: str
    date: str | None
    start: float | None
    end: float | None
    missing: bool


def csv_list(rows: Sequence[Listed]) -> str:
    """Return a table with a header line. A text that a spreadsheet would compute gets an apostrophe in front."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    names = list(Listed.__dataclass_fields__)
    writer.writerow(names)
    writer.writerows([_cell(getattr(row, name)) for name in names] for row in rows)
    return stream.getvalue()


def json_list(rows: Sequence[Listed]) -> str:
    """Return the list as JSON, all values as they are."""
    return json.dumps({"items": [asdict(row) for row in rows]}, ensure_ascii=False)


def path_list(rows: Sequence[Listed]) -> str:
    """Return one path per line, each file once; a line break in a name is written as ``\\n``."""
    paths = (row.path if row.root is None else f"{row.root.rstrip('/')}/{row.path}" for row in rows)
    return "".join(f"{line}\n" for line in dict.fromkeys(path.replace("\n", "\\n") for path in paths))


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


@dataclass(frozen=True)
class Archive:
    """Files to send as one ZIP archive, by their names in it; ``missing`` are the paths that cannot be opened."""

    files: Mapping[str, MediaFile]
    missing: tuple[str, ...]
    bytes: int


def plan_archive(items: Sequence[Item], max_bytes: int) -> Archive:
    """Return what an archive of the files of ``items`` will hold, each file once.

    Raises:
        ProblemError: 404 if no file can be opened, 422 for more than ``max_bytes``.
    """
    files: dict[str, MediaFile] = {}
    missing: list[str] = []
    taken = {MISSING_LIST}
    total = 0
    for file in {(item.file.root, item.file.path): item.file for item in items}.values():
        try:
            opened = open_media(file)
        except ProblemError as error:
            if error.status_code != 404:
                raise
            missing.append(readable(file.path))
            continue
        opened.stream.close()
        total += opened.size
        files[_unique(_archive_name(file.path), taken)] = file
    if not files:
        raise ProblemError(404, f"none of the {len(missing):,} files can be opened: they were moved or deleted")
    if total > max_bytes:
        raise ProblemError(422, f"files of {total:,} bytes: an archive holds at most {max_bytes:,}, export fewer")
    return Archive(files, tuple(missing), total)


def zip_blocks(archive: Archive) -> Generator[bytes, None, None]:
    """Yield a ZIP archive in blocks. Images and videos are compressed already, so they are stored as they are.

    A file that has disappeared by now, or became shorter while it was read, is named in :data:`MISSING_LIST`. At most
    one block and the table of contents are in memory.
    """
    sink = _Sink()
    missing = list(archive.missing)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as written:  # type: ignore[call-overload]
        for name, file in archive.files.items():
            try:
                opened = open_media(file)
            except ProblemError:
                missing.append(readable(file.path))
                continue
            with opened.stream:
                complete = yield from _copy(opened, written, name, sink)
            if not complete:
                missing.append(f"{readable(file.path)} (incomplete)")
        if missing:
            note = "These files were moved or deleted after indexing:\n" + "".join(f"{each}\n" for each in missing)
            written.writestr(MISSING_LIST, note)
    yield sink.taken()


def _copy(opened: OpenFile, archive: zipfile.ZipFile, name: str, sink: _Sink) -> Generator[bytes, None, bool]:
    """Yields the file as an entry of the archive, and returns whether it had as many bytes as announced."""
    entry = zipfile.ZipInfo(name, _date(opened.modified))
    entry.external_attr = 0o644 << 16
    left = opened.size  # a file that grows meanwhile is cut: the limit holds
    with archive.open(entry, "w", force_zip64=opened.size >= zipfile.ZIP64_LIMIT) as target:
        while left > 0 and (block := opened.stream.read(min(BLOCK, left))):
            left -= len(block)
            target.write(block)
            yield sink.taken()
    return not left


class ArchiveResponse(StreamingResponse):
    """Sends an archive as fast as the client reads it, and closes its files if the client leaves."""

    def __init__(self, archive: Archive, headers: Mapping[str, str], media_type: str) -> None:
        self._blocks = zip_blocks(archive)
        super().__init__(self._blocks, headers=headers, media_type=media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with suppress(ValueError):  # a thread is still reading: it closes the file at the end of its block
                self._blocks.close()


class _Sink:
    """A stream that cannot seek, as ``zipfile`` writes to; the written bytes are taken away by the reader."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []

    def write(self, block: bytes) -> int:
        self._blocks.append(bytes(block))
        return len(block)

    def flush(self) -> None:
        pass

    def taken(self) -> bytes:
        blocks, self._blocks = self._blocks, []
        return b"".join(blocks)


def _date(nanoseconds: int) -> tuple[int, int, int, int, int, int]:
    moment = time.localtime(min(max(nanoseconds / 1e9, EARLIEST + 86_400), LATEST - 86_400))
    return moment[0], moment[1], moment[2], moment[3], moment[4], moment[5]


def _archive_name(path: str) -> str:
    """The path below the root, with parts that every system can unpack."""
    parts = []
    for part in readable(path).split("/"):
        clean = "".join("_" if each in UNSAFE or not each.isprintable() else each for each in part)
        parts.append(clean.rstrip(". ") or "_")
    return "/".join(parts)


def _unique(name: str, taken: set[str]) -> str:
    """A name that no other entry has, not even in other letter case."""
    stem, dot, end = name.rpartition(".")
    if not dot or "/" in end:
        stem, end = name, ""
    made, number = name, 2
    while made.casefold() in taken:
        made, number = f"{stem} ({number}){dot if end else ''}{end}", number + 1
    taken.add(made.casefold())
    return made


def can_reveal(platform: str = sys.platform, environment: Mapping[str, str] | None = None) -> bool:
    """Return whether this machine has a desktop whose file manager can be opened."""
    variables = os.environ if environment is None else environment
    if platform in ("darwin", "win32"):
        return True
    return any(variables.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")) and shutil.which("xdg-open") is not None


def reveal_command(path: str, platform: str = sys.platform) -> list[str]:
    """Return the command that shows an existing file in the file manager; xdg-open knows folders only."""
    if platform == "darwin":
        return ["open", "-R", path]
    if platform == "win32":
        return ["explorer", f"/select,{path.replace('/', chr(92))}"]
    return ["xdg-open", path.rpartition("/")[0] or "/"]


def reveal(file: MediaFile, run: Callable[[list[str]], None] | None = None) -> None:
    """Show an indexed file in the file manager of this machine.

    Args:
        file: The file.
        run: Runs the command; replaced in tests.

    Raises:
        ProblemError: 404 if the file is gone, 403 if there is no file manager.
    """
    open_media(file).stream.close()
    if run is None and not can_reveal():
        raise ProblemError(403, NO_DESKTOP, kind=NO_DESKTOP_TYPE)
    (run or _start)(reveal_command(full_path(file)))


def _start(command: list[str]) -> None:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        raise ProblemError(403, NO_DESKTOP, kind=NO_DESKTOP_TYPE) from None
    with suppress(subprocess.TimeoutExpired):
        if process.wait(REVEAL_SECONDS) and command[0] != "explorer":  # which returns 1 for success
            raise ProblemError(403, NO_DESKTOP, kind=NO_DESKTOP_TYPE)
        return
    threading.Thread(target=process.wait, daemon=True).start()  # a file manager in the foreground: no zombie later
