"""Images in Parquet files and in the Arrow files of ``datasets``: what a file declares is checked before it is read."""

from __future__ import annotations

import bisect
import io
import mmap
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, BinaryIO

from vse.data.packed import BadFieldsError, Opener, OpenFile, bad_image
from vse.errors import InputError, first_line, require

MAX_ROWS = 1_000_000_000
MAX_GROUP_BYTES = 1_000_000_000
"""Bytes of one row group; two are held at a time."""
MAX_VALUE = 1_000_000
"""Characters of a text beside an image."""
ROWS_AT_ONCE = 8
"""Rows that are decoded at a time: a small file may repeat a large value in every row."""
GROUPS_HELD = 2
BYTES_COLUMNS = ("image", "img", "jpg", "jpeg", "png", "webp", "bytes", "content")
PATH_COLUMNS = ("path", "image_path", "file", "file_name", "filename", "url", "uri", "image", "img")
KEY_COLUMNS = ("id", "key", "__key__")


class TableImages:
    """A Parquet or Arrow file with a column of image bytes, or of paths.

    A row group (Parquet) or record batch (Arrow) is the unit of access: Arrow files are mapped, of Parquet the last
    row groups are held. Reading images in another order than that of the file is slow for large row groups.
    """

    def __init__(self, name: str, opener: Opener, *, arrow: bool) -> None:
        self.name = name
        self._opened = OpenFile(name, opener)
        self._arrow = arrow
        self._held: OrderedDict[tuple[int, bool], Any] = OrderedDict()
        with self._errors():
            schema, rows = self._open_arrow() if arrow else self._open_parquet()
        self._starts = list(accumulate(rows, initial=0))
        self.columns = list(schema.names)
        if len(set(self.columns)) < len(self.columns):
            raise InputError(f"{name} has two columns of one name: rename one")
        self.image_column, self.holds_bytes = _image_column(schema, name)
        self._others = [field.name for field in schema if _is_plain(field.type)]

    def __len__(self) -> int:
        return self._starts[-1]

    def key(self, number: int) -> str:
        row = self.fields(number)
        given = next((row[name] for name in KEY_COLUMNS if row.get(name) not in (None, "")), None)
        return str(number) if given is None else str(given)

    def image(self, number: int) -> bytes | str:
        value = self._value(number, self.image_column)
        if isinstance(value, dict):
            value = value.get("bytes") or value.get("path")
        if value in (None, "", b""):
            raise bad_image(f"{self.name}, row {number + 1}", f"column {self.image_column!r} is empty")
        return value if isinstance(value, bytes) else str(value)

    def fields(self, number: int) -> dict[str, Any]:
        group, row = self._find(number)
        table = self._group(group, images=False)
        found = {name: table.column(name)[row].as_py() for name in self._others}
        for name, value in found.items():
            if isinstance(value, str) and len(value) > MAX_VALUE:
                place = f"{self.name}, row {number + 1}, column {name!r}"
                raise BadFieldsError(place, f"{len(value):,} characters, at most {MAX_VALUE:,}")
        return found

    def _value(self, number: int, column: str) -> Any:
        group, row = self._find(number)
        return self._group(group, images=True).column(column)[row].as_py()

    def _find(self, number: int) -> tuple[int, int]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        group = bisect.bisect_right(self._starts, number) - 1
        return group, number - self._starts[group]

    def _group(self, group: int, *, images: bool) -> Any:
        with self._opened.lock:
            if self._arrow:
                return self._batches[group]
            place = (group, images)
            if place not in self._held:
                with self._errors():
                    self._held[place] = self._read_group(group, [self.image_column] if images else self._others)
                alike = [held for held in self._held if held[1] == images]
                for oldest in alike[:-GROUPS_HELD]:
                    del self._held[oldest]
            self._held.move_to_end(place)
            return self._held[place]

    def _open_parquet(self) -> tuple[Any, list[int]]:
        self._parquet = open_parquet(self._opened.file(), self.name)
        metadata = self._parquet.metadata
        for number in range(metadata.num_row_groups):
            size = metadata.row_group(number).total_byte_size
            if not 0 <= size <= MAX_GROUP_BYTES:
                raise InputError(
                    f"{self.name}: a row group of {size:,} bytes, at most {MAX_GROUP_BYTES:,}: write smaller row groups"
                )
        return self._parquet.schema_arrow, [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]

    def _read_group(self, group: int, columns: Sequence[str]) -> Any:
        import pyarrow

        batches, size = [], 0
        for batch in self._parquet.iter_batches(ROWS_AT_ONCE, [group], columns=list(columns), use_threads=False):
            batch.validate(full=True)
            size += batch.nbytes
            if size > MAX_GROUP_BYTES:
                raise InputError(f"{self.name}: row group {group} has more than {MAX_GROUP_BYTES:,} bytes of values")
            batches.append(batch)
        return pyarrow.Table.from_batches(batches)

    def _open_arrow(self) -> tuple[Any, list[int]]:
        pyarrow = require("pyarrow", "parquet", "reading Arrow files")
        try:
            mapped = mmap.mmap(self._opened.file().fileno(), 0, access=mmap.ACCESS_READ)
        except (AttributeError, io.UnsupportedOperation):
            raise InputError(f"{self.name}: Arrow files are read from local disks: copy it, or use tars") from None
        self._batches, schema = read_arrow(pyarrow, mapped, self.name)
        return schema, [len(batch) for batch in self._batches]

    def _errors(self) -> Any:
        return table_errors(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.name, self._opened._opener, self._arrow)


def _reopened(name: str, opener: Opener, arrow: bool) -> TableImages:
    return TableImages(name, opener, arrow=arrow)


def open_parquet(source: BinaryIO | str, name: str) -> Any:
    """Open a Parquet file with limits on what its footer may declare."""
    parquet = require("pyarrow.parquet", "parquet", "reading Parquet")
    limits = {"thrift_string_size_limit": 100_000_000, "thrift_container_size_limit": 1_000_000}
    with table_errors(name):
        file = parquet.ParquetFile(source, **limits)
    if file.metadata.num_rows > MAX_ROWS:
        raise InputError(f"{name} has {file.metadata.num_rows:,} rows, at most {MAX_ROWS:,}")
    return file


def schema_holds_images(path: str) -> bool:
    """Return whether a local Parquet file has a column of image bytes; False if it cannot be read."""
    try:
        return _image_column(open_parquet(path, path).schema_arrow, path)[1]
    except InputError:
        return False


@contextmanager
def table_errors(name: str) -> Iterator[None]:
    """Turn errors of pyarrow into one line."""
    pyarrow = require("pyarrow", "parquet", "reading Parquet")
    try:
        yield
    except InputError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, LookupError, TypeError, MemoryError) as error:
        raise InputError(f"{name} cannot be read ({first_line(error)}): the file is damaged, fetch it again") from None


def read_arrow(pyarrow: Any, mapped: mmap.mmap, name: str) -> tuple[list[Any], Any]:
    """Map the record batches of an Arrow file; compressed ones would be decompressed on opening and are refused."""
    source = pyarrow.BufferReader(pyarrow.py_buffer(mapped))
    magic = source.read(8)
    source.seek(8 if magic[:6] == b"ARROW1" else 0)  # the file format is a stream between two marks
    schema = pyarrow.ipc.read_schema(source)
    batches = []
    while source.tell() < source.size():
        start = source.read(8)
        if len(start) < 8 or start[4:] == b"\0\0\0\0":
            break
        source.seek(source.tell() - 8)
        message = pyarrow.ipc.read_message(source)
        if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
            raise InputError(f"{name} has dictionaries or compressed batches: expected an Arrow file of 'datasets'")
        batch = pyarrow.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        batches.append(batch)
    return batches, schema


def _is_compressed(message: bytes) -> bool:
    """Return whether a record batch declares compression: field 3 of the flatbuffer in field 2 of the message."""

    def field(table: int, number: int) -> int:
        table_fields = table - struct.unpack_from("<i", message, table)[0]
        size = struct.unpack_from("<H", message, table_fields)[0]
        place = 4 + 2 * number
        offset = struct.unpack_from("<H", message, table_fields + place)[0] if place < size else 0
        return table + offset if offset else 0

    try:
        header = field(struct.unpack_from("<I", message, 0)[0], 2)
        return header == 0 or field(header + struct.unpack_from("<I", message, header)[0], 3) != 0
    except struct.error:
        return True


def _image_column(schema: Any, name: str) -> tuple[str, bool]:
    """Return the column of the images, and whether it holds their bytes."""
    import pyarrow

    kinds = {field.name: field.type for field in schema}
    for column in BYTES_COLUMNS:
        kind = kinds.get(column)
        if kind is not None and (
            _is_binary(kind) or (pyarrow.types.is_struct(kind) and any(f.name == "bytes" for f in kind))
        ):
            return column, True
    for column in PATH_COLUMNS:
        if column in kinds and _is_text(kinds[column]):
            return column, False
    raise InputError(
        f"{name} has the columns {', '.join(kinds)}: expected image bytes in one of {', '.join(BYTES_COLUMNS)}, "
        f"or paths in one of {', '.join(PATH_COLUMNS)}"
    )


def _is_binary(kind: Any) -> bool:
    import pyarrow

    return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)


def _is_text(kind: Any) -> bool:
    import pyarrow

    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def _is_plain(kind: Any) -> bool:
    """Return whether values are numbers, texts, times, or lists of texts; embeddings and bytes are left out."""
    import pyarrow

    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return _is_text(kind.value_type)
    return _is_text(kind) or (pyarrow.types.is_primitive(kind) and not _is_binary(kind))
