"""Read the text, table and array files that datasets consist of."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Any

from vse.data.reading import OnProblem
from vse.errors import InputError, require
from vse.inputs.files import open_regular

EMPTY_CAPTION = "empty caption"
NO_TEXT = "caption that is no text"


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file without its byte order mark."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}:{line}: byte 0x{content[error.start]:02x} is not UTF-8: convert the file to UTF-8"
        ) from None


def raw_lines(path: Path) -> list[str]:
    """Return the lines unchanged. Line i of the file is item i - 1, blank or not.

    Only a newline ends a line: ``str.splitlines`` also splits at the rare separators that captions from the web
    contain, and would shift all captions after them.
    """
    lines = read_text(path).split("\n")
    if not lines[-1].strip():
        lines.pop()  # what follows the last newline is not a line
    return lines


def read_lines(path: Path) -> list[str]:
    """Return the lines without surrounding whitespace."""
    return [line.strip() for line in raw_lines(path)]


def read_captions(path: Path, on_problem: OnProblem) -> list[str]:
    """Return one caption per line. An empty one is a problem; it keeps its position if reading continues."""
    captions = read_lines(path)
    for number, caption in enumerate(captions, start=1):
        if not caption:
            report_empty(on_problem, f"{path}:{number}")
    return captions


def whole_caption(text: str, place: str, on_problem: OnProblem) -> str:
    """Return a caption from JSON without surrounding whitespace, empty if it is invalid and reading continues."""
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can hold "\ud800", which UTF-8 cannot
        on_problem(NO_TEXT, f"{place}: holds {text[error.start]!r}, a lone surrogate: write the caption again")
        return ""
    caption = text.strip()
    if not caption:
        on_problem(EMPTY_CAPTION, f"{place}: empty caption: write one, or take it out of the file")
    return caption


def report_empty(on_problem: OnProblem, place: str) -> None:
    """Report an empty caption."""
    on_problem(EMPTY_CAPTION, f"{place}: empty caption: write one, or remove it with its image")


def parse_json(text: str, place: str) -> Any:
    """Return the value of a JSON text; ``place`` names it in errors."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{place}:{error.lineno}" if error.lineno > 1 else place
        raise InputError(f"{where}: not JSON ({error.msg} at column {error.colno})") from None
    except (ValueError, RecursionError) as error:  # numbers with thousands of digits, brackets nested thousands deep
        raise InputError(f"{place}: not usable JSON ({error})") from None


PARQUET_ROWS = 256
MAX_TEXT_BYTES = 2**20
MALFORMED = "malformed row"
REQUIRED = ("path", "caption")
OPTIONAL = ("split", "id")

Row = tuple[str, dict[str, Any]]
"""``file:line`` and the values by column."""


def read_rows(path: Path, on_problem: OnProblem, *, max_bytes: int | None = None) -> Iterator[Row]:
    """Yield the rows of a table; an invalid one is reported and skipped.

    ``max_bytes`` limits the bytes that are read of a table of lines, also of one that grows meanwhile.
    """
    return READERS[path.suffix.lower()](path, on_problem, max_bytes)


MAX_LINE = 4_000_000
"""Bytes of a line in a table."""
_LONE_RETURN = re.compile(r"(?<=\r)(?!\n)")


def stream_lines(path: Path, max_bytes: int | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file with their ends, one at a time; only a newline ends a line.

    Raises:
        InputError: It cannot be read, is no regular file, is not UTF-8, has more than ``max_bytes``, or a line beyond
            :data:`MAX_LINE`.
    """
    number = size = 0
    try:
        with open_regular(path) as file:
            while line := file.readline(MAX_LINE + 1):
                number, size = number + 1, size + len(line)
                if max_bytes is not None and size > max_bytes:
                    raise InputError(f"{path} has more than {max_bytes:,} bytes")
                if len(line) > MAX_LINE:
                    raise InputError(f"{path}:{number}: a line of more than {MAX_LINE:,} bytes: is it a table?")
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"{path}:{number}: byte 0x{line[error.start]:02x} is not UTF-8: convert the file to UTF-8"
                    ) from None
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _csv_lines(path: Path, max_bytes: int | None) -> Iterator[str]:
    """Yield lines that may also end with a lone carriage return, as :mod:`csv` expects them."""
    for line in stream_lines(path, max_bytes):
        if "\r" in line:
            yield from filter(None, _LONE_RETURN.split(line))
        else:
            yield line


def _csv_rows(path: Path, on_problem: OnProblem, max_bytes: int | None) -> Iterator[Row]:
    return _separated(path, ",", on_problem, max_bytes)


def _tsv_rows(path: Path, on_problem: OnProblem, max_bytes: int | None) -> Iterator[Row]:
    return _separated(path, "\t", on_problem, max_bytes)


def _separated(path: Path, delimiter: str, on_problem: OnProblem, max_bytes: int | None) -> Iterator[Row]:
    """Parse strictly: an unclosed quotation mark is an error, not a caption with the rest of the file."""
    reader = csv.reader(_csv_lines(path, max_bytes), delimiter=delimiter, strict=True)
    columns: list[str] | None = None
    start = 1
    while True:
        place = f"{path}:{start}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            on_problem(MALFORMED, f"{place}: {error}: check the quotation marks of this row")
            start = reader.line_num + 1
            continue
        if cells is None:
            break
        start = reader.line_num + 1
        if columns is None:
            columns = [cell.strip().lower() for cell in cells]
            _expect_columns(path, columns)
        elif len(cells) == len(columns):
            yield place, dict(zip(columns, cells, strict=True))
        elif cells:  # a blank line has no cells
            on_problem(MALFORMED, f"{place}: {len(cells)} values, expected {len(columns)} ({', '.join(columns)})")
    if columns is None:
        raise InputError(f"{path} is empty: expected a first line with the columns path and caption")


def _jsonl_rows(path: Path, on_problem: OnProblem, max_bytes: int | None) -> Iterator[Row]:
    for number, line in enumerate(stream_lines(path, max_bytes), start=1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            value = parse_json(line.rstrip("\n"), place)
        except InputError as error:
            on_problem(MALFORMED, str(error))
            continue
        missing = [key for key in REQUIRED if key not in value] if isinstance(value, dict) else list(REQUIRED)
        if missing:
            on_problem(MALFORMED, f"{place}: no {' and '.join(missing)}, expected an object with path and caption")
        else:
            yield place, value


def _parquet_rows(path: Path, on_problem: OnProblem, _max_bytes: int | None) -> Iterator[Row]:
    parquet = require("pyarrow.parquet", "train", "reading Parquet")
    pyarrow = require("pyarrow", "train", "reading Parquet")
    try:
        # Texts stay dictionaries: one that is stored once for all rows takes memory once.
        texts = _text_columns(parquet.read_metadata(path).schema)
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            names = file.schema_arrow.names
            _expect_columns(path, names)
            wanted = [name for name in (*REQUIRED, *OPTIONAL) if name in names]
            number = 0
            for batch in file.iter_batches(PARQUET_ROWS, columns=wanted):  # columns with image data are never loaded
                batch.validate(full=True)  # an index beyond its dictionary would end the process
                _expect_short_texts(path, batch, pyarrow)
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except InputError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, LookupError, TypeError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} cannot be read as Parquet: {reason}") from error


def _text_columns(schema: Any) -> list[str]:
    """Return the paths of the columns of texts. The sizes in the metadata are not read: pyarrow aborts on damage."""
    columns = [schema.column(number) for number in range(len(schema))]
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    return [path for path in texts if path.partition(".")[0] in (*REQUIRED, *OPTIONAL)]


def _expect_short_texts(path: Path, batch: Any, pyarrow: Any) -> None:
    """Refuse texts that would take all memory when each row gets a copy."""
    compute = require("pyarrow.compute", "train", "reading Parquet")
    for column in batch.columns:
        texts = column
        while pyarrow.types.is_list(texts.type) or pyarrow.types.is_large_list(texts.type):
            texts = texts.flatten()
        if pyarrow.types.is_dictionary(texts.type):
            texts = texts.dictionary
        if pyarrow.types.is_string(texts.type) or pyarrow.types.is_large_string(texts.type):
            longest = compute.max(compute.binary_length(texts)).as_py() or 0
            if longest > MAX_TEXT_BYTES:
                raise InputError(f"{path} has a text of {longest:,} bytes: expected at most {MAX_TEXT_BYTES:,}")


def _expect_columns(path: Path, columns: list[str]) -> None:
    for name in REQUIRED:
        if name not in columns:
            raise InputError(
                f"{path} has the columns {', '.join(columns)}: expected path and caption (also: split, id)"
            )
    for name in (*REQUIRED, *OPTIONAL):
        if columns.count(name) > 1:
            raise InputError(f"{path} has the column {name!r} twice: rename one")


READERS: dict[str, Callable[[Path, OnProblem, int | None], Iterator[Row]]] = {
    ".csv": _csv_rows,
    ".tsv": _tsv_rows,
    ".jsonl": _jsonl_rows,
    ".parquet": _parquet_rows,
}


def file_size(path: Path) -> int | None:
    """Return the bytes of a regular file, None if there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None
    return status.st_size if S_ISREG(status.st_mode) else None


def missing_files(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that are not regular files."""
    return [path for path in paths if file_size(path) is None]


def file_digest(path: Path) -> bytes | None:
    """Return the SHA-256 of a file's content, None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None


LISTED_TWICE = "name listed twice"
EMPTY_NAME = "empty name"
SHOWN = 60  # characters of an invalid value in a message


def read_caption(value: object, place: str, on_problem: OnProblem) -> str:
    """Return a caption with single spaces between its words, empty if it is invalid and reading continues.

    Role graphs count words by ``str.split``, while tokenizers do not split at U+001C to U+001F: this makes them agree.
    """
    if not isinstance(value, str):
        on_problem(NO_TEXT, f"{place}: the caption is {repr(value)[:SHOWN]}, expected a sentence in quotes")
        return ""
    return one_blank(whole_caption(value, place, on_problem))


def one_blank(sentence: str) -> str:
    """Return ``sentence`` with single spaces between its words and none around them."""
    return " ".join(sentence.split())


def expect_name(name: str, place: str) -> str:
    """Return ``name`` unless it holds a lone surrogate, as JSON's "\\ud800" gives: no file can have such a name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{place}: the name {name[:SHOWN]!r} holds a lone surrogate: write it again") from None
    return name


def distinct_names(names: Sequence[str], place: str, on_problem: OnProblem) -> list[str]:
    """Return the names of videos in their order, each once; repeated and empty ones are problems."""
    counts = Counter(names)
    if "" in counts:
        on_problem(EMPTY_NAME, f"{place}: entry {names.index('')} has no name: expected one for each video")
    for name, count in counts.items():
        if count > 1:
            on_problem(LISTED_TWICE, f"{place}: {name[:SHOWN]} is listed {count} times: leave one of them")
    return [name for name in counts if name]


def expect_videos(path: Path, split: str, count: int) -> None:
    """Refuse a split without videos."""
    if count == 0:
        raise InputError(f"{path}, split {split!r}: zero videos, expected at least one")
