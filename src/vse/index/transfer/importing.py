"""Add embeddings from files to a collection: all of them are checked first, then written in batches."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from vse.errors import InputError, unknown_choice
from vse.index.open import collection_exists, create_collection, open_collection
from vse.index.storage import DEFAULT_STORAGE, check_same_storage, check_storage, rounded
from vse.index.transfer.exporting import stream_items
from vse.index.transfer.parquet import Origin
from vse.index.transfer.places import modified_time, place_of
from vse.index.transfer.rows import (
    EMBEDDING,
    MAX_MOMENTS,
    RowError,
    mark_of,
    read_file,
    unit_rows,
)
from vse.index.transfer.sources import EmbeddingSource, open_sources
from vse.index.types import Collection, CollectionInfo, Entry, MediaFile, Moment
from vse.inputs.files import Problem
from vse.progress import ProgressReporter, SilentProgress

BATCH = 4096
"""Embeddings of one transaction; a file is never split."""
MAX_BAD = 100_000
"""Rows that may be left out."""
OnBad = Literal["error", "skip"]
DEFAULT_MODEL = "own"


@dataclass(frozen=True)
class EmbeddingImport:
    """What an import did.

    Attributes:
        info: The collection afterwards.
        rows: Rows that were read.
        added: Files that were new.
        replaced: Files that were known and differed.
        unchanged: Files that were known and equal; they keep their ids.
        problems: Rows that were left out.
        ignored: Columns that were not read.
        notes: What should be said about the import.
        seconds: Time that it took.
    """

    info: CollectionInfo
    rows: int
    added: int
    replaced: int
    unchanged: int
    problems: tuple[Problem, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        names = ("rows", "added", "replaced", "unchanged", "seconds")
        values = {"index": self.info.where, "files": self.info.files, "items": self.info.items}
        lists = {"ignored": list(self.ignored), "notes": list(self.notes)}
        problems = [{"place": each.path, "reason": each.reason} for each in self.problems]
        return {**values, **{name: getattr(self, name) for name in names}, **lists, "problems": problems}


def import_embeddings(
    where: str | Path,
    sources: Sequence[str | Path | EmbeddingSource],
    *,
    model: str | None = None,
    root: str | None = None,
    column: str = EMBEDDING,
    on_bad: OnBad = "error",
    storage: str | None = None,
    progress: ProgressReporter | None = None,
) -> EmbeddingImport:
    """Add the embeddings of files to a collection, which is created if there is none.

    Everything is read and checked first, then written in batches. A row is identified by its root and id: a known one
    is replaced, or left as it is if nothing has changed. An interrupted import is resumed by the same call.

    Args:
        where: Address of the collection.
        sources: Files of embeddings, or URLs of them, as for ``vse collection import``.
        model: Name of the model that computed the embeddings. A new collection records it, an existing one must have
            it. Default: what an export says, else that of the collection, else "own".
        root: What ids are relative to, unless a row has a ``root``; "imported" by default.
        column: Column of the embeddings, in Parquet and JSON lines.
        on_bad: ``"error"`` imports nothing if a row is invalid; ``"skip"`` leaves such rows out and reports them.
        storage: How a new collection stores embeddings: ``"float32"`` (default), ``"float16"`` or ``"int8"``.
        progress: Receives the rows checked, then the rows imported.

    Raises:
        InputError: A file is damaged, a row is invalid, or the embeddings do not fit the collection.
        VSEError: The collection cannot be written.
    """
    if on_bad not in ("error", "skip"):
        raise InputError(unknown_choice("on_bad", on_bad, ("error", "skip")))
    if storage is not None:
        check_storage(storage)
    start, report = perf_counter(), progress or SilentProgress()
    paths = [place_of(each) for each in sources if not isinstance(each, EmbeddingSource)]
    opened = [each for each in sources if isinstance(each, EmbeddingSource)]
    opened += open_sources(paths, column=column) if paths else []
    if not opened:
        raise InputError("no source of embeddings: name at least one")
    origin = _origin(opened, model)
    exists = collection_exists(where)
    if exists:
        with closing(open_collection(where)) as known:
            _check_fits(known.info(), opened[0], origin)
            check_same_storage(known.info(), storage)
    with closing(_Ids()) as ids:
        checked = _check(opened, root, ids, report, on_bad)
        created = origin or Origin(DEFAULT_MODEL, "")
        collection = (
            open_collection(where, write=True)
            if exists
            else create_collection(
                where,
                model=created.model,
                model_source=created.model_source or None,
                dimensions=opened[0].dimensions,
                storage=storage,
            )
        )
        with closing(collection):
            _check_fits(collection.info(), opened[0], origin)
            counts = _write(collection, opened, root, ids, checked, report)
            collection.settle(progress=report)
            info = collection.info()
    notes = []
    if checked.captions:
        notes.append(f"{checked.captions:,} files have captions, which are found by their words, not by meaning")
    return EmbeddingImport(
        info=info,
        rows=checked.rows,
        added=counts.added,
        replaced=counts.replaced,
        unchanged=counts.unchanged,
        problems=tuple(checked.problems),
        ignored=tuple(dict.fromkeys(name for source in opened for name in source.ignored)),
        notes=tuple(notes),
        seconds=perf_counter() - start,
    )


def _origin(sources: Sequence[EmbeddingSource], model: str | None) -> Origin | None:
    found = {source.origin.model: source.origin for source in sources if source.origin is not None}
    if model is not None:
        if not model.strip() or len(model) > 200:
            raise InputError(f"model {model[:60]!r}: expected a name of 1 to 200 characters")
        found.setdefault(model, Origin(model, ""))
    if len(found) > 1:
        raise InputError(f"embeddings of {len(found)} models ({', '.join(found)}): import each into its own collection")
    return next(iter(found.values()), None)


def _check_fits(info: CollectionInfo, source: EmbeddingSource, origin: Origin | None) -> None:
    if source.dimensions != info.dimensions:
        raise InputError(
            f"{source.vectors} has {source.dimensions} dimensions, and {info.where} {info.dimensions}: "
            "import it into another collection"
        )
    if origin is not None and origin.model != info.model:
        raise InputError(
            f"{info.where} holds embeddings of model {info.model}, not of {origin.model}: "
            "import them into another collection"
        )


@dataclass
class _Checked:
    """What the first pass found. ``bad`` are rows to leave out, by source and number."""

    rows: int = 0
    captions: int = 0
    bad: set[tuple[int, int]] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)


@dataclass
class _Counts:
    added: int = 0
    replaced: int = 0
    unchanged: int = 0


@dataclass(frozen=True)
class _Row:
    """A valid row."""

    number: int
    file: MediaFile
    moment: Moment


class _Ids:
    """Ids that were met, in a temporary database on disk: millions of them take no memory."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect("")
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA cache_size = -16000")
        self._connection.execute("CREATE TABLE ids (root, path, mark, PRIMARY KEY (root, path)) WITHOUT ROWID")

    def meet(self, file: MediaFile) -> bool:
        """Return whether an id is met for the first time."""
        statement = "INSERT OR IGNORE INTO ids VALUES (?, ?, NULL)"
        return self._connection.execute(statement, (_stored(file.root), _stored(file.path))).rowcount > 0

    def remember(self, file: MediaFile, mark: bytes) -> None:
        """Record what the collection holds for an id that was met."""
        statement = "UPDATE ids SET mark = ? WHERE root = ? AND path = ?"
        self._connection.execute(statement, (mark, _stored(file.root), _stored(file.path)))

    def mark(self, file: MediaFile) -> bytes | None:
        """Return what the collection holds for an id; None if it holds nothing."""
        statement = "SELECT mark FROM ids WHERE root = ? AND path = ?"
        row = self._connection.execute(statement, (_stored(file.root), _stored(file.path))).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        self._connection.close()


def _stored(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _check(
    sources: Sequence[EmbeddingSource], root: str | None, ids: _Ids, report: ProgressReporter, on_bad: OnBad
) -> _Checked:
    """Read everything once; raise for the first invalid row, or collect those that are left out."""
    found = _Checked()

    def leave_out(source: int, place: str, number: int, reason: str) -> None:
        if on_bad == "error":
            raise InputError(f"{place}: {reason}; nothing was imported (--skip-bad leaves such rows out)")
        if len(found.bad) >= MAX_BAD:
            raise InputError(f"{place}: {reason}; more than {MAX_BAD:,} rows are invalid, nothing was imported")
        found.bad.add((source, number))
        found.problems.append(Problem(place, reason))

    def invalid(source: int, place: str, number: int, reason: str) -> None:
        found.rows += 1
        leave_out(source, place, number, reason)

    report.start(sum(source.rows or 0 for source in sources), "checking")
    for position, source in enumerate(sources):
        for file, rows in _grouped(_rows(source, root, partial(invalid, position), report)):
            members = list(islice(rows, MAX_MOMENTS + 1))
            if len(members) > MAX_MOMENTS:
                raise InputError(f"{_place(source, members[0].number)}: more than {MAX_MOMENTS:,} rows of one file")
            found.rows += len(members)
            first = ids.meet(file)
            repeated = members if not first else [] if _are_moments(members) else members[1:]
            for row in repeated:
                leave_out(position, _place(source, row.number), row.number, f"id {file.path[:60]!r} occurs twice")
            found.captions += first and bool(file.captions)
    report.finish()
    return found


def _write(
    collection: Collection,
    sources: Sequence[EmbeddingSource],
    root: str | None,
    ids: _Ids,
    checked: _Checked,
    report: ProgressReporter,
) -> _Counts:
    counts, batch, size = _Counts(), list[Entry](), 0
    info = collection.info()
    compare = info.files > 0
    if compare:
        _remember_known(collection, ids, report)

    def changed(place: str, number: int, reason: str) -> None:
        raise InputError(f"{place}: {reason}; the file has changed since it was checked: import it again")

    def flush() -> None:
        nonlocal size
        if batch:
            collection.add(batch)
            batch.clear()
            size = 0

    report.start(checked.rows, "importing")
    for position, source in enumerate(sources):
        bad = {number for at, number in checked.bad if at == position}
        for file, rows in _grouped(_rows(source, root, changed, report, bad)):
            moments = [row.moment for row in rows]
            known = ids.mark(file) if compare else None
            if known is not None and known == mark_of(file, _as_stored(moments, info)):
                counts.unchanged += 1
                continue
            counts.added += known is None
            counts.replaced += known is not None
            batch.append(Entry(file, tuple(moments)))  # captions have no embeddings
            size += len(moments)
            if size >= BATCH:
                flush()
    flush()
    report.finish()
    return counts


def _as_stored(moments: list[Moment], info: CollectionInfo) -> list[Moment]:
    """Return moments with the vectors that the collection will return for them."""
    if info.storage == DEFAULT_STORAGE:
        return moments
    return [replace(moment, vector=rounded(moment.vector, info.storage)) for moment in moments]


def _remember_known(collection: Collection, ids: _Ids, report: ProgressReporter) -> None:
    """Record what the collection holds for each id, to leave what is unchanged as it is."""
    report.start(collection.info().items, "comparing")
    for _, group in groupby(stream_items(collection), key=lambda each: (each[0].file.root, each[0].file.path)):
        items = list(group)
        file = items[0][0].file
        ids.remember(file, mark_of(file, [Moment(vector, item.start, item.end) for item, vector in items]))
        report.advance(len(items))
    report.finish()


def _rows(
    source: EmbeddingSource,
    root: str | None,
    problem: Callable[[str, int, str], None],
    report: ProgressReporter,
    skipped: Iterable[int] = (),
) -> Iterator[_Row]:
    """Yield the valid rows of a source; invalid ones go to ``problem``."""
    modified, skip = modified_time(source.vectors), frozenset(skipped)
    for block in source.blocks():
        vectors, bad = unit_rows(block.vectors)
        for offset, values in enumerate(block.rows):
            number = block.first + offset
            if number in skip:
                continue
            if offset in bad:
                problem(_place(source, number), number, bad[offset])
                continue
            try:
                file, moment = read_file(values, vectors[offset], root=root, modified=modified)
            except RowError as error:
                problem(_place(source, number), number, str(error))
                continue
            yield _Row(number, file, moment)
        report.advance(len(block.vectors))


def _grouped(rows: Iterable[_Row]) -> Iterator[tuple[MediaFile, Iterator[_Row]]]:
    """Group adjacent rows of one file: the moments of a video."""
    for _, group in groupby(rows, key=lambda row: (row.file.root, row.file.path)):
        first = next(group)
        yield first.file, chain((first,), group)  # noqa: B031 - the rest of it


def _are_moments(rows: Sequence[_Row]) -> bool:
    return len(rows) == 1 or all(row.moment.start is not None for row in rows)


def _place(source: EmbeddingSource, number: int) -> str:
    return f"{source.metadata or source.vectors}, row {number:,}"
