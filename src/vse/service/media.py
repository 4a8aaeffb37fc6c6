"""Files of the collection, opened so that nothing outside it can be reached."""

from __future__ import annotations

import errno
import io
import os
import stat
from contextlib import suppress
from dataclasses import dataclass

from vse.index.media_file import MediaFile
from vse.service.problems import ProblemError

GONE = "the file is not there any more"
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True)
class OpenFile:
    """An open file, and its size and time of change when it was opened.

    Whoever receives it closes ``stream``. It is no bare descriptor, so that one which nobody receives is closed too.
    """

    stream: io.FileIO
    size: int
    modified: int

    def is_as_indexed(self, file: MediaFile) -> bool:
        """Whether size and time of change are those of the file in the collection, as indexing takes it."""
        return (self.size, self.modified) == (file.size, file.modified)

    def read(self, most: int) -> bytes:
        """All of it, which is 422 when there are more than ``most`` bytes."""
        if self.size > most:
            raise ProblemError(422, f"the file has {self.size:,} bytes, more than the {most:,} that are read")
        with os.fdopen(os.dup(self.stream.fileno()), "rb") as whole:
            whole.seek(0)
            return whole.read(most)


def open_media(file: MediaFile) -> OpenFile:
    """The file, reached from its root step by step, following no link below it.

    What lay there when it was indexed may have been replaced since: by a link to a secret, or by a pipe that never
    answers. Both are 404, as is a path that leads upwards.
    """
    parts = file.path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ProblemError(404, GONE)
    opened: list[int] = []
    try:
        opened.append(os.open(file.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for folder in parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.append(os.open(folder, flags, dir_fd=opened[-1]))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(parts[-1], flags, dir_fd=opened[-1])
    except OSError as error:
        if error.errno in SHORTAGES:
            raise ProblemError(503, "too many files are open: try again soon", {"Retry-After": "1"}) from None
        raise ProblemError(404, GONE) from None
    finally:
        for folder_descriptor in opened:
            os.close(folder_descriptor)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ProblemError(404, GONE)
    return OpenFile(io.FileIO(descriptor, "rb"), status.st_size, status.st_mtime_ns)


def is_available(file: MediaFile) -> bool:
    """Whether the file can be opened now."""
    with suppress(ProblemError):
        open_media(file).stream.close()
        return True
    return False
