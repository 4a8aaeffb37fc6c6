"""Open, create and describe collections by their address: a folder, ``milvus+…``, ``….db`` or ``postgresql://…``."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from vse._util.plugins import Registry
from vse.errors import InputError, VSEError
from vse.index.checks import model_mismatch_error
from vse.index.storage import DEFAULT_STORAGE, check_storage
from vse.index.types import Backend, Collection, CollectionInfo, NameCount
from vse.index.words import SEARCHING
from vse.models.coefficients import Coefficients, RelevanceCoefficients, coefficients_of, own_relevance
from vse.models.devices import DeviceError
from vse.models.sources import named_place, place_of, recorded_place

if TYPE_CHECKING:
    from vse.index.query import Model


class CollectionBackend(Protocol):
    """What a plugin registers in the group ``vse.backends`` under the name NAME, for the addresses ``NAME+…``."""

    def open(self, address: str, *, write: bool, model: str | None) -> Collection:
        """Open an existing collection; arguments and errors as for :func:`open_collection`."""

    def create(self, address: str, *, model: str, model_source: str, dimensions: int) -> Collection:
        """Create an empty collection, open for writing."""

    def exists(self, address: str) -> bool:
        """Return whether there is a collection."""


BACKENDS: Registry[CollectionBackend] = Registry("vse.backends")
SERVERS = {"milvus": "Milvus", "postgresql": "PostgreSQL"}
_ENDS = os.sep + (os.altsep or "")
"""Trailing separators, as left by shell completion."""


def open_collection(where: str | os.PathLike[str], *, write: bool = False, model: str | None = None) -> Collection:
    """Open a collection.

    Args:
        where: A folder (SQLite and FAISS), ``milvus+http://…`` or ``….db`` (Milvus), or ``postgresql://…``.
        write: Open for writing; one writer at a time, any number of readers.
        model: Fingerprint that the collection's model must have; None accepts any.

    Raises:
        InputError: There is no collection, or it holds embeddings of another model.
        VSEError: It cannot be read, or another process is writing to it.
    """
    server = _server(where)
    if server is not None:
        return server[0].open(server[1], write=write, model=model)
    from vse.index.store import EmbeddedCollection

    return EmbeddedCollection.open(folder_at(where), write=write, model=model)


EXTERNAL = "external:"
"""How the source of a model begins that is not loaded here: its embeddings are computed elsewhere."""


def create_collection(
    where: str | os.PathLike[str],
    *,
    model: str,
    model_source: str | None = None,
    dimensions: int,
    storage: str | None = None,
) -> Collection:
    """Create an empty collection, open for writing.

    Args:
        where: An address as for :func:`open_collection`.
        model: Fingerprint of the model whose embeddings it will hold, or any name for a model of your own.
        model_source: Folder or name where that model is found again; None if embeddings are computed elsewhere, so that
            the collection is searched by vectors and by its items.
        dimensions: Width of its embeddings.
        storage: How a collection in a folder stores them: ``"float32"`` (default), ``"float16"`` or ``"int8"``.

    Raises:
        InputError: A collection or something else exists there already, or its backend has no such storage.
    """
    stored = check_storage(DEFAULT_STORAGE if storage is None else storage)
    model_source = f"{EXTERNAL}{model}" if model_source is None else model_source
    server = _server(where)
    if server is not None:
        name = SERVERS.get(backend_of(where))
        if stored != DEFAULT_STORAGE and name is not None:
            raise InputError(f"storage {stored!r}: {name} stores float32, leave it out or keep the index in a folder")
        return server[0].create(server[1], model=model, model_source=model_source, dimensions=dimensions)
    from vse.index.store import EmbeddedCollection

    return EmbeddedCollection.create(
        folder_at(where), model=model, model_source=model_source, dimensions=dimensions, storage=stored
    )


def collection_exists(where: str | os.PathLike[str]) -> bool:
    """Return whether there is a collection at ``where``, even one that this version cannot open.

    Raises:
        InputError: The address is invalid, or a file is in its place.
        VSEError: The folder or server cannot be read.
    """
    server = _server(where)
    if server is not None:
        return server[0].exists(server[1])
    from vse.index.store.layout import is_collection

    folder = folder_at(where)
    try:
        return is_collection(folder)
    except OSError as error:
        raise VSEError(f"{folder} cannot be read ({error.strerror}): check its permissions") from None


def convert_collection(where: str | os.PathLike[str]) -> bool:
    """Convert a collection of an earlier version to the current format, if it needs that; return whether it did.

    Items keep their ids. The next call resumes an interrupted conversion.

    Raises:
        VSEError: It cannot be read, or another process is writing to it.
    """
    if backend_of(where) != "milvus":
        return False
    from vse.index.milvus import convert_collection

    return convert_collection(_address(where)) is not None


def find_collections(folder: str | os.PathLike[str], pattern: str) -> list[str]:
    """Return the names of the collections in ``folder`` that match a glob ``pattern``, sorted."""
    from vse.index.store.layout import HEADER

    return sorted(
        path.name
        for path in Path(folder).glob(pattern)
        if os.path.isfile(path / HEADER)  # noqa: PTH113 - Path.is_file raises where a folder may not be entered
    )


def _server(where: str | os.PathLike[str]) -> tuple[CollectionBackend, str] | None:
    """Return the backend of an address, ours or a plugin's, and what it is to open; None for a folder of ours."""
    address = os.fspath(where)
    scheme = re.match(r"([a-z][a-z0-9]*)(?:\+|://)", address)
    if scheme and scheme[1] not in {"milvus", "postgresql", "postgres"} and scheme[1] in BACKENDS:
        return BACKENDS[scheme[1]], address
    ours = backend_of(where)
    if ours == "milvus":
        from vse.index.milvus import MilvusCollection

        return MilvusCollection, _address(where)
    if ours == "postgresql":
        from vse.index.postgres import PostgresCollection

        return PostgresCollection, address
    return None


def backend_of(where: str | os.PathLike[str]) -> Backend:
    """Return which backend an address belongs to."""
    address = os.fspath(where)
    if not address:
        raise InputError(
            "the address of a collection is empty: expected a folder such as photos.vse, or milvus+http://…"
        )
    if address.startswith(("postgresql:", "postgres:")):
        from vse.index.postgres import parse_address

        parse_address(address)  # whoever names the address in a message names no password
        return "postgresql"
    return "milvus" if address.startswith("milvus+") or address.rstrip(_ENDS).endswith(".db") else "embedded"


def _address(where: str | os.PathLike[str]) -> str:
    address = os.fspath(where)
    return address.rstrip(_ENDS) if address.startswith("milvus+") else str(folder_at(address))


def folder_at(where: str | os.PathLike[str]) -> Path:
    """Return the folder of an embedded collection; raise when something else is in its place."""
    folder = Path(where).expanduser()
    for place in (folder, *folder.parents):
        if os.path.isdir(place):  # noqa: PTH112 - Path.is_dir raises where a folder may not be entered
            break
        if os.path.lexists(place):
            raise InputError(f"{place} is not a folder, and a collection is kept in one: choose another name")
    return folder


def is_external(info: CollectionInfo) -> bool:
    """Return whether the embeddings are computed elsewhere, by a model that is not loaded here."""
    return info.model_source.startswith(EXTERNAL)


@dataclass(frozen=True)
class _Loaded:
    """A model, and as what it was loaded."""

    model: Model
    source: str | None
    device: str | None
    threads: int | None

    def serves(self, source: str | None, device: str | None, threads: int | None) -> bool:
        """Return whether it is what is asked for; None leaves device and threads as they are."""
        return source == self.source and device in {None, self.device} and threads in {None, self.threads}


_loaded: WeakKeyDictionary[Collection, _Loaded] = WeakKeyDictionary()


def load_collection_model(
    collection: Collection,
    model: Model | str | os.PathLike[str] | None = None,
    *,
    device: str | None = None,
    threads: int | None = None,
) -> Model:
    """Return the model that encoded a collection, loaded once per open collection.

    Args:
        collection: An open collection.
        model: A folder or hub id where the model is now, or a loaded model; by default where it was when indexing.
        device: Where a model that is loaded here runs, as for :func:`vse.load`; the CPU by default.
        threads: Threads on the CPU of a model that is loaded here; all cores by default.

    Raises:
        InputError: The model or the device cannot be loaded, or its fingerprint differs from the collection's.
    """
    source, loaded = _source_or_model(model)
    known = _loaded.get(collection)
    if known is not None and (loaded is known.model or (loaded is None and known.serves(source, device, threads))):
        return known.model
    info = collection.info()
    if is_external(info) and model is None:
        raise InputError(
            f"{info.where} holds embeddings of {info.model!r}, which are computed elsewhere: "
            "search by a vector, or by an item of the collection"
        )
    found = loaded or _load(info, source, device, threads)
    if found.fingerprint() != info.model:
        given_source = None if loaded else source or info.model_source
        raise model_mismatch_error(info.where, info.model, info.model_source, found.fingerprint(), given_source)
    _loaded[collection] = _Loaded(found, source, None if loaded else device, None if loaded else threads)
    return found


def collection_coefficients(
    collection: Collection, model: Model | str | os.PathLike[str] | None = None
) -> Coefficients | None:
    """Return the confidence coefficients of the collection's model, as :func:`vse.models.coefficients_of` does."""
    place = _coefficients_place(collection, model)
    return None if place is None else coefficients_of(place)


def collection_relevance(
    collection: Collection, model: Model | str | os.PathLike[str] | None = None
) -> RelevanceCoefficients | None:
    """Return the relevance coefficients of the collection's model; None if it has none or is not on this machine."""
    place = _coefficients_place(collection, model)
    return None if place is None else own_relevance(place)


def _coefficients_place(collection: Collection, model: Model | str | os.PathLike[str] | None) -> str | None:
    """Return where the model's coefficients are, if anywhere: a collection may be searched without its model."""
    source, info = _source_or_model(model)[0], collection.info()
    if source is None and is_external(info):
        return None
    return source or place_of(info.model_source, info.model)


def model_place(info: CollectionInfo, source: str | None = None) -> str:
    """Return the place of the model ``source`` or, if None, of the one that was used when indexing.

    Only what the user names may be a hub id.

    Raises:
        InputError: The model that was used when indexing is not on this machine.
    """
    return named_place(source) if source else recorded_place(info.model_source, info.model)


def upgrade_hint(info: CollectionInfo) -> str | None:
    """Return the line that offers an upgrade if an earlier version of a bundled model encoded the collection."""
    if place_of(info.model_source, info.model) == place_of(info.model_source):
        return None
    return (
        f"{info.where} uses an earlier version of the {info.model_source!r} model: "
        f"'vse collection upgrade {shlex.quote(info.where)}' re-encodes it with the current one"
    )


def _load(info: CollectionInfo, source: str | None, device: str | None, threads: int | None) -> Model:
    from vse.models.sources import load_towers

    try:
        return load_towers(model_place(info, source), device=device, threads=threads)
    except DeviceError:
        raise
    except InputError as error:
        if source is not None:
            raise
        raise InputError(f"the model of {info.where} cannot be loaded ({error}): name it with --model") from error


def _source_or_model(model: Model | str | os.PathLike[str] | None) -> tuple[str | None, Model | None]:
    return (os.fspath(model), None) if isinstance(model, (str, os.PathLike)) else (None, model)


@dataclass(frozen=True)
class Overview:
    """Summary of a collection for display.

    Attributes:
        info: Contents and origin.
        bytes: Size on disk; None if a server holds it.
        unfinished: An unfinished upgrade, if any.
        cameras: The most frequent cameras of its files; not known on Milvus.
        places: The most frequent places, likewise.
        note: What was just done with the collection.
    """

    info: CollectionInfo
    bytes: int | None = None
    unfinished: CollectionInfo | None = None
    note: str | None = None
    cameras: tuple[NameCount, ...] = ()
    places: tuple[NameCount, ...] = ()

    def to_json(self) -> dict[str, Any]:
        info, left = self.info, self.unfinished
        values = {name: value for name, value in asdict(info).items() if name != "root_files"}
        values["roots"] = list(info.roots)
        values["folders"] = [{"root": root, "files": count} for root, count in self.folders()]
        values["bytes"] = self.bytes
        values["unfinished"] = left and {
            name: getattr(left, name) for name in ("generation", "model", "model_source", "dimensions", "files")
        }
        for name, counts in (("cameras", self.cameras), ("places", self.places)):
            values[name] = [asdict(count) for count in counts]
        return values if self.note is None else {**values, "note": self.note}

    def folders(self) -> list[tuple[str, int]]:
        """Return the indexed folders, each with its number of files."""
        return list(zip(self.info.roots, self.info.root_files, strict=True))


def overview_of(collection: Collection, note: str | None = None) -> Overview:
    """Return the summary of an open collection."""
    info = collection.info()
    facets = collection.facets(0) if info.backend in SEARCHING else None
    cameras, places = (facets.cameras, facets.places) if facets is not None else ((), ())
    return Overview(info, bytes_below(Path(info.where)), collection.unfinished(), note, cameras, places)


@dataclass(frozen=True)
class CollectionLag:
    """How fresh a collection is.

    Attributes:
        changed: Time of the last change, in seconds since 1970; None if unknown.
        pending: Committed changes that the search cache lacks; searches read them from the database meanwhile.
    """

    changed: float | None
    pending: int


def collection_lag(collection: Collection) -> CollectionLag | None:
    """Return how fresh a collection is; None if a server holds it, which knows better."""
    from vse.index.store import EmbeddedCollection
    from vse.index.store.session import changes_behind, last_change

    if not isinstance(collection, EmbeddedCollection):
        return None
    changed = last_change(collection.folder, collection.generation)
    return CollectionLag(changed, changes_behind(collection.session, collection.caches))


def bytes_below(folder: Path) -> int | None:
    """Return the total size of the readable files in a folder; None if it is not a folder."""
    if not folder.is_dir():
        return None
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a concurrent writer may remove it
                total += Path(place, name).lstat().st_size
    return total
