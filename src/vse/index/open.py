"""Collections by their address: a folder is kept by SQLite and FAISS, ``milvus+…`` and ``….db`` by Milvus."""

from __future__ import annotations

import os
from pathlib import Path

from vse.errors import InputError
from vse.index.collection import Backend, Collection


def open_collection(where: str | os.PathLike[str], *, write: bool = False, model: str | None = None) -> Collection:
    """The collection at ``where``; ``model`` is the fingerprint that its vectors have to have."""
    if backend_of(where) == "milvus":
        from vse.index.milvus import MilvusCollection

        return MilvusCollection.open(_address(where), write=write, model=model)
    from vse.index.embedded import EmbeddedCollection

    return EmbeddedCollection.open(_folder(where), write=write, model=model)


def create_collection(where: str | os.PathLike[str], *, model: str, model_source: str, dimensions: int) -> Collection:
    """A new, empty collection at ``where``, open for writing; one that is there already is an error."""
    if backend_of(where) == "milvus":
        from vse.index.milvus import MilvusCollection

        return MilvusCollection.create(_address(where), model=model, model_source=model_source, dimensions=dimensions)
    from vse.index.embedded import EmbeddedCollection

    return EmbeddedCollection.create(_folder(where), model=model, model_source=model_source, dimensions=dimensions)


def collection_exists(where: str | os.PathLike[str]) -> bool:
    """Whether there is a collection at ``where``; an address that cannot be asked is an error."""
    if backend_of(where) == "milvus":
        from vse.index.milvus import parse_address

        parse_address(_address(where))
        try:
            open_collection(where).close()
        except InputError:
            return False
        return True
    from vse.index.embedded.layout import is_collection

    return is_collection(_folder(where))


def backend_of(where: str | os.PathLike[str]) -> Backend:
    """What keeps the collection at this address."""
    address = os.fspath(where)
    if not address:
        raise InputError(
            "the address of a collection is empty: expected a folder such as photos.vse, or milvus+http://…"
        )
    return "milvus" if address.startswith("milvus+") or address.endswith(".db") else "embedded"


def _address(where: str | os.PathLike[str]) -> str:
    address = os.fspath(where)
    return address if address.startswith("milvus+") else str(_folder(address))


def _folder(where: str | os.PathLike[str]) -> Path:
    return Path(where).expanduser()
