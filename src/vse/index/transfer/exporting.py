"""Write the embeddings and metadata of a collection to files that NumPy, Parquet and ``vse collection import`` read."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from vse._util.atomic import sync_folder, write_json
from vse.errors import InputError, VSEError, require
from vse.index.transfer.parquet import FORMAT
from vse.index.transfer.rows import EMBEDDING, write_row
from vse.index.transfer.sources import ITEMS, MANIFEST, VECTORS
from vse.index.types import Collection, CollectionInfo, Item, Vectors
from vse.progress import ProgressReporter, SilentProgress

BLOCK = 1024
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
        numbers = ids.tolist()
        try:
            yield from zip(collection.items(numbers), vectors, strict=True)
        except InputError:  # some were removed meanwhile
            for number, vector in zip(numbers, vectors, strict=True):
                try:
                    (item,) = collection.items([number])
                except InputError:
                    continue
                yield item, vector


def export_embeddings(
    collection: Collection, out: str | Path, *, progress: ProgressReporter | None = None
) -> EmbeddingExport:
    """Write all items of a collection to a folder, or to one Parquet file if ``out`` ends in ``.parquet``.

    A folder holds ``embeddings.npy`` (float32, a row for each item), ``items.jsonl`` (a line for each) and
    ``export.json`` (the model). Parquet has a row for each item, with the embedding in the column ``embedding``. Either
    appears complete or not at all. Embeddings of captions are not exported.

    Args:
        collection: An open collection.
        out: The folder or file to create.
        progress: Receives the items written.

    Raises:
        InputError: ``out`` exists, or its parent folder does not.
        VSEError: It cannot be written.
    """
    target, info, report = Path(out), collection.info(), progress or SilentProgress()
    if os.path.lexists(target):
        raise InputError(f"{target} exists already: choose another name, or remove it")
    if not target.absolute().parent.is_dir():
        raise InputError(f"{target.parent} is not a folder: create it first")
    report.start(info.items, "exporting")
    try:
        temporary = Path(tempfile.mkdtemp(dir=target.absolute().parent, prefix=f".{target.name}."))
        try:
            if target.suffix.lower() == PARQUET:
                made = temporary / target.name
                items, files = _write_parquet(collection, info, made, report)
            else:
                made = temporary / "export"
                made.mkdir()
                items, files = _write_folder(collection, info, made, report)
            size = sum(path.stat().st_size for path in ([made] if made.is_file() else made.iterdir()))
            made.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync_folder(target.absolute().parent)
    except OSError as error:
        raise VSEError(f"{target} cannot be written ({error.strerror or error}): check space and permissions") from None
    finally:
        report.finish()
    return EmbeddingExport(info.where, str(target), items, files, info.dimensions, size)


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
    pyarrow = require("pyarrow", "parquet", "writing Parquet")
    parquet = require("pyarrow.parquet", "parquet", "writing Parquet")
    kinds = {
        **dict.fromkeys(("id", "root", "kind", "digest", "camera", "place"), pyarrow.string()),
        **dict.fromkeys(("title", "description", "ocr"), pyarrow.string()),
        **dict.fromkeys(("size", "modified", "width", "height", "metadata_version"), pyarrow.int64()),
        **dict.fromkeys(("taken", "latitude", "longitude", "duration", "start", "end"), pyarrow.float64()),
        **dict.fromkeys(("captions", "keywords"), pyarrow.list_(pyarrow.string())),
        EMBEDDING: pyarrow.list_(pyarrow.float32(), info.dimensions),
    }
    schema = pyarrow.schema(list(kinds.items()), metadata={FORMAT: json.dumps(_manifest(info))})
    items = files = 0
    last = None
    stream = stream_items(collection)
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while block := list(islice(stream, BLOCK)):
            rows = [write_row(item) for item, _ in block]
            flat = pyarrow.array(np.concatenate([vector for _, vector in block]))
            columns = [
                pyarrow.array([row.get(name) for row in rows], kind)
                if name != EMBEDDING
                else pyarrow.FixedSizeListArray.from_arrays(flat, info.dimensions)
                for name, kind in kinds.items()
            ]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))
            for item, _ in block:
                files += last != (last := (item.file.root, item.file.path))
            items += len(block)
            report.advance(len(block))
    return items, files
