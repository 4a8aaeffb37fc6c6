"""Ids in two generations: an item that stays the same keeps its id, and no id ever means two items."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vse.index.collection import Entry
from vse.index.embedded.changing import SEQUENCES, count_change, last_ids
from vse.index.embedded.database import AT_ONCE
from vse.index.embedded.rows import to_bytes, to_text
from vse.index.embedded.schema import transaction
from vse.index.media_file import Place

# Files of the new generation with an item whose id has become that of another file in the old one, or that has got
# another id there: the old generation may be changed between two attempts at an upgrade.
_OUTDATED = """
SELECT f.id FROM main.files AS f
JOIN main.items AS i ON i.file = f.id
LEFT JOIN old.files AS b ON (b.root, b.path) = (f.root, f.path)
LEFT JOIN old.items AS o ON o.id = i.id
WHERE (o.id IS NOT NULL AND o.file IS NOT b.id)
   OR (b.digest = f.digest AND EXISTS (
        SELECT 1 FROM old.items AS s
        WHERE s.file = b.id AND s.start IS i.start AND s."end" IS i."end" AND s.id != i.id))
"""


def ids_before(old: sqlite3.Connection, entry: Entry) -> list[int] | None:
    """The ids that the items of a file have in the old generation; None unless content and moments are the same."""
    file = entry.file
    rows = old.execute(
        'SELECT items.id, start, "end" FROM items JOIN files ON files.id = items.file '
        "WHERE root = ? AND path = ? AND digest = ? ORDER BY items.id",
        (to_bytes(file.root), to_bytes(file.path), file.digest),
    ).fetchall()
    same = [row[1:] for row in rows] == [(moment.start, moment.end) for moment in entry.moments]
    return [row[0] for row in rows] if same else None


def held_elsewhere(new: sqlite3.Connection, ids: Sequence[int], places: Collection[Place]) -> bool:
    """Whether a file of the new generation at none of ``places`` has one of these ids.

    It happens when files are moved in the old generation while the new one is being filled.
    """
    statement = "SELECT root, path FROM items JOIN files ON files.id = items.file WHERE items.id IN"
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        rows = new.execute(f"{statement} ({', '.join('?' * len(some))})", some)
        if any((to_text(root), to_text(path)) not in places for root, path in rows):
            return True
    return False


def reserve_ids(old: sqlite3.Connection, count: int) -> range:
    """So many ids of items that the old generation has not given and will not give, also when it goes on serving."""
    if not count:
        return range(0)
    with transaction(old, "IMMEDIATE"):
        first = last_ids(old)["items"] + 1
        raise_last(old, {"items": first + count - 1})
    return range(first, first + count)


def align_ids(new: sqlite3.Connection, old: sqlite3.Connection, old_file: Path) -> None:
    """Bring an unfinished generation in line with the old one as it is now, whose database is ``old_file``.

    Files whose items have other ids by now leave it, and the ids that were given meanwhile will not be given again.
    """
    with _beside(new, old_file), transaction(new, "IMMEDIATE"):
        count_change(new)
        new.execute(f"DELETE FROM main.files WHERE id IN ({_OUTDATED})")
        raise_last(new, last_ids(old))


@contextmanager
def _beside(new: sqlite3.Connection, old_file: Path) -> Iterator[None]:
    new.execute("ATTACH ? AS old", (str(old_file),))
    try:
        yield
    finally:
        new.execute("DETACH old")


def raise_last(connection: sqlite3.Connection, lowest: dict[str, int]) -> None:
    """Let the ids of each table go on behind ``lowest`` at least."""
    highest = {name: max(value, lowest.get(name, 0)) for name, value in last_ids(connection).items()}
    connection.executemany("DELETE FROM sqlite_sequence WHERE name = ?", [(name,) for name in SEQUENCES])
    connection.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", highest.items())
