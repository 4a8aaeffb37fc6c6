"""Remember which folders were indexed on this machine, outside of any collection.

A collection says where its files are, and it may come from somebody else: a row with the folder ``/etc`` and the path
``passwd`` is easily written. The service therefore shows files of confirmed folders only: of those that ``vse index``
was given here, and of those that ``vse serve --root`` names.

The record is ``confirmed_roots.json`` in ``$VSE_HOME`` or, without it, in ``$XDG_STATE_HOME/vse``
(``~/.local/state/vse``): the folders of each collection, by the place of the collection.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vse._util.atomic import write_json
from vse._util.locks import FolderLock
from vse._util.state import read_record, state_folder
from vse.errors import VSEError

FILE = "confirmed_roots.json"
ATTEMPTS = 50
PAUSE = 0.02
_SERVERS = ("milvus+", "postgresql://", "postgres://")


def record_file() -> Path:
    """Return where confirmed folders are recorded."""
    return state_folder() / FILE


def confirmed_roots(where: str | os.PathLike[str]) -> frozenset[str]:
    """Return the folders of the collection at ``where`` that were confirmed on this machine."""
    return frozenset(_read().get(_place(where), ()))


def unconfirmed_roots(where: str | os.PathLike[str], roots: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``roots`` whose files the service does not show."""
    known = confirmed_roots(where)
    return tuple(root for root in roots if root not in known)


def confirm_roots(where: str | os.PathLike[str], roots: Sequence[str]) -> bool:
    """Record that the user named these folders for the collection at ``where``.

    Args:
        where: Address of the collection.
        roots: Folders, as the collection stores them.

    Returns:
        Whether they are recorded; where the record cannot be written, searching and indexing go on without it.
    """
    if not unconfirmed_roots(where, roots):
        return True
    path = record_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(path.parent)
    except (OSError, VSEError):
        return False
    try:
        known = {place: found for place, found in _read().items() if place == _place(where) or _exists(place)}
        known[_place(where)] = sorted({*known.get(_place(where), ()), *roots})
        write_json(path, known)
    except OSError:
        return False
    finally:
        lock.release()
    return True


def how_to_confirm(where: str | os.PathLike[str], root: str) -> str:
    """Return the line that says why files of a folder are not shown, and how to confirm it."""
    command = f"vse serve {shlex.quote(os.fspath(where))} --root {shlex.quote(root)}"
    return f"{os.fspath(where)}: {root} was not indexed on this machine, so its files are not shown: '{command}' does"


def _locked(folder: Path) -> FolderLock:
    """Wait for a moment while another process records its folders."""
    from time import sleep

    for _ in range(ATTEMPTS):
        with suppress(VSEError):
            return FolderLock(folder)
        sleep(PAUSE)
    return FolderLock(folder)


def _place(where: str | os.PathLike[str]) -> str:
    """Return one name for a collection: the real path of its folder, or the address of a server."""
    address = os.fspath(where)
    return address if address.startswith(_SERVERS) else os.path.realpath(Path(address).expanduser())


def _exists(place: str) -> bool:
    return place.startswith(_SERVERS) or os.path.lexists(place)


def _read() -> Mapping[str, list[str]]:
    """Return the record; a damaged one confirms nothing, and the next confirmation replaces it."""
    lists = {place: found for place, found in read_record(record_file()).items() if isinstance(found, list)}
    return {place: [root for root in found if isinstance(root, str)] for place, found in lists.items()}
