"""Ids in two generations: an item that stays the same keeps its id, and no id ever means two items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vse.index.collection import Entry
from vse.index.milvus.changing import rows_at
from vse.index.milvus.rows import Row
from vse.index.milvus.searching import next_window
from vse.index.milvus.state import State
from vse.index.milvus.tables import Tables
from vse.index.milvus.texts import to_stored

CONTENT = ("item", "place", "position", "digest", "start", "end")
Content = tuple[str, list[tuple[float | None, float | None]]]


def ids_before(old: Tables, state: State, entries: Mapping[str, Entry]) -> dict[str, list[int]]:
    """By place the ids that the items of files have in the old generation, where content and moments are the same."""
    wanted: dict[str, Content] = {
        key: (to_stored(entry.file.digest), [(moment.start, moment.end) for moment in entry.moments])
        for key, entry in entries.items()
    }
    known = rows_at(old, state, entries, CONTENT)
    return {key: [int(row["item"]) for row in rows] for key, rows in known.items() if _content(rows) == wanted[key]}


def held_elsewhere(
    new: Tables, state: State, known: Mapping[str, Sequence[int]], entries: Mapping[str, Entry]
) -> set[str]:
    """The places in ``known`` whose ids other files of the new generation have, which are not replaced by ``entries``.

    It happens when files are moved in the old generation while the new one is being filled.
    """
    owners = {item: key for key, items in known.items() for item in items}
    rows = new.query_in("items", "item", owners, state.alive, ("item", "place"))
    return {owners[row["item"]] for row in rows if row["place"] not in entries}


def outdated(new: Tables, new_state: State, old: Tables, old_state: State) -> set[str]:
    """The places of files of an unfinished generation whose items have other ids by now.

    The old generation may be changed between two attempts: an id may have become that of another place, or a file that
    was new to it have been added there as well.
    """
    gone: set[str] = set()
    new_there: set[str] = set()
    after = 0
    while window := next_window(new, new_state, "items", None, ("item", "place"), after):
        rows, after = window
        inside = f"item >= {rows[0]['item']} and item <= {rows[-1]['item']} and {old_state.alive}"
        places = {row["item"]: row["place"] for row in old.query("items", inside, ("item", "place"))}
        for row in rows:
            place = places.get(row["item"])
            if place is None:
                new_there.add(row["place"])
            elif place != row["place"]:
                gone.add(row["place"])
    ours, theirs = rows_at(new, new_state, new_there, CONTENT), rows_at(old, old_state, new_there, CONTENT)
    return gone | {key for key, rows in theirs.items() if _content(rows) == _content(ours[key])}


def _content(rows: Sequence[Row]) -> Content:
    return str(rows[0]["digest"]), [(row["start"], row["end"]) for row in rows]
