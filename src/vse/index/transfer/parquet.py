"""Embeddings in Parquet files: what a file declares is checked before anything of it is decompressed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from vse.errors import InputError, first_line, require
from vse.index.transfer.places import AnyPath
from vse.index.transfer.rows import COLUMNS, MAX_TEXT, MAX_TEXTS
from vse.inputs.files import read_at_most

MAX_DIMENSIONS = 65_536
MAX_ROWS = 1_000_000_000
MAX_GROUP_BYTES = 2_000_000_000
"""Bytes that a row group may declare for the columns that are read."""
AT_ONCE = 32
"""Rows that are Python objects at the same time, where texts are long."""
SHORT = 4096
"""Bytes of a text up to which a whole batch may be Python objects."""
FORMAT = "vse-embeddings"
EMBEDDED = "manifest.json"
"""What 'vse embed' writes beside its shards."""
SHARDS = "shards.json"
"""What an export to shards records about them."""
MAX_MANIFEST = 1_000_000_000


@dataclass(frozen=True)
class Block:
    """Consecutive rows: the number of the first, from 1 on, their embeddings ``(n, D)``, and their metadata."""

    first: int
    vectors: NDArray[Any]
    rows: Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Origin:
    """The model of an export: its fingerprint, and where it was loaded from."""

    model: str
    model_source: str


def checked_width(dimensions: int, path: AnyPath) -> int:
    """Return the width of embeddings; raise if it is out of range."""
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise InputError(f"{path} has {dimensions:,} dimensions: expected 1 to {MAX_DIMENSIONS:,}")
    return dimensions


def open_parquet(path: AnyPath, **options: Any) -> Any:
    """Open a Parquet file; what its footer declares is checked before anything is decompressed."""
    parquet = require("pyarrow.parquet", "parquet", "reading Parquet")
    pyarrow = require("pyarrow", "parquet", "reading Parquet")
    try:
        # The limits are about the footer: a small file may declare millions of columns.
        limits = {"thrift_string_size_limit": 100_000_000, "thrift_container_size_limit": 1_000_000}
        file = parquet.ParquetFile(path if isinstance(path, Path) else path.open(), **limits, **options)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({first_line(error)}): expected a Parquet file") from None
    if file.metadata.num_rows > MAX_ROWS:
        raise InputError(f"{path} has {file.metadata.num_rows:,} rows, at most {MAX_ROWS:,}")
    return file


def parquet_width(file: Any, path: AnyPath, column: str) -> int:
    """Return the width of the embeddings, from the numbers of values and rows that the file declares."""
    import pyarrow

    kind = file.schema_arrow.field(column).type
    if not (pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or pyarrow.types.is_fixed_size_list(kind)):
        raise InputError(f"{path}: column {column!r} is {kind}, expected lists of floating-point numbers")
    if not pyarrow.types.is_floating(kind.value_type):
        raise InputError(f"{path}: column {column!r} is {kind}, expected lists of floating-point numbers")
    if not file.metadata.num_rows and pyarrow.types.is_fixed_size_list(kind):
        return checked_width(kind.list_size, path)  # a shard of 'vse embed' without a single readable image
    if not file.metadata.num_rows:
        raise InputError(f"{path} is empty: expected a row for each embedding")
    values = sum(
        chunk.num_values
        for group in range(file.metadata.num_row_groups)
        for chunk in _chunks(file.metadata.row_group(group), {column})
    )
    width, rest = divmod(values, file.metadata.num_rows)
    if rest:
        raise InputError(f"{path}: the embeddings in column {column!r} differ in width, or some are missing")
    return checked_width(width, path)


def parquet_origin(file: Any) -> Origin | None:
    """Return the model that an export recorded; None if another program wrote the file."""
    try:
        manifest = json.loads((file.schema_arrow.metadata or {})[FORMAT.encode()])
        return Origin(str(manifest["model"]), str(manifest["model_source"]))
    except (KeyError, ValueError, TypeError, RecursionError):
        return None


def _chunks(group: Any, columns: set[str]) -> Iterator[Any]:
    for number in range(group.num_columns):
        chunk = group.column(number)
        if chunk.path_in_schema.partition(".")[0] in columns:
            yield chunk


def parquet_rows(path: AnyPath, columns: Sequence[str], size: int) -> Iterator[tuple[Any, Iterator[dict[str, Any]]]]:
    """Yield batches of ``size`` rows with the columns that exist, each with its rows, made a few at a time.

    Texts are read as dictionaries: a small file may repeat a long text millions of times.
    """
    import pyarrow

    plain = open_parquet(path)
    wanted = [name for name in plain.schema_arrow.names if name in columns]
    texts = _check_groups(plain.metadata, set(wanted), path)
    flat = open_parquet(path, read_dictionary=[name for name in texts if "." not in name])
    nested = open_parquet(path, read_dictionary=texts)
    try:
        for group in range(plain.metadata.num_row_groups):
            done = 0
            try:
                for batch in nested.iter_batches(size, [group], columns=wanted, use_threads=False):
                    yield _checked_batch(batch, path)
                    done += len(batch)
            except pyarrow.ArrowNotImplementedError:  # lists of texts with more than one dictionary
                for batch in flat.iter_batches(min(size, AT_ONCE), [group], columns=wanted, use_threads=False):
                    rest, done = batch.slice(min(done, len(batch))), max(0, done - len(batch))
                    if len(rest):
                        yield _checked_batch(rest, path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read ({first_line(error)}): the file is damaged") from None
    finally:
        for file in (plain, flat, nested):
            file.close()


def _checked_batch(batch: Any, path: AnyPath) -> tuple[Any, Iterator[dict[str, Any]]]:
    batch.validate(full=True)  # an index beyond its dictionary would end the process
    longest = 0
    for name in batch.schema.names:
        longest = max(longest, _check_texts(batch.column(name), f"{path}, column {name!r}"))
    there = [name for name in batch.schema.names if name in COLUMNS and batch.column(name).null_count < len(batch)]
    return batch, _row_by_row(batch, there, len(batch) if longest <= SHORT else AT_ONCE)


def _row_by_row(batch: Any, columns: Sequence[str], at_once: int) -> Iterator[dict[str, Any]]:
    """Yield rows as objects; columns are converted one by one, which is several times faster than row by row."""
    for start in range(0, len(batch), max(1, at_once)):
        lists = [batch.column(name).slice(start, at_once).to_pylist() for name in columns]
        for values in zip(*lists, strict=True) if lists else iter([()] * min(at_once, len(batch) - start)):
            yield dict(zip(columns, values, strict=True))


def _check_groups(metadata: Any, columns: set[str], path: AnyPath) -> list[str]:
    """Check the sizes that row groups declare, and return the leaf columns that hold texts."""
    texts: dict[str, None] = {}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        declared = 0
        for chunk in _chunks(group, columns):
            declared += chunk.total_uncompressed_size
            if chunk.num_values > max(MAX_DIMENSIONS, MAX_TEXTS) * group.num_rows:
                raise InputError(f"{path}: column {chunk.path_in_schema!r} has {chunk.num_values:,} values, too many")
            if chunk.physical_type == "BYTE_ARRAY":
                texts[chunk.path_in_schema] = None
        if declared > MAX_GROUP_BYTES:
            raise InputError(
                f"{path}: a row group of {declared:,} bytes, at most {MAX_GROUP_BYTES:,}: write smaller row groups"
            )
    return list(texts)


def _check_texts(column: Any, place: str) -> int:
    """Return the length of the longest text of a column, in bytes."""
    import pyarrow
    import pyarrow.compute

    while hasattr(column, "flatten") and pyarrow.types.is_nested(column.type):
        if not (pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type)):
            return 0  # embeddings; structures are refused row by row
        column = column.flatten()
    if pyarrow.types.is_dictionary(column.type):
        longest = pyarrow.compute.max(pyarrow.compute.binary_length(column.dictionary)).as_py() or 0
        if longest > 4 * MAX_TEXT:
            raise InputError(f"{place}: a text of {longest:,} bytes, at most {4 * MAX_TEXT:,}")
        return int(longest)
    return 0


def parquet_blocks(path: AnyPath, column: str, dimensions: int, size: int) -> Iterator[Block]:
    """Yield the rows of a file with a column of embeddings."""
    import pyarrow.compute

    first = 1
    for batch, rows in parquet_rows(path, [*COLUMNS, column], size):
        lists = batch.column(column)
        widths = pyarrow.compute.list_value_length(lists)
        where = f"{path}, rows {first:,} to {first + len(lists) - 1:,}"
        if lists.null_count or pyarrow.compute.any(pyarrow.compute.not_equal(widths, dimensions)).as_py():
            raise InputError(f"{where}: expected {dimensions} numbers in each")
        values = lists.flatten()
        if values.null_count:
            raise InputError(f"{where}: an embedding with missing numbers")
        vectors = values.to_numpy(zero_copy_only=False).reshape(len(lists), dimensions)
        yield Block(first, vectors, rows)
        first += len(lists)


def check_embedded(folder: AnyPath) -> None:
    """Raise InputError for a folder of ``vse embed`` in which shards are missing."""
    try:
        with (folder / EMBEDDED).open("rb") as file:
            content = read_at_most(file, MAX_MANIFEST)
        value = json.loads(content)
    except (OSError, ValueError, RecursionError):
        return
    from vse.batch.manifest import KIND, VERSION, complete_shards, read_manifest
    from vse.batch.store import open_store

    if not isinstance(value, dict) or (value.get("kind"), value.get("version")) != (KIND, VERSION):
        return
    store = open_store(str(folder))
    manifest = read_manifest(store)
    if manifest is None:
        return
    there = len(complete_shards(store, manifest))
    if there < manifest.shards:
        raise InputError(
            f"{folder} has {there:,} of {manifest.shards:,} shards: the same 'vse embed' completes it; "
            "to import those that are there, name their files"
        )


def check_shards(folder: AnyPath, recorded: Mapping[str, Any], rows: Mapping[str, int | None]) -> None:
    """Raise InputError unless the files of an export to shards are those that it recorded, with as many rows."""
    try:
        expected = {str(shard["name"]): int(shard["items"]) for shard in recorded["shards"]}
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{folder / SHARDS} cannot be read ({first_line(error)}): export again") from None
    for name in sorted(expected.keys() | rows.keys()):
        if name not in rows:
            raise InputError(
                f"{folder / name} is missing: fetch the export again; to import the other shards, name their files"
            )
        if name not in expected:
            raise InputError(f"{folder / name} is no shard of the export there, see {SHARDS}: remove it, or name files")
        if rows[name] != expected[name]:
            raise InputError(
                f"{folder / name} has {rows[name]:,} rows, {SHARDS} says {expected[name]:,}: fetch the export again"
            )
