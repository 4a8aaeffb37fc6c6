"""Files of embeddings and their metadata: ``.npy`` with CSV, JSON or Parquet beside it, Parquet, JSON lines, exports.

Files may come from anywhere: nothing is unpickled, sizes are checked against what a file declares before anything is
read, and at most :data:`BLOCK_BYTES` of embeddings are in memory.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from vse.errors import InputError, first_line
from vse.index.transfer.parquet import (
    FORMAT,
    MAX_ROWS,
    SHARDS,
    Block,
    Origin,
    check_embedded,
    check_shards,
    checked_width,
    open_parquet,
    parquet_blocks,
    parquet_origin,
    parquet_rows,
    parquet_width,
)
from vse.index.transfer.places import AnyPath, local_copy
from vse.index.transfer.rows import COLUMNS, EMBEDDING, check_columns
from vse.inputs.files import read_at_most

BLOCK_ROWS = 1024
BLOCK_BYTES = 64_000_000
MAX_LINE = 4_000_000
"""Bytes of a line of CSV or JSON."""
MAX_JSON = 200_000_000
"""Bytes of a ``.json`` file, which is read as a whole; JSON lines have no such limit."""
MANIFEST, VECTORS, ITEMS = "export.json", "embeddings.npy", "items.jsonl"
TABLES = (".csv", ".json", ".jsonl", ".ndjson", ".parquet")
EXPECTED = "expected .npy, .parquet, .jsonl, or a folder of Parquet files or of an export"
_FLOATS = ("f2", "f4", "f8")


@dataclass(frozen=True)
class EmbeddingSource:
    """Embeddings with their metadata, in one file or two.

    Attributes:
        vectors: The file of the embeddings.
        metadata: The file that describes each row; None if there is none, or if it is ``vectors`` itself.
        column: Column of the embeddings, of a table.
        rows: Number of rows; None if it is known only after reading them.
        dimensions: Width of the embeddings.
        origin: The model, if an export says it.
        ignored: Columns that are not read.
    """

    vectors: AnyPath
    metadata: AnyPath | None
    column: str
    rows: int | None
    dimensions: int
    origin: Origin | None = None
    ignored: tuple[str, ...] = ()

    def blocks(self) -> Iterator[Block]:
        """Yield all rows in blocks.

        Raises:
            InputError: A file is damaged, or the files have different numbers of rows.
        """
        size = max(1, min(BLOCK_ROWS, BLOCK_BYTES // (8 * self.dimensions)))
        if self.vectors.suffix.lower() == ".npy":
            yield from self._npy_blocks(size)
        elif self.vectors.suffix.lower() == ".parquet":
            yield from parquet_blocks(self.vectors, self.column, self.dimensions, size)
        else:
            yield from _line_blocks(self.vectors, self.column, self.dimensions, size)

    def _npy_blocks(self, size: int) -> Iterator[Block]:
        vectors = _open_npy(self.vectors)
        count = len(vectors)
        rows = _numbered(self.vectors.stem) if self.metadata is None else table_rows(self.metadata)

        def described(start: int, length: int) -> Iterator[dict[str, Any]]:
            found = 0
            for row in islice(rows, length):
                found += 1
                yield row
            if found < length:
                raise _different(self, count, start + found)

        for start in range(0, count, size):
            block = np.asarray(vectors[start : start + size])
            yield Block(start + 1, block, described(start, len(block)))
        if self.metadata is not None and (more := sum(1 for _ in rows)):
            raise _different(self, count, count + more)


def open_sources(
    paths: Sequence[AnyPath], *, column: str = EMBEDDING, metadata: Sequence[AnyPath] = ()
) -> list[EmbeddingSource]:
    """Return the sources among files on a command line.

    Args:
        paths: Each a folder that an export or ``vse embed`` wrote, or of other Parquet files; a ``.parquet`` or
            ``.jsonl`` file with a column of embeddings; or a ``.npy`` file, which the file of its metadata may follow.
        column: Name of the column of embeddings.
        metadata: Files of metadata for the ``.npy`` files of ``paths``, in order.

    Raises:
        InputError: A file is missing, damaged or of an unknown kind, or the embeddings differ in width.
    """
    left, found, extra = list(paths), [], list(metadata)
    while left:
        path = left.pop(0)
        ending = path.suffix.lower()
        if path.is_dir() and not (path / MANIFEST).exists():
            found += _open_shards(path, column)
        elif path.is_dir():
            found.append(_open_export(path))
        elif ending == ".npy":
            beside = extra.pop(0) if extra else None
            follows = left and left[0].suffix.lower() in TABLES and not left[0].is_dir()
            found.append(_open_pair(path, beside or (left.pop(0) if follows else None)))
        elif ending in (".parquet", ".jsonl", ".ndjson"):
            found.append(_open_table(path, column))
        else:
            raise InputError(f"{path} is no file of embeddings: {EXPECTED}")
    if not found:
        raise InputError(f"no file of embeddings: {EXPECTED}")
    if extra:
        raise InputError(f"{extra[0]} describes no .npy file: name as many as there are .npy files")
    for source in found[1:]:
        if source.dimensions != found[0].dimensions:
            raise InputError(
                f"{source.vectors} has {source.dimensions} dimensions and {found[0].vectors} {found[0].dimensions}: "
                "import them into different collections"
            )
    return found


def _open_shards(folder: AnyPath, column: str) -> list[EmbeddingSource]:
    """Return the Parquet files of a folder by name, all of one model."""
    check_embedded(folder)
    shards = read_shards(folder) if (folder / SHARDS).exists() else None
    if shards is not None and not shards.get("complete"):
        raise InputError(f"{folder} is an unfinished export: run the same export again to complete it")
    paths = sorted(path for path in folder.glob("*.parquet") if not path.name.startswith("."))
    if not paths:
        raise InputError(f"{folder} is no export: expected a folder with {MANIFEST}, or with .parquet files")
    found = [_open_table(path, column) for path in paths]
    if shards is not None:
        check_shards(folder, shards, {source.vectors.name: source.rows for source in found})
    for source in found[1:]:
        first = found[0]
        if source.origin is not None and first.origin is not None and source.origin.model != first.origin.model:
            raise InputError(
                f"{source.vectors} holds embeddings of model {source.origin.model}, and {first.vectors} of "
                f"{first.origin.model}: import them into different collections"
            )
    return found


def read_shards(folder: AnyPath) -> dict[str, Any]:
    """Return what an export to shards recorded.

    Raises:
        InputError: It cannot be read.
    """
    try:
        found = json.loads(_bounded(folder / SHARDS, MAX_JSON))
        if found["format"] != FORMAT or found["version"] != 1:
            raise ValueError(f"format {found['format']!r}")
        return dict(found)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{folder / SHARDS} cannot be read ({first_line(error)}): export again") from None


def _open_export(folder: AnyPath) -> EmbeddingSource:
    path = folder / MANIFEST
    try:
        manifest = json.loads(_bounded(path, MAX_LINE))
        if manifest["format"] != FORMAT or manifest["version"] != 1:
            raise InputError(f"{path} has format {manifest['format']!r}: expected {FORMAT!r}, version 1")
        origin = Origin(str(manifest["model"]), str(manifest["model_source"]))
    except FileNotFoundError:
        raise InputError(f"{folder} is no export: expected a folder with {MANIFEST}") from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read ({first_line(error)}): export again") from None
    pair = _open_pair(folder / VECTORS, folder / ITEMS)
    return EmbeddingSource(pair.vectors, pair.metadata, EMBEDDING, pair.rows, pair.dimensions, origin, pair.ignored)


def _open_pair(vectors: AnyPath, metadata: AnyPath | None) -> EmbeddingSource:
    rows, dimensions = _open_npy(vectors).shape
    ignored: Sequence[str] = ()
    if metadata is not None:
        if metadata.suffix.lower() == ".parquet":
            ignored = check_columns(open_parquet(metadata).schema_arrow.names, str(metadata), None)
        else:
            ignored = check_columns(list(next(table_rows(metadata), {"id": 0})), str(metadata), None)
    return EmbeddingSource(vectors, metadata, EMBEDDING, rows, dimensions, None, tuple(ignored))


def _open_table(path: AnyPath, column: str) -> EmbeddingSource:
    if path.suffix.lower() == ".parquet":
        file = open_parquet(path)
        names = file.schema_arrow.names
        ignored = check_columns(names, str(path), column)
        rows, dimensions = file.metadata.num_rows, parquet_width(file, path, column)
        return EmbeddingSource(path, None, column, rows, dimensions, parquet_origin(file), tuple(ignored))
    first = next(table_rows(path), None)
    if first is None:
        raise InputError(f"{path} is empty: expected a line for each embedding")
    ignored = check_columns(list(first), str(path), column)
    dimensions = len(_line_vector(first.get(column), f"{path}, row 1"))
    return EmbeddingSource(path, None, column, None, checked_width(dimensions, path), None, tuple(ignored))


def _open_npy(path: AnyPath) -> NDArray[Any]:
    """Map a matrix of floating-point numbers; the header is checked first, so nothing is unpickled or allocated."""
    return _mapped(local_copy(path), path)


def _mapped(local: Path, path: AnyPath) -> NDArray[Any]:
    try:
        with local.open("rb") as file:
            version = npy_format.read_magic(file)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            start = file.tell()
        size = local.stat().st_size
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (
        ValueError,
        MemoryError,
        RecursionError,
        SyntaxError,
        TypeError,
        KeyError,
    ) as error:
        raise InputError(f"{path} is not a .npy file ({first_line(error)}): save it with numpy.save") from None
    if dtype.hasobject:
        raise InputError(f"{path} holds Python objects, which are not unpickled: save an array of numbers")
    if dtype.str[1:] not in _FLOATS:
        raise InputError(f"{path} holds {dtype} values: expected float16, float32 or float64")
    if len(shape) != 2:
        raise InputError(f"{path} has shape {shape}: expected (rows, dimensions)")
    checked_width(shape[1], path)
    if not 0 <= shape[0] <= MAX_ROWS:
        raise InputError(f"{path} has {shape[0]:,} rows, at most {MAX_ROWS:,}")
    expected = start + math.prod(shape) * dtype.itemsize
    if size < expected:
        raise InputError(f"{path} is truncated: its header promises {expected:,} bytes, the file has {size:,}")
    if not shape[0]:
        return np.empty(shape, np.float32)
    return np.memmap(local, dtype, "r", start, shape, "F" if fortran else "C")


def _numbered(stem: str) -> Iterator[dict[str, Any]]:
    number = 0
    while True:
        yield {"id": f"{stem}/{number}"}
        number += 1


def _different(source: EmbeddingSource, vectors: int, rows: int) -> InputError:
    return InputError(
        f"{source.vectors} has {vectors:,} rows and {source.metadata} {'at least ' if rows > vectors else ''}{rows:,}: "
        "expected one row of metadata for each embedding"
    )


def table_rows(path: AnyPath) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV, JSON or Parquet file, one at a time.

    Raises:
        InputError: The file cannot be read, or a row is no object.
    """
    try:
        match path.suffix.lower():
            case ".csv":
                yield from _csv_rows(path)
            case ".json":
                whole = json.loads(_bounded(path, MAX_JSON))
                if not isinstance(whole, list) or not all(isinstance(row, dict) for row in whole):
                    raise InputError(f"{path}: expected a list of objects, one for each embedding")
                yield from whole
            case ".parquet":
                for _, rows in parquet_rows(path, COLUMNS, BLOCK_ROWS):
                    yield from rows
            case _:
                yield from _json_rows(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path} cannot be read ({first_line(error)}): expected {path.suffix[1:]} in UTF-8") from None


def _csv_rows(path: AnyPath) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        reader = csv.DictReader((line.decode("utf-8-sig") for line in _lines(file, path)), strict=True)
        for number, row in enumerate(reader, 1):
            if None in row:
                raise InputError(f"{path}, row {number}: more cells than columns")
            yield dict(row)


def _json_rows(path: AnyPath) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(_lines(file, path), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}, line {number} is no JSON ({first_line(error)})") from None
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number}: expected an object")
            yield row


def _lines(file: IO[bytes], path: AnyPath) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise InputError(f"{path} has a line of more than {MAX_LINE:,} bytes")
        yield line


def _bounded(path: AnyPath, max_bytes: int) -> bytes:
    with path.open("rb") as file:
        content = read_at_most(file, max_bytes + 1)
    if len(content) > max_bytes:
        raise InputError(f"{path} has more than {max_bytes:,} bytes: use JSON lines (.jsonl)")
    return content


def _line_blocks(path: AnyPath, column: str, dimensions: int, size: int) -> Iterator[Block]:
    rows, first = table_rows(path), 1
    while block := list(_within_budget(rows, size)):
        vectors = np.empty((len(block), dimensions), np.float64)
        for number, row in enumerate(block):
            vector = _line_vector(row.pop(column, None), f"{path}, row {first + number}")
            if len(vector) != dimensions:
                raise InputError(
                    f"{path}, row {first + number}: an embedding of {len(vector)} numbers, expected {dimensions}"
                )
            vectors[number] = vector
        yield Block(first, vectors, iter(block))
        first += len(block)


def _within_budget(rows: Iterator[dict[str, Any]], size: int) -> Iterator[dict[str, Any]]:
    """Yield up to ``size`` rows, fewer if they are long."""
    weight = 0
    for row in islice(rows, size):
        yield row
        parts = (part for value in row.values() for part in (value if isinstance(value, list) else [value]))
        weight += sum(len(part) if isinstance(part, str) else 32 for part in parts)
        if weight > BLOCK_BYTES:
            return


def _line_vector(value: Any, place: str) -> list[float]:
    if not isinstance(value, list) or not all(type(each) in (int, float) for each in value):
        raise InputError(f"{place}: expected an embedding, a list of numbers")
    try:
        return [float(each) for each in value]
    except OverflowError:
        raise InputError(f"{place}: a number of the embedding is too large") from None
