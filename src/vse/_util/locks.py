"""Allow one writer at a time, across processes. Standard library only."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from vse.errors import VSEError

NAME = ".lock"


class FolderLock:
    """Lock a folder for writing until :meth:`release`.

    The lock is on an open file, ``.lock`` inside the folder. The system releases it when the process ends for any
    reason, so there are no stale locks. The file stays, since deleting it would race with the next process that opens
    it; it holds the process id, for the error message of other processes.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / NAME
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise VSEError(f"{folder} cannot be written ({error.strerror}): check its permissions") from error
        try:
            lock_now(self._descriptor)
        except (BlockingIOError, PermissionError):
            holder = ""
            with suppress(OSError):
                holder = os.read(self._descriptor, 20).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            who = f"process {holder}" if holder.isdecimal() else "another process"
            raise VSEError(
                f"{folder} is being written by {who}: wait for it or stop it ('vse index --watch' runs until Ctrl-C)"
            ) from None
        except OSError as error:
            os.close(self._descriptor)
            raise VSEError(f"{path} cannot be locked ({error.strerror}): use a folder on another disk") from error
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


if sys.platform == "win32":
    import msvcrt

    def lock_now(descriptor: int) -> None:
        """Lock an open file, or raise OSError at once."""
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def lock_now(descriptor: int) -> None:
        """Lock an open file, or raise OSError at once."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
