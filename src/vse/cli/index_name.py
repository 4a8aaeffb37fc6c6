"""What an index is called when nobody named it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from vse.errors import InputError, UsageError
from vse.index.embedded.layout import HEADER, read_generation

ENDING = ".vse"
_OF_OTHERS = ("-", "~", "milvus+")
"""Beginnings that mean something else on a command line: an option, a home, a server."""


def named_after(root: str) -> str:
    """The index in the present folder that is called like ``root``, an absolute path: ``Photos.vse``."""
    name = Path(root).name
    if not name:
        raise UsageError(f"{root} has no name that an index could be called by: choose one, --into NAME{ENDING}")
    return _plain(name + ENDING)


def check_named_after(where: str, root: str, known: Sequence[str]) -> None:
    """Two folders may be called the same: one is not added to the index of the other unless that is asked for."""
    if known and root not in known:
        raise InputError(
            f"{where} is there already, for {known[0]}: 'vse index {shlex.quote(root)} --into {shlex.quote(where)}' "
            "adds this folder to it, another name after --into makes an index of its own"
        )


def only_index_here() -> str:
    """The index in the present folder, if there is exactly one; else the call has to name it."""
    found = sorted(path.name for path in Path().glob(f"*{ENDING}") if os.path.isfile(path / HEADER))  # noqa: PTH113
    if len(found) == 1:
        return _plain(found[0])
    if found:
        raise UsageError(f"several indexes are in this folder ({', '.join(found)}): name one of them")
    raise UsageError(f"no index was named, and no *{ENDING} is in this folder: 'vse index FOLDER' makes one")


def is_index(folder: str) -> bool:
    """Whether a folder is an index; a file that is called like one of its files does not make it one."""
    try:
        read_generation(Path(folder))
    except InputError:
        return False
    return True


def _plain(name: str) -> str:
    """A name that means the file of this name and nothing else."""
    return os.path.abspath(name) if name.startswith(_OF_OTHERS) else name  # noqa: PTH100 - links stay
