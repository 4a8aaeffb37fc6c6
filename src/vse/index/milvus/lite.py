"""Milvus Lite inside this process: one server for each folder, however many collections are open on it."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vse.errors import InputError, VSEError, first_line, require
from vse.index.milvus.torn_indexes import remove_torn_indexes

_guard = threading.Lock()
_users: Counter[str] = Counter()


def check_folder(folder: Path, *, new: bool) -> None:
    """What can be said about ``folder`` before Milvus Lite, which makes whatever is absent, is started on it."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: Milvus Lite keeps a folder there since version 3, choose another name")
    ours = is_used(folder)
    if not new and not ours:
        raise InputError(f"{folder} is no collection, it holds no Milvus Lite data: 'vse index' makes one")
    if new and folder.is_dir() and not ours:
        strangers = [path.name for path in folder.iterdir() if path.name not in {".lock", "LOCK", "databases"}]
        if strangers:
            raise InputError(f"{folder} holds {strangers[0]!r}: expected a new or empty folder for Milvus Lite")


def is_used(folder: Path) -> bool:
    """Whether Milvus Lite has kept something in ``folder``."""
    return (folder / "collections").is_dir()


def start(folder: Path) -> str:
    """The address of the server on ``folder``; :func:`stop` has to be called as often as this."""
    key = str(folder.resolve())
    with _guard:
        if not _users[key]:
            remove_torn_indexes(folder)
        with _heard() as reasons:
            uri = _servers().start_and_get_uri(key)
        if uri is None:
            reason = reasons[0] if reasons else "no reason given"
            raise VSEError(
                f"{folder} cannot be opened by Milvus Lite ({reason}): it serves one process at a time, close it in "
                "the other, or use a Milvus server"
            )
        _users[key] += 1
    return str(uri)


def stop(folder: Path) -> None:
    """End the server when nobody in this process uses it any more, so that another process may."""
    key = str(folder.resolve())
    with _guard:
        _users[key] -= 1
        if _users[key] <= 0:
            del _users[key]
            _servers().release_server(key)


def _servers() -> Any:
    return require("milvus_lite.server_manager", "milvus", "a collection in a .db folder").server_manager_instance


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Why a server did not start: Milvus Lite says so only in its log, from where it would reach the terminal."""
    reasons: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[1] is not None:
                reasons.append(first_line(record.exc_info[1]))

    log = logging.getLogger("milvus_lite.server_manager")
    listener, before = Listener(), log.propagate
    log.addHandler(listener)
    log.propagate = False
    try:
        yield reasons
    finally:
        log.propagate = before
        log.removeHandler(listener)
