"""Rows of CSV, TSV, JSONL and Parquet files, each with the place where it stands."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vse.data.reading import OnProblem
from vse.data.text_files import parse_json, raw_lines, read_text
from vse.errors import InputError, require

MALFORMED = "malformed row"
REQUIRED = ("path", "caption")
OPTIONAL = ("split", "id")

Row = tuple[str, dict[str, Any]]
"""``file:line`` and the values by column."""


def read_rows(path: Path, on_problem: OnProblem) -> Iterator[Row]:
    """The rows of a file; one that cannot be understood is reported and left out."""
    return READERS[path.suffix.lower()](path, on_problem)


def _csv_rows(path: Path, on_problem: OnProblem) -> Iterator[Row]:
    return _separated(path, ",", on_problem)


def _tsv_rows(path: Path, on_problem: OnProblem) -> Iterator[Row]:
    return _separated(path, "\t", on_problem)


def _separated(path: Path, delimiter: str, on_problem: OnProblem) -> Iterator[Row]:
    """Strict: a quotation mark that is never closed is an error and not the rest of the file in one caption."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
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


def _jsonl_rows(path: Path, on_problem: OnProblem) -> Iterator[Row]:
    for number, line in enumerate(raw_lines(path), start=1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            value = parse_json(line, place)
        except InputError as error:
            on_problem(MALFORMED, str(error))
            continue
        missing = [key for key in REQUIRED if key not in value] if isinstance(value, dict) else list(REQUIRED)
        if missing:
            on_problem(MALFORMED, f"{place}: no {' and '.join(missing)}, expected an object with path and caption")
        else:
            yield place, value


def _parquet_rows(path: Path, on_problem: OnProblem) -> Iterator[Row]:
    parquet = require("pyarrow.parquet", "train", "reading Parquet")
    pyarrow = require("pyarrow", "train", "reading Parquet")
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            _expect_columns(path, names)
            wanted = [name for name in (*REQUIRED, *OPTIONAL) if name in names]
            number = 0
            for batch in file.iter_batches(columns=wanted):  # columns of pictures beside these are never loaded
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} cannot be read as Parquet: {reason}") from error


def _expect_columns(path: Path, columns: list[str]) -> None:
    for name in REQUIRED:
        if name not in columns:
            raise InputError(
                f"{path} has the columns {', '.join(columns)}: expected path and caption (also: split, id)"
            )
    for name in (*REQUIRED, *OPTIONAL):
        if columns.count(name) > 1:
            raise InputError(f"{path} has the column {name!r} twice: rename one")


READERS: dict[str, Callable[[Path, OnProblem], Iterator[Row]]] = {
    ".csv": _csv_rows,
    ".tsv": _tsv_rows,
    ".jsonl": _jsonl_rows,
    ".parquet": _parquet_rows,
}
