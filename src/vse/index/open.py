"""Collections by their address: a folder is kept by SQLite and FAISS, ``milvus+…`` and ``….db`` by Milvus."""

from __future__ import annotations

import os
from pathlib import Path

from vse.errors import InputError, VSEError
from vse.index.collection import Backend, Collection

_ENDS = os.sep + (os.altsep or "")
"""What the shell's completion puts behind the name of a folder."""


def open_collection(where: str | os.PathLike[str], *, write: bool = False, model: str | None = None) -> Collection:
    """The collection at ``where``; ``model`` is the fingerprint that its vectors have to have."""
    if backend_of(where) == "milvus":
        from vse.index.milvus import MilvusCollection

        return MilvusCollection.open(_address(where), write=write, model=model)
    from vse.index.embedded import EmbeddedCollection

    return EmbeddedCollection.open(folder_at(where), write=write, model=model)


def create_collection(where: str | os.PathLike[str], *, model: str, model_source: str, dimensions: int) -> Collection:
    """A new, empty collection at ``where``, open for writing; one that is there already is an error."""
    if backend_of(where) == "milvus":
        from vse.index.milvus import MilvusCollection

        return MilvusCollection.create(_address(where), model=model, model_source=model_source, dimensions=dimensions)
    from vse.index.embedded import EmbeddedCollection

    return EmbeddedCollection.create(folder_at(where), model=model, model_source=model_source, dimensions=dimensions)


def collection_exists(where: str | os.PathLike[str]) -> bool:
    """Whether there is a collection at ``where``; an address that cannot be asked is an error.

    So is a file in its place. A collection that this version cannot open is never taken for absent.
    """
    if backend_of(where) == "milvus":
        from vse.index.milvus import MilvusCollection

        return MilvusCollection.exists(_address(where))
    from vse.index.embedded.layout import is_collection

    folder = folder_at(where)
    try:
        return is_collection(folder)
    except OSError as error:
        raise VSEError(f"{folder} cannot be read ({error.strerror}): check its permissions") from None


def backend_of(where: str | os.PathLike[str]) -> Backend:
    """What keeps the collection at this address."""
    address = os.fspath(where)
    if not address:
        raise InputError(
            "the address of a collection is empty: expected a folder such as photos.vse, or milvus+http://…"
        )
    return "milvus" if address.startswith("milvus+") or address.rstrip(_ENDS).endswith(".db") else "embedded"


def _address(where: str | os.PathLike[str]) -> str:
    address = os.fspath(where)
    return address.rstrip(_ENDS) if address.startswith("milvus+") else str(folder_at(address))


def folder_at(where: str | os.PathLike[str]) -> Path:
    """The place on disk; anything but a folder there, or on the way there, is an error."""
    folder = Path(where).expanduser()
    for place in (folder, *folder.parents):
        if os.path.isdir(place):  # noqa: PTH112 - Path.is_dir raises where a folder may not be entered
            break
        if os.path.lexists(place):
            raise InputError(f"{place} is not a folder, and a collection is kept in one: choose another name")
    return folder
