"""What a change adds and takes away, computed before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vse.errors import InputError
from vse.index.checks import check_distinct
from vse.index.collection import Entry, Vectors
from vse.index.lanes import LANES, Lane
from vse.index.media_file import MediaFile, Place
from vse.index.milvus.rows import Row, caption_row, captions_of, file_columns, item_rows, place_key
from vse.index.milvus.state import State
from vse.index.milvus.tables import Tables
from vse.index.milvus.texts import from_stored

ITEM = ("row", "item", "position", "place", "root", "captions")
CAPTION = ("row", "first", "text")


def _lists() -> dict[Lane, list[Row]]:
    return {lane: [] for lane in LANES}


@dataclass
class Change:
    """Rows that come and, without their vectors, rows that go by lane, and the state that publishes both."""

    state: State
    come: dict[Lane, list[Row]] = field(default_factory=_lists)
    go: dict[Lane, list[Row]] = field(default_factory=_lists)

    @property
    def empty(self) -> bool:
        return not any((*self.come.values(), *self.go.values()))


def by_place(entries: Iterable[Entry]) -> dict[str, Entry]:
    """The entries by the hash of their place; of a file that is named twice the last counts."""
    return {place_key((entry.file.root, entry.file.path)): entry for entry in entries}


def adding(
    tables: Tables, now: State, entries: Mapping[str, Entry], ids: Mapping[str, Sequence[int]] | None = None
) -> Change:
    """Add files, given by place, where others may be; their items have these ids, or the next ones."""
    change = _begun(now)
    _forget(tables, now, change, rows_at(tables, now, entries))
    for key, entry in entries.items():
        state = change.state
        items = range(state.next_item, state.next_item + len(entry.moments)) if ids is None else ids[key]
        rows = item_rows(entry, items, state.batch, state.next_row)
        change.come["items"] += rows
        change.state = replace(
            state, next_row=state.next_row + len(rows), next_item=max(state.next_item, max(items) + 1)
        )
        if entry.caption_vectors is not None:
            pairs = list(zip(entry.file.captions, entry.caption_vectors, strict=True))
            _add_captions(change, pairs, rows[0]["item"])
        _count(change, entry.file.root, files=1, items=len(rows), captions=len(entry.file.captions))
    return change


def removing(tables: Tables, now: State, keys: Iterable[str]) -> tuple[Change, int]:
    """Forget files by the hashes of their places; also how many there were."""
    change = _begun(now)
    known = rows_at(tables, now, keys)
    _forget(tables, now, change, known)
    return change, len(known)


def moving(tables: Tables, now: State, moves: Sequence[tuple[Place, MediaFile]]) -> Change:
    """Move all at once, so that files may change places; whoever was at a new place is gone."""
    check_distinct("moved twice", [place for place, _ in moves])
    check_distinct("the new place of two files", [(file.root, file.path) for _, file in moves])
    old = [place_key(place) for place, _ in moves]
    moved = set(old)
    new = [place_key((file.root, file.path)) for _, file in moves]
    known = rows_at(tables, now, [*old, *new])
    for (place, _), key in zip(moves, old, strict=True):
        if key not in known:
            raise InputError(f"no file {place[0]}/{place[1]} to move: expected one of the collection, add it instead")
    change = _begun(now)
    _forget(tables, now, change, {key: rows for key, rows in known.items() if key not in moved})
    firsts = [known[key][0]["item"] for key in old]
    captions = _captions_of_files(tables, now, firsts)
    for (place, file), key, first in zip(moves, old, firsts, strict=True):
        rows = known[key]
        before = captions_of(rows[0])
        columns = file_columns(file)
        change.go["items"] += rows
        for row in _whole(tables, now, "items", rows):
            change.come["items"].append({**row, **columns, "row": change.state.next_row, "born": change.state.batch})
            change.state = replace(change.state, next_row=change.state.next_row + 1)
        if before != file.captions:
            spoken = captions.get(first, [])
            whole = _whole(tables, now, "captions", spoken)
            vectors = {from_stored(row["text"]): np.array(row["vector"], np.float32) for row in whole}
            change.go["captions"] += spoken
            _add_captions(change, [(text, vectors[text]) for text in file.captions if text in vectors], first)
        _count(change, place[0], files=-1, captions=-len(before))
        _count(change, file.root, files=1, captions=len(file.captions))
    return change


def _begun(now: State) -> Change:
    return Change(replace(now, batch=now.batch + 1))


def rows_at(tables: Tables, now: State, keys: Iterable[str], columns: Sequence[str] = ITEM) -> dict[str, list[Row]]:
    """The items at these places, in the order of their moments."""
    found: dict[str, list[Row]] = {}
    rows = tables.query_in("items", "place", keys, now.alive, columns)
    for row in sorted(rows, key=lambda row: int(row["position"])):
        found.setdefault(row["place"], []).append(row)
    return found


def _captions_of_files(tables: Tables, now: State, firsts: Sequence[int]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in tables.query_in("captions", "first", firsts, now.alive, CAPTION):
        found.setdefault(row["first"], []).append(row)
    return found


def _whole(tables: Tables, now: State, lane: Lane, rows: Sequence[Row]) -> list[Row]:
    """The same rows with all their columns, in any order."""
    keys = [row["row"] for row in rows]
    return [row for block in tables.whole(lane, keys, now.dimensions) for row in block]


def _forget(tables: Tables, now: State, change: Change, known: dict[str, list[Row]]) -> None:
    spoken = _captions_of_files(tables, now, [rows[0]["item"] for rows in known.values()])
    change.go["captions"] += [row for rows in spoken.values() for row in rows]
    for rows in known.values():
        change.go["items"] += rows
        root, captions = from_stored(rows[0]["root"]), captions_of(rows[0])
        _count(change, root, files=-1, items=-len(rows), captions=-len(captions))


def _add_captions(change: Change, pairs: Sequence[tuple[str, Vectors]], first: int) -> None:
    for text, vector in pairs:
        state = change.state
        change.come["captions"].append(
            caption_row(text, vector, first, state.batch, state.next_row, state.next_caption)
        )
        change.state = replace(state, next_row=state.next_row + 1, next_caption=state.next_caption + 1)


def _count(change: Change, root: str, *, files: int, items: int = 0, captions: int = 0) -> None:
    state = change.state
    roots = Counter(state.roots)
    roots[root] += files
    change.state = replace(
        state, items=state.items + items, captions=state.captions + captions,
        roots={each: count for each, count in sorted(roots.items()) if count},
    )  # fmt: skip
