"""The words of one generation, a full-text index over the texts of its files, and filters as SQL conditions.

The table ``words`` holds the :func:`vse.index.words.texts_of` each file, and the FTS5 table ``word_index`` finds them;
triggers keep the two equal, also where a file is removed by a cascade. Both follow from files, captions and details, so
they can be rebuilt. A collection of the first version has none of these tables until it is opened for writing.

FTS5 keeps removed words in its older segments until these are merged. :func:`purge` merges them whenever a change
removed something. (Its option ``secure-delete`` would do so too, but needs SQLite 3.42 and locks older ones out.)

Functions run inside the caller's transaction; only :func:`catch_up` begins one of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.filters import Filter
from vse.index.storage import to_bytes
from vse.index.store.database import (
    AT_ONCE,
    DAMAGE,
    DETAIL_COLUMNS,
    DETAILS,
    Cell,
    Ids,
    checksum,
    detail_cells,
    file_of_items,
    files_of,
    has_table,
    to_text,
    transaction,
)
from vse.index.types import FACET_NAMES, MediaFile, NameCount
from vse.index.words import FIELDS, MIN_SHARE, NAMED, RANKED, WORDS_VERSION, core_words, phrase, texts_of

_FIELDS = ", ".join(FIELDS)
_MARKS = ", ".join("?" * (len(FIELDS) + 1))
_TOKENIZER = "columnsize=0, tokenize='unicode61 remove_diacritics 2'"
_TABLES = (
    "CREATE TABLE words (file INTEGER PRIMARY KEY REFERENCES files (id) ON DELETE CASCADE, "
    f"{', '.join(f'{field} TEXT NOT NULL' for field in FIELDS)})",
    f"CREATE VIRTUAL TABLE word_index USING fts5({_FIELDS}, content='words', content_rowid='file', {_TOKENIZER})",
    "CREATE TRIGGER words_added AFTER INSERT ON words BEGIN "
    f"INSERT INTO word_index (rowid, {_FIELDS}) VALUES (new.file, {', '.join(f'new.{field}' for field in FIELDS)}); "
    "END",
    "CREATE TRIGGER words_removed AFTER DELETE ON words BEGIN "
    f"INSERT INTO word_index (word_index, rowid, {_FIELDS}) "
    f"VALUES ('delete', old.file, {', '.join(f'old.{field}' for field in FIELDS)}); END",
)
_DROP = (
    "TRIGGER IF EXISTS words_added",
    "TRIGGER IF EXISTS words_removed",
    "TABLE IF EXISTS word_index",
    "TABLE IF EXISTS words",
)
SHARE_DIGITS = 9
"""Shares are rounded to so many digits: files with the same words have the same share, whatever the order of sums."""
BLOCK = 512
"""Files read at a time to fill the tables."""
OTHER_VERSION = "the words were split by another version"


def make_tables(connection: sqlite3.Connection) -> None:
    """Create the tables, without words; a build of SQLite without FTS5 gets details alone."""
    if not has_table(connection, "details"):
        connection.execute(DETAILS)
    if connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone():
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {WORDS_VERSION}")


def catch_up(connection: sqlite3.Connection) -> None:
    """Create and fill the tables where an older version left them out; all or nothing.

    On a full disk or a corrupt database they stay as they are: the collection can still be used, and be verified.
    """
    with suppress(*DAMAGE):
        current = has_table(connection, "word_index") and _version(connection) == WORDS_VERSION
        if current and _last(connection, "files", "id") <= _last(connection, "words", "file"):
            return
        with transaction(connection, "IMMEDIATE"):
            if current:
                _fill(connection)
            else:
                rebuild(connection)


def rebuild(connection: sqlite3.Connection) -> None:
    """Create the words again, from the files as they are."""
    for thing in _DROP:
        connection.execute(f"DROP {thing}")
    make_tables(connection)
    if has_table(connection, "words"):
        _fill(connection)
        purge(connection)


def put(connection: sqlite3.Connection, file_id: int, file: MediaFile) -> bool:
    """Write the details and words of a file, new or known; return whether to :func:`purge` those it had."""
    if has_table(connection, "details"):
        cells = detail_cells(file)
        connection.execute(
            f"INSERT OR REPLACE INTO details (file, {DETAIL_COLUMNS}, checksum) VALUES ({', '.join('?' * 9)})",
            (file_id, *cells, checksum((file_id, *cells))),
        )
    if has_table(connection, "words"):
        texts = texts_of(file)
        known = connection.execute(f"SELECT {_FIELDS} FROM words WHERE file = ?", (file_id,)).fetchone()
        if known == texts:
            return False
        if known is not None:
            connection.execute("DELETE FROM words WHERE file = ?", (file_id,))
        connection.execute(f"INSERT INTO words VALUES ({_MARKS})", (file_id, *texts))
        return known is not None
    return False


def put_new(connection: sqlite3.Connection, files: Sequence[tuple[int, MediaFile]]) -> None:
    """Write the details and words of new files, by the ids of their rows."""
    if has_table(connection, "details"):
        rows = ((known, *detail_cells(file)) for known, file in files)
        connection.executemany(
            f"INSERT INTO details (file, {DETAIL_COLUMNS}, checksum) VALUES ({', '.join('?' * 9)})",
            ((*cells, checksum(cells)) for cells in rows),
        )
    if has_table(connection, "words"):
        texts = ((known, *texts_of(file)) for known, file in files)
        connection.executemany(f"INSERT INTO words VALUES ({_MARKS})", texts)


def purge(connection: sqlite3.Connection) -> None:
    """Overwrite the words that were removed since the last call."""
    if has_table(connection, "word_index"):
        connection.execute("INSERT INTO word_index (word_index) VALUES ('optimize')")


def counts(connection: sqlite3.Connection, words: Sequence[str]) -> dict[str, int]:
    """Return in how many files each word occurs; a collection without words has none."""
    if not has_table(connection, "word_index"):
        return dict.fromkeys(words, 0)
    connection.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.word_counts USING fts5vocab(main, word_index, row)")
    found: dict[str, int] = {}
    for word in words:
        if word.isascii():
            row = connection.execute("SELECT doc FROM temp.word_counts WHERE term = ?", (word,)).fetchone()
        else:  # SQLite may split it further
            statement = "SELECT count(*) FROM word_index WHERE word_index MATCH ?"
            row = connection.execute(statement, (f'"{word}"',)).fetchone()
        found[word] = 0 if row is None else int(row[0])
    return found


_CLASSES = tuple(
    (weight, "{" + " ".join(field for field, each in RANKED.items() if each == weight) + "}")
    for weight in sorted(set(RANKED.values()))
)
"""Fields with the same weight, as an FTS5 column filter; the largest weight last."""


def shares(connection: sqlite3.Connection, weights: Mapping[str, float]) -> tuple[Ids, NDArray[np.float64]]:
    """Return the files that hold enough of the words, ascending, and their shares; see ``Collection.search_words``."""
    nothing = np.empty(0, np.int64), np.empty(0, np.float64)
    if not has_table(connection, "word_index"):
        return nothing
    found = [
        (weight, [(factor, _matching(connection, f'{fields} : "{word}"')) for factor, fields in _CLASSES])
        for word, weight in weights.items()
    ]
    everything = [files for _, held in found for _, files in held]
    if not everything:
        return nothing
    ids = np.unique(np.concatenate(everything))
    totals = np.zeros(len(ids))
    for weight, held in found:
        gains = np.zeros(len(ids))
        for factor, files in held:  # the largest factor is written last
            gains[np.searchsorted(ids, files)] = factor
        totals += weight * gains
    totals = totals.round(SHARE_DIGITS)
    enough = totals >= MIN_SHARE
    return ids[enough], totals[enough]


_IDS, _FILES = (f"coalesce(group_concat({column}), '')" for column in ("id", "file"))


def items_of_files(connection: sqlite3.Connection, files: Ids) -> tuple[Ids, Ids]:
    """Return the items of these files, ascending, and the file of each."""
    found = []
    for start in range(0, len(files), AT_ONCE):
        some = files[start : start + AT_ONCE].tolist()
        marks = ",".join("?" * len(some))
        found.append(_numbers(connection, f"SELECT {_IDS}, {_FILES} FROM items WHERE file IN ({marks})", some))
    items, owners = np.concatenate(found, axis=1) if found else np.empty((2, 0), np.int64)
    order = np.argsort(items)
    return items[order], owners[order]


def items_with(connection: sqlite3.Connection, ids: Sequence[int], texts: Sequence[str]) -> set[int]:
    """Return those of ``ids`` whose file holds one of ``texts``; see ``Collection.items_with_words``."""
    phrases = [" ".join(words) for words in map(core_words, texts) if words]
    if not phrases or not ids or not has_table(connection, "word_index"):
        return set()
    expression = " OR ".join(f'"{words}"' for words in phrases)
    files = set(_matching(connection, f"{{{' '.join(NAMED)}}} : ({expression})").tolist())
    return {item for item, file in file_of_items(connection, ids).items() if file in files}


def _matching(connection: sqlite3.Connection, expression: str) -> Ids:
    """Return the files that match an FTS5 expression, ascending."""
    statement = "SELECT coalesce(group_concat(rowid), '') FROM word_index WHERE word_index MATCH ?"
    return np.sort(_numbers(connection, statement, [expression])[0])


def _numbers(connection: sqlite3.Connection, statement: str, cells: Sequence[int | str]) -> NDArray[np.int64]:
    """Return columns that a statement joins with commas: parsing one text is five times as fast as reading rows."""
    return np.stack(
        [np.fromstring(text, np.int64, sep=",") for text in connection.execute(statement, cells).fetchone()]
    )


def name_counts(connection: sqlite3.Connection, column: str) -> tuple[NameCount, ...]:
    """Return the most frequent values of a column of details, with their numbers of files."""
    if not has_table(connection, "details"):
        return ()
    rows = connection.execute(
        f"SELECT {column}, count(*) FROM details WHERE {column} IS NOT NULL GROUP BY {column} "
        "ORDER BY count(*) DESC, 1 LIMIT ?",
        (FACET_NAMES,),
    )
    return tuple(NameCount(to_text(name), files) for name, files in rows)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _last(connection: sqlite3.Connection, table: str, column: str) -> int:
    return int(connection.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()[0])


def _fill(connection: sqlite3.Connection) -> None:
    """Add the words of the files that have none."""
    ids = (row[0] for row in connection.execute("SELECT id FROM files WHERE id NOT IN (SELECT file FROM words)"))
    missing = list(ids)  # before the table changes
    rest = iter(missing)
    while block := list(islice(rest, BLOCK)):
        rows = [(each, *texts_of(file)) for each, file in files_of(connection, block).items()]
        connection.executemany(f"INSERT INTO words VALUES ({_MARKS})", rows)


# Instances of a word, summed so that moving one of them changes the sum.
_SUMS = (
    'count(*), sum(((doc + 1) * ("offset" + 7) * 40503 + doc * 97 + '
    f"instr(' {' '.join(FIELDS)} ', ' ' || col || ' ') * 7919) % 4294967291)"
)


def differences(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield a line for each way in which the words differ from the files; all of them go away with a rebuild.

    The texts are derived again from each file, and each word is looked up and its places compared with an index built
    from scratch in a temporary table, so the connection may be read-only.
    """
    if not has_table(connection, "word_index"):
        return
    if _version(connection) != WORDS_VERSION:
        yield OTHER_VERSION
        return
    if not {row[0] for row in connection.execute("SELECT sql FROM sqlite_master")}.issuperset(_TABLES):
        yield "the tables of the words are not as they were created"
        return
    wrong = 0
    ids = [row[0] for row in connection.execute("SELECT id FROM files UNION SELECT file FROM words")]
    for start in range(0, len(ids), BLOCK):
        block = ids[start : start + BLOCK]
        files = files_of(connection, block)
        known = {
            row[0]: row[1:]
            for row in connection.execute(
                f"SELECT file, {_FIELDS} FROM words WHERE file BETWEEN ? AND ?", (block[0], block[-1])
            )
        }
        wrong += sum(each not in files or known.get(each) != texts_of(files[each]) for each in block)
    if wrong:
        yield f"the words of {wrong} files are not those of the files"
    with suppress(*DAMAGE):
        if _same_places(connection):
            return
    yield "the word index does not find the words of the files"


def _same_places(connection: sqlite3.Connection) -> bool:
    """Return whether the index has exactly the words of the table, each at its places."""
    for name in ("fresh_places", "places", "terms", "fresh_index"):
        connection.execute(f"DROP TABLE IF EXISTS temp.{name}")
    connection.execute(f"CREATE VIRTUAL TABLE temp.fresh_index USING fts5({_FIELDS}, content='', {_TOKENIZER})")
    try:
        connection.execute(
            f"INSERT INTO temp.fresh_index (rowid, {_FIELDS}) SELECT file, {_FIELDS} FROM main.words NOT INDEXED"
        )
        connection.execute("CREATE VIRTUAL TABLE temp.fresh_places USING fts5vocab(temp, fresh_index, instance)")
        connection.execute("CREATE VIRTUAL TABLE temp.places USING fts5vocab(main, word_index, instance)")
        connection.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, word_index, row)")
        seen = 0
        for term, *expected in connection.execute(f"SELECT term, {_SUMS} FROM temp.fresh_places GROUP BY term"):
            found = connection.execute(f"SELECT {_SUMS} FROM temp.places WHERE term = ?", (term,)).fetchone()
            if list(found) != expected:
                return False
            seen += 1
        return bool(connection.execute("SELECT count(*) FROM temp.terms").fetchone()[0] == seen)
    finally:
        for name in ("fresh_places", "places", "terms", "fresh_index"):
            connection.execute(f"DROP TABLE IF EXISTS temp.{name}")


def condition(where: Filter) -> tuple[str, list[Cell]]:
    """Return the SQL condition on the table ``files`` and its parameters; the bounds of a box are inclusive."""
    parts: list[str] = []
    cells: list[Cell] = []

    def add(part: str, *values: Cell) -> None:
        parts.append(part)
        cells.extend(values)

    if where.root is not None:
        add("root = ?", to_bytes(where.root))
    if where.folder is not None:
        folder = to_bytes(where.folder)
        add("(path >= ? AND path < ?)", folder + b"/", folder + b"0")  # "0" comes right after "/"
    if where.kind is not None:
        add("kind = ?", where.kind)
    if where.after is not None:
        add("taken >= ?", where.after)
    if where.before is not None:
        add("taken < ?", where.before)
    if where.within is not None:
        box = where.within
        add("latitude BETWEEN ? AND ?", box.south, box.north)
        joined = "AND" if box.west <= box.east else "OR"  # a box across the date line is two boxes
        add(f"(longitude >= ? {joined} longitude <= ?)", box.west, box.east)
    if where.needs_words:
        add("files.id IN (SELECT rowid FROM word_index WHERE word_index MATCH ?)", _expression(where))
    return " AND ".join(parts) or "1", cells


def _expression(where: Filter) -> str:
    """Return the FTS5 expression of the conditions on words."""
    fields = [(name, value) for name in ("name", "camera", "place") if (value := getattr(where, name)) is not None]
    return " AND ".join([*(f"{name} : {phrase(value)}" for name, value in fields), *map(phrase, where.words)])


def check_filter(connection: sqlite3.Connection, where: Filter | None) -> None:
    """Raise InputError for a condition on words if the collection has none."""
    if where is not None and where.needs_words and not has_table(connection, "word_index"):
        raise InputError(
            "the collection was written before words were indexed, so name, camera, place and exact words find "
            "nothing: run 'vse index' on its folder once"
        )


def allowed_items(connection: sqlite3.Connection, where: Filter) -> Ids:
    """Return the ids of the items whose files pass, ascending."""
    check_filter(connection, where)
    text, cells = condition(where)
    # CROSS JOIN fixes the join order: matching files, then the index of their items, never the vectors.
    rows = connection.execute(
        f"SELECT items.id FROM files CROSS JOIN items ON items.file = files.id WHERE {text}", cells
    )
    return np.sort(np.fromiter((row[0] for row in rows), np.int64))
