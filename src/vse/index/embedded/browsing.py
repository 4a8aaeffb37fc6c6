"""Reading the files of a generation without a query: every one, the newest, and counts of them.

Statements that look at every file read by a connection of their own, so that searches do not wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from vse.index.checks import check_page
from vse.index.collection import Item
from vse.index.embedded import database
from vse.index.embedded.filtering import condition
from vse.index.embedded.rows import to_text
from vse.index.embedded.schema import transaction
from vse.index.embedded.session import Session
from vse.index.facets import Facets, folder_counts
from vse.index.filters import Filter
from vse.index.media_file import MediaFile

LARGEST = 2**63 - 1
"""Of SQLite's numbers."""


def every_file(session: Session, root: str | None) -> Iterator[MediaFile]:
    """By root and path, in pages; changes made meanwhile are seen or not."""
    after: tuple[str, str] | None = None
    while True:
        with session.reading() as connection:
            page = database.page_of_files(connection, root, after)
        if not page:
            return
        after = page[-1].root, page[-1].path
        yield from page


def recent(session: Session, k: int, offset: int, where: Filter | None) -> list[Item]:
    """The first items of the files that pass, by :func:`vse.index.recency.recency` descending and then by id."""
    check_page(k, offset)
    text, cells = condition(where or Filter())
    with session.apart() as connection, transaction(connection, "DEFERRED"):
        rows = connection.execute(  # the order of the join is that of database.allowed_items, for the same reason
            f"SELECT min(items.id) AS item FROM files CROSS JOIN items ON items.file = files.id WHERE {text} "
            "GROUP BY files.id ORDER BY coalesce(taken, modified / 1e9) DESC, item LIMIT ? OFFSET ?",
            [*cells, min(int(k), LARGEST), min(int(offset), LARGEST)],
        ).fetchall()
        return database.items_of(connection, [row[0] for row in rows])


def facets(session: Session, folders: int) -> Facets:
    """Counts over all files, in one state."""
    with session.apart() as connection, transaction(connection, "DEFERRED"):
        largest = folder_counts((to_text(row[0]) for row in connection.execute("SELECT path FROM files")), folders)
        images, videos, first, last = connection.execute(
            "SELECT count(*) FILTER (WHERE kind = 'image'), count(*) FILTER (WHERE kind = 'video'), "
            "min(taken), max(taken) FROM files"
        ).fetchone()
    return Facets(images, videos, first, last, largest)
