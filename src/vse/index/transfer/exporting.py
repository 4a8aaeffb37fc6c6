"""Write the embeddings and metadata of a collection to files that NumPy, Parquet and ``vse collection import`` read."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from vse._util.atomic import sync_folder, write_json
from vse.errors import InputError, VSEError, require
from vse.index.transfer.parquet import FORMAT, SHARDS
from vse.index.transfer.places import AnyPath, place_of
from vse.index.transfer.rows import EMBEDDING, write_row
from vse.index.transfer.sources import ITEMS, MANIFEST, VECTORS, read_shards
from vse.index.types import Collection, CollectionInfo, Item, Vectors
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.batch.store import Store

BLOCK = 2048
HEADER_BYTES = 128
PARQUET = ".parquet"


@dataclass(frozen=True)
class EmbeddingExport:
    """What an export wrote: ``out`` is a folder, or a Parquet file."""

    where: str
    out: str
    items: int
    files: int
    dimensions: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.where,
            "out": self.out,
            "items": self.items,
            "files": self.files,
            "dimensions": self.dimensions,
            "bytes": self.bytes,
        }


def stream_items(collection: Collection, block: int = BLOCK) -> Iterator[tuple[Item, Vectors]]:
    """Yield every item with its embedding ``(D,)``, by ascending id; ``block`` of them are in memory.

    Items that a concurrent writer adds or removes meanwhile may or may not be among them.

    >>> from vse.index import open_collection, stream_items
    >>> for item, vector in stream_items(open_collection("mine.vse")):  # doctest: +SKIP
    ...     print(item.id, item.file.path, vector[:3])
    """
    for ids, vectors in collection.all_vectors(block):
        yield from _known(collection, ids.tolist(), vectors)


def _known(collection: Collection, ids: list[int], vectors: Vectors) -> Iterator[tuple[Item, Vectors]]:
    """Yield the items that still exist, with their embeddings."""
    try:
        yield from zip(collection.items(ids), vectors, strict=True)
    except InputError:  # some were removed meanwhile
        for number, vector in zip(ids, vectors, strict=True):
            try:
                (item,) = collection.items([number])
            except InputError:
                continue
            yield item, vector


def export_embeddings(
    collection: Collection, out: str | Path, *, shard_rows: int | None = None, progress: ProgressReporter | None = None
) -> EmbeddingExport:
    """Write all items of a collection to a folder, or to one Parquet file if ``out`` ends in ``.parquet``.

    A folder holds ``embeddings.npy`` (float32, a row for each item), ``items.jsonl`` (a line for each) and
    ``export.json`` (the model). Parquet has a row for each item, with the embedding in the column ``embedding``. Either
    appears complete or not at all. With ``shard_rows``, the folder holds Parquet files of about so many items, each of
    which appears complete or not at all, and the same call resumes an interrupted export. Embeddings of captions are
    not exported.

    Args:
        collection: An open collection.
        out: The folder or file to create, a path or an fsspec URL. Of the files of a folder behind a URL
            ``export.json`` is written last.
        shard_rows: Items of a shard.
        progress: Receives the items written.

    Raises:
        InputError: ``out`` exists, or its parent folder does not.
        VSEError: It cannot be written.
    """
    target, info, report = place_of(out), collection.info(), progress or SilentProgress()
    if shard_rows is not None and (shard_rows < 1 or target.suffix.lower() == PARQUET):
        raise InputError(f"shards of {shard_rows} rows in {target}: expected at least 1, and a folder")
    if shard_rows is None and _exists(target):
        raise InputError(f"{target} exists already: choose another name, or remove it")
    if isinstance(target, Path) and not target.absolute().parent.is_dir():
        raise InputError(f"{target.parent} is not a folder: create it first")
    report.start(info.items, "exporting")
    try:
        if shard_rows is not None:
            items, files = _export_shards(collection, info, target, shard_rows, report)
            size = sum(size for _, size in _store_of(target).names())
        else:
            items, files, size = _export_whole(collection, info, target, report)
    except OSError as error:
        raise VSEError(f"{target} cannot be written ({error.strerror or error}): check space and permissions") from None
    finally:
        report.finish()
    return EmbeddingExport(info.where, str(target), items, files, info.dimensions, size)


def _exists(target: AnyPath) -> bool:
    return os.path.lexists(target) if isinstance(target, Path) else target.exists()


def _store_of(folder: AnyPath) -> Store:
    from vse.batch.store import open_store  # with the readers of images

    return open_store(str(folder))


def _export_whole(
    collection: Collection, info: CollectionInfo, target: AnyPath, report: ProgressReporter
) -> tuple[int, int, int]:
    """Write a folder or a Parquet file beside its place and move it there; return items, files and bytes."""
    beside = target.absolute().parent if isinstance(target, Path) else None
    temporary = Path(tempfile.mkdtemp(dir=beside, prefix=f".{target.name}."))
    try:
        if target.suffix.lower() == PARQUET:
            made = temporary / target.name
            items, files = _write_parquet(collection, info, made, report)
        else:
            made = temporary / "export"
            made.mkdir()
            items, files = _write_folder(collection, info, made, report)
        written = [made] if made.is_file() else [made / name for name in (VECTORS, ITEMS, MANIFEST)]
        size = sum(path.stat().st_size for path in written)
        if isinstance(target, Path):
            made.rename(target)
            sync_folder(target.absolute().parent)
        else:
            store = _store_of(target.parent if made.is_file() else target)
            for path in written:  # the last one makes the export complete
                store.upload(path.name, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return items, files, size


def _manifest(info: CollectionInfo) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": 1,
        "model": info.model,
        "model_source": info.model_source,
        "dimensions": info.dimensions,
    }


def _write_folder(
    collection: Collection, info: CollectionInfo, folder: Path, report: ProgressReporter
) -> tuple[int, int]:
    items = files = 0
    last = None
    with (folder / VECTORS).open("wb") as vectors, (folder / ITEMS).open("w", encoding="utf-8") as lines:
        _write_header(vectors, 0, info.dimensions)
        for item, vector in stream_items(collection):
            vectors.write(np.ascontiguousarray(vector, "<f4").tobytes())
            lines.write(json.dumps(write_row(item), allow_nan=False) + "\n")
            items += 1
            files += last != (last := (item.file.root, item.file.path))
            report.advance()
        vectors.seek(0)
        _write_header(vectors, items, info.dimensions)  # a concurrent writer may have changed the number
        for stream in (vectors, lines):
            stream.flush()
            os.fsync(stream.fileno())
    write_json(folder / MANIFEST, {**_manifest(info), "items": items, "files": files})
    return items, files


def _write_header(file: IO[bytes], rows: int, dimensions: int) -> None:
    """Write the header of a ``.npy`` file in a fixed number of bytes, so that it can be written again."""
    text = str({"descr": "<f4", "fortran_order": False, "shape": (rows, dimensions)})
    start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    file.write(start + text.encode("latin-1").ljust(HEADER_BYTES - 11) + b"\n")


def _write_parquet(
    collection: Collection, info: CollectionInfo, file: Path, report: ProgressReporter
) -> tuple[int, int]:
    layout = _Layout(info)
    items = files = 0
    last = None
    stream = stream_items(collection)
    with layout.writer(file) as writer:
        while block := list(islice(stream, BLOCK)):
            writer.write_batch(layout.batch(block))
            for item, _ in block:
                files += last != (last := (item.file.root, item.file.path))
            items += len(block)
            report.advance(len(block))
    return items, files


class _Layout:
    """The columns of exported Parquet files."""

    def __init__(self, info: CollectionInfo, **more: Any) -> None:
        self._pyarrow = require("pyarrow", "parquet", "writing Parquet")
        self._parquet = require("pyarrow.parquet", "parquet", "writing Parquet")
        pyarrow, self._width = self._pyarrow, info.dimensions
        self._kinds = {
            **dict.fromkeys(("id", "root", "kind", "digest", "camera", "place"), pyarrow.string()),
            **dict.fromkeys(("title", "description", "ocr"), pyarrow.string()),
            **dict.fromkeys(("size", "modified", "width", "height", "metadata_version"), pyarrow.int64()),
            **dict.fromkeys(("taken", "latitude", "longitude", "duration", "start", "end"), pyarrow.float64()),
            **dict.fromkeys(("captions", "keywords"), pyarrow.list_(pyarrow.string())),
            EMBEDDING: pyarrow.list_(pyarrow.float32(), info.dimensions),
        }
        described = json.dumps({**_manifest(info), **more})
        self._schema = pyarrow.schema(list(self._kinds.items()), metadata={FORMAT: described})

    def writer(self, file: Path) -> Any:
        return self._parquet.ParquetWriter(file, self._schema, compression="zstd")

    def batch(self, block: Sequence[tuple[Item, Vectors]]) -> Any:
        flat = self._pyarrow.array(np.concatenate([vector for _, vector in block]))
        columns = [
            self._pyarrow.array([_cell(item, name) for item, _ in block], kind)
            if name != EMBEDDING
            else self._pyarrow.FixedSizeListArray.from_arrays(flat, self._width)
            for name, kind in self._kinds.items()
        ]
        return self._pyarrow.record_batch(columns, schema=self._schema)


def _cell(item: Item, name: str) -> Any:
    if name in ("start", "end"):
        return getattr(item, name)
    value = item.file.path if name == "id" else getattr(item.file, name)
    return list(value) or None if isinstance(value, tuple) else value


def _export_shards(
    collection: Collection, info: CollectionInfo, folder: AnyPath, rows: int, report: ProgressReporter
) -> tuple[int, int]:
    """Write Parquet files of about ``rows`` items each, by id; those that are there already are kept.

    A file is never split. Each shard is renamed into place when complete; ``shards.json`` says at the end that all
    of them are.
    """
    state = {**_manifest(info), "generation": info.generation, "changes": info.changes, "shard_rows": rows}
    store = _store_of(folder)
    done, items, files = _begin(folder, store, state), 0, 0
    for shard in done:
        items, files = items + shard["items"], files + shard["files"]
    report.advance(items)
    stream = _after(collection, done[-1]["last"] if done else None)
    waiting = next(stream, None)
    number = len(done)
    while waiting is not None:
        beside = folder if isinstance(folder, Path) else None
        with tempfile.TemporaryDirectory(dir=beside, prefix=".shard.") as temporary:
            made = Path(temporary) / "shard.parquet"
            counted, counted_files, last, place = 0, 0, 0, None
            layout = _Layout(info)
            with layout.writer(made) as writer:
                block: list[tuple[Item, Vectors]] = []
                while waiting is not None:
                    here = (waiting[0].file.root, waiting[0].file.path)
                    if counted >= rows and here != place:
                        break
                    counted_files += here != place
                    place, last, counted = here, waiting[0].id, counted + 1
                    block.append(waiting)
                    if len(block) >= BLOCK:
                        writer.write_batch(layout.batch(block))
                        report.advance(len(block))
                        block = []
                    waiting = next(stream, None)
                if block:
                    writer.write_batch(layout.batch(block))
                    report.advance(len(block))
            with made.open("rb") as file:
                os.fsync(file.fileno())
            done.append({"name": f"shard-{number:05}.parquet", "items": counted, "files": counted_files, "last": last})
            store.upload(done[-1]["name"], made)
        _record(store, {**state, "complete": False, "shards": done})
        items, files, number = items + counted, files + counted_files, number + 1
    _record(store, {**state, "complete": True, "items": items, "files": files, "shards": done})
    return items, files


def _record(store: Store, state: Mapping[str, Any]) -> None:
    store.write(SHARDS, (json.dumps(state, indent=1) + "\n").encode())


def _begin(folder: AnyPath, store: Store, state: dict[str, Any]) -> list[dict[str, Any]]:
    """Create the folder, or return the shards of an interrupted export of the same collection."""
    if not _exists(folder):
        if isinstance(folder, Path):
            folder.mkdir()
        _record(store, {**state, "complete": False, "shards": []})
        return []
    if store.read(SHARDS) is None:
        raise InputError(f"{folder} exists already: choose another name, or remove it")
    found = read_shards(folder)
    if found.get("complete"):
        raise InputError(f"{folder} exists already, and is complete: choose another name, or remove it")
    if any(found.get(name) != value for name, value in state.items()):
        raise InputError(
            f"{folder} is an unfinished export of other data: the collection has changed, remove the folder"
        )
    shards = list(found["shards"])
    if isinstance(folder, Path):
        for left in folder.glob(".shard.*"):  # of a killed process
            shutil.rmtree(left, ignore_errors=True)
    known = {shard["name"] for shard in shards}
    for name in [name for name, _ in store.names()]:
        if name.endswith(PARQUET) and "/" not in name and name not in known:
            store.remove(name)  # it was moved there, but not recorded before the kill
    return shards


def _after(collection: Collection, last: int | None) -> Iterator[tuple[Item, Vectors]]:
    """Yield every item with an id above ``last``."""
    for ids, vectors in collection.all_vectors(BLOCK):
        start = 0 if last is None else int(np.searchsorted(ids, last, side="right"))
        if start < len(ids):
            yield from _known(collection, ids[start:].tolist(), vectors[start:])
