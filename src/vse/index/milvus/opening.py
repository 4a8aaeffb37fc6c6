"""The way to a connection: lock, connect, prepare, and give all back when something fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vse.errors import VSEError
from vse.index.milvus import lite
from vse.index.milvus.address import MilvusAddress
from vse.index.milvus.connection import Connection
from vse.index.milvus.tables import Tables
from vse.locking import FolderLock


def opened(
    address: MilvusAddress, prepare: Callable[[Connection], Tables], *, new: bool, write: bool
) -> tuple[Tables, FolderLock | None]:
    """What ``prepare`` finds or makes over a new connection, and the lock of a folder that may be written."""
    lock = None
    if address.folder is not None:
        lite.check_folder(address.folder, new=new)
        lock = _locked(address.folder) if write else None
    try:
        connection = Connection(address)
        try:
            return prepare(connection), lock
        except BaseException:
            connection.close()
            raise
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def _locked(folder: Path) -> FolderLock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FolderLock(folder)
    except OSError as error:
        raise VSEError(f"{folder} cannot be used ({error.strerror}): choose a folder that may be written") from error
