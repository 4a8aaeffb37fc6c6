"""The writer's side of the commit protocol, which the package docstring describes."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from vse.errors import InputError, VSEError
from vse.index.checks import check_distinct
from vse.index.milvus.schema import (
    NEVER,
    Row,
    State,
    caption_row,
    captions_of,
    file_columns,
    from_stored,
    item_rows,
    place_key,
    to_stored,
)
from vse.index.milvus.search import next_window
from vse.index.milvus.tables import MAX_ROWS, Tables, rows_at_once
from vse.index.types import VECTOR_TABLES, Entry, MediaFile, Place, Vectors, VectorTable

ITEM = ("row", "item", "position", "place", "root", "captions")
CAPTION = ("row", "first", "text")


def _lists() -> dict[VectorTable, list[Row]]:
    return {table: [] for table in VECTOR_TABLES}


@dataclass
class Change:
    """Rows to add, rows to remove (without their vectors), both by table, and the state that publishes the change."""

    state: State
    come: dict[VectorTable, list[Row]] = field(default_factory=_lists)
    go: dict[VectorTable, list[Row]] = field(default_factory=_lists)

    @property
    def empty(self) -> bool:
        return not any((*self.come.values(), *self.go.values()))


def by_place(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the entries by the hash of their place; of duplicates the last one wins."""
    return {place_key((entry.file.root, entry.file.path)): entry for entry in entries}


def adding(
    tables: Tables, now: State, entries: Mapping[str, Entry], ids: Mapping[str, Sequence[int]] | None = None
) -> Change:
    """Plan to add files by place, replacing existing ones; their items get these ids, by default the next ones."""
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
    """Plan to remove files by the hashes of their places; also return how many there are."""
    change = _begun(now)
    known = rows_at(tables, now, keys)
    _forget(tables, now, change, known)
    return change, len(known)


def moving(
    tables: Tables, now: State, moves: Sequence[tuple[Place, MediaFile]], new_captions: Mapping[str, Vectors]
) -> Change:
    """Plan to move all files at once, so that they can swap places; a file that was at a new place is removed."""
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
            known_vectors = {from_stored(row["text"]): np.array(row["vector"], np.float32) for row in whole}
            vectors = {**new_captions, **known_vectors}
            change.go["captions"] += spoken
            _add_captions(change, [(text, vectors[text]) for text in file.captions if text in vectors], first)
        _count(change, place[0], files=-1, captions=-len(before))
        _count(change, file.root, files=1, captions=len(file.captions))
    return change


def _begun(now: State) -> Change:
    return Change(replace(now, batch=now.batch + 1))


def rows_at(tables: Tables, now: State, keys: Iterable[str], columns: Sequence[str] = ITEM) -> dict[str, list[Row]]:
    """Return the items at these places, in the order of their moments."""
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


def _whole(tables: Tables, now: State, table: VectorTable, rows: Sequence[Row]) -> list[Row]:
    """Return the same rows with all columns, in any order."""
    keys = [row["row"] for row in rows]
    return [row for block in tables.whole(table, keys, now.dimensions) for row in block]


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


STRIDE = 2**32
"""Row keys that a new writer skips, because the previous one may still be writing."""


class Writer:
    """The writer of a generation; creating one takes over from the previous writer. One thread changes at a time."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._token = secrets.token_hex(8)
        self._guard = threading.Lock()
        take_over(tables, self._token)
        self._unfinished = False

    def change(self, planned: Callable[[State], Change]) -> None:
        """Commit the change planned for the current state, atomically; it is published on return."""
        with self._guard:
            now = self._cleared()
            change = planned(now)
            if not change.empty:
                self._happen(now, change)

    def amend(self, amended: Callable[[State], State]) -> State:
        """Publish an amended state without changing rows; return the state before."""
        with self._guard:
            now = self._cleared()
            self._happen(now, Change(replace(amended(now), batch=now.batch + 1)))
            return now

    def hand_over(self, serving: Writer) -> None:
        """Make this generation serve, in place of the one of the writer ``serving``, by publishing one row."""
        with self._guard:
            new = self._cleared()
            with serving._guard:
                now = serving._cleared()
                if now.batch < new.batch:  # rows of the new generation are born with batches up to this one
                    before, now = now, replace(now, batch=new.batch)
                    serving._happen(before, Change(now))
                item = max(now.next_item, new.next_item)
                switched = replace(new, batch=now.batch + 1, next_item=item, writer=serving._token)
                switched = replace(switched, settings=now.settings)
                serving._happen(now, Change(switched))

    def owned(self) -> State:
        """Return the published state; raise VSEError when another writer has taken over."""
        state = self._tables.ledger.own()
        if state.writer != self._token:
            raise VSEError(
                f"{self._tables.connection.where} has since been opened for writing elsewhere: nothing was changed, "
                "let one process write and open it again"
            )
        return state

    def _cleared(self) -> State:
        now = self.owned()
        if self._unfinished:
            now = take_over(self._tables, self._token)
            self._unfinished = False
        return now

    def _happen(self, now: State, change: Change) -> None:
        self._unfinished = True
        try:
            self._publish(change)
        except VSEError:
            with suppress(VSEError):
                if self._tables.ledger.serving() == change.state:  # committed, only Milvus's reply was lost
                    return
            raise
        with suppress(VSEError):  # nobody sees these rows any more, and the next cleanup retries
            for table in VECTOR_TABLES:
                self._tables.delete(table, [row["row"] for row in change.go[table]])
            if change.state.generation == now.generation:  # otherwise readers may still use the old generation
                self._tables.ledger.forget([now.batch])
            self._unfinished = False
            for table in VECTOR_TABLES:
                self._tables.settle(table)

    def _publish(self, change: Change) -> None:
        batch = change.state.batch
        for table in VECTOR_TABLES:
            self._tables.insert(table, change.come[table])
            self._let_die(change, table, batch)
        try:
            self.owned()
        except VSEError:
            self._withdraw(change)
            raise
        self._tables.ledger.publish(change.state)

    def _withdraw(self, change: Change) -> None:
        """Undo rows that another writer, whose batch is already past this one, would make visible."""
        for table in VECTOR_TABLES:
            self._tables.delete(table, [row["row"] for row in change.come[table]])
            self._let_die(change, table, NEVER)

    def _let_die(self, change: Change, table: VectorTable, batch: int) -> None:
        for rows in self._tables.whole(table, [row["row"] for row in change.go[table]], change.state.dimensions):
            self._tables.rewrite(table, [{**row, "died": batch} for row in rows])


def take_over(tables: Tables, token: str) -> State:
    """Clean up rows that are not part of the published state, and publish it again with the writer ``token``.

    The number of a batch in progress is skipped: should its state arrive late, a newer one is already published.
    Readers of an older generation are cut off here, because its state is deleted.
    """
    now = tables.ledger.own()
    dying = f"born <= {now.batch} and died > {now.batch} and died < {NEVER}"
    lost = f"born > {now.batch} or died <= {now.batch}"
    for table in VECTOR_TABLES:
        while rows := tables.query(table, dying, limit=rows_at_once(now.dimensions)):
            tables.rewrite(table, [{**row, "died": NEVER} for row in rows])
        while rows := tables.query(table, lost, ["row"], limit=MAX_ROWS):
            tables.delete(table, [row["row"] for row in rows])
    taken = replace(now, batch=now.batch + 2, next_row=now.next_row + STRIDE, writer=token)
    tables.ledger.publish(taken)
    tables.ledger.forget(state.batch for state in tables.ledger.states() if state.batch != taken.batch)
    return taken


CONTENT = ("item", "place", "position", "digest", "start", "end")
Content = tuple[str, list[tuple[float | None, float | None]]]


def ids_before(old: Tables, state: State, entries: Mapping[str, Entry]) -> dict[str, list[int]]:
    """Return, by place, the ids of items in the old generation, where digest and moments are the same."""
    wanted: dict[str, Content] = {
        key: (to_stored(entry.file.digest), [(moment.start, moment.end) for moment in entry.moments])
        for key, entry in entries.items()
    }
    known = rows_at(old, state, entries, CONTENT)
    return {key: [int(row["item"]) for row in rows] for key, rows in known.items() if _content(rows) == wanted[key]}


def held_elsewhere(
    new: Tables, state: State, known: Mapping[str, Sequence[int]], entries: Mapping[str, Entry]
) -> set[str]:
    """Return the places in ``known`` whose ids other files of the new generation have that ``entries`` do not replace.

    That happens when files are moved in the old generation while the new one is being filled.
    """
    owners = {item: key for key, items in known.items() for item in items}
    rows = new.query_in("items", "item", owners, state.alive, ("item", "place"))
    return {owners[row["item"]] for row in rows if row["place"] not in entries}


def outdated(new: Tables, new_state: State, old: Tables, old_state: State) -> set[str]:
    """Return the places of files of an unfinished generation whose items now have different ids.

    The old generation may change between two attempts: an id may now belong to another place, or a file that was new to
    the old generation may have been added there too.
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
