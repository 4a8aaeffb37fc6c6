"""Change the files of a generation.

Milvus has no transactions. A change therefore consists of steps that can be repeated, in an order in which a killed
process leaves nothing that the next run would miss: captions first, then later moments of videos, then the first item
of each file, by which the file is listed; then what was replaced is deleted. Each file has a version, its first id, and
the time it was ``written``: where several writers leave several versions at one place, each of them keeps the latest.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vse.errors import InputError
from vse.index.checks import check_distinct
from vse.index.milvus.schema import (
    ITEM_COLUMNS,
    MAX_BYTES,
    VERSION_COLUMNS,
    Row,
    caption_rows,
    caption_text,
    file_columns,
    file_of,
    first_id,
    item_rows,
    to_stored,
)
from vse.index.milvus.tables import Tables, outdated_error, serving_generation
from vse.index.storage import hashed, place_key
from vse.index.types import Entry, MediaFile, Place, Vectors

SLOTS = 256
"""Rows that count changes; each writer chooses one, so that concurrent writers seldom share one."""
CHANGES, ROOT = "changes:", "root:"
SETTINGS, FOLDER = "settings", "folder:"
MAX_SALT = 64
Content = tuple[str, tuple[tuple[float | None, float | None], ...]]


@dataclass(frozen=True)
class Version:
    """One version of a file: its rows by position, of which the first has the smallest id."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> int:
        return int(self.rows[0]["item"]) - int(self.rows[0]["position"])

    @property
    def order(self) -> tuple[int, int]:
        return max(int(row["written"]) for row in self.rows), self.first

    @property
    def content(self) -> Content:
        return str(self.rows[0]["digest"]), tuple((row["start"], row["end"]) for row in self.rows)


def versions_at(
    tables: Tables, places: Iterable[str], columns: Sequence[str] = VERSION_COLUMNS
) -> dict[str, list[Version]]:
    """Return the versions of the files at these places, the one that counts first."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in tables.query_in("items", "place", places, columns):
        groups.setdefault((str(row["place"]), int(row["item"]) - int(row["position"])), []).append(row)
    found: dict[str, list[Version]] = {}
    for (place, _), rows in groups.items():
        rows.sort(key=lambda row: int(row["position"]))
        found.setdefault(place, []).append(Version(tuple(rows)))
    for versions in found.values():
        versions.sort(key=lambda version: version.order, reverse=True)
    return found


class Writer:
    """Changes a generation; one thread at a time, any number of writers.

    ``old`` is the serving generation while this one is being filled to replace it; ``serving`` is False if none serves.
    """

    def __init__(self, tables: Tables, old: Tables | None = None, *, serving: bool = True) -> None:
        self.tables, self.old, self._serving = tables, old, serving
        tables.level = "Strong"  # what it does not see it would not replace
        self._guard = threading.Lock()
        self._roots: set[str] = set()
        self._slot = f"{CHANGES}{secrets.randbelow(SLOTS)}"

    def add(self, entries: Mapping[str, Entry], firsts: Mapping[str, int] | None = None) -> None:
        """Add files by the hash of their place, and delete what they replace.

        ``firsts`` are the ids of their first items, by default chosen here. The vector of a caption may be zero if it
        has none.
        """
        with self._guard:
            self.check_serves()
            held = versions_at(self.tables, entries)
            firsts = self._first_ids(entries, held) if firsts is None else firsts
            written = self._now(held)
            items, captions = list[Row](), list[Row]()
            for place, entry in entries.items():
                items += item_rows(entry, firsts[place], written)
                texts, given = entry.file.captions, entry.caption_vectors
                vectors = [None] * len(texts) if given is None else [each if each.any() else None for each in given]
                captions += self._captions(texts, vectors, firsts[place])
            self._write(items, captions, {entry.file.root for entry in entries.values()})
            gone = self._keep_latest(entries)
            kept = sum(len(v.rows) for place, known in held.items() for v in known if v.first == firsts[place])
            self._forget_captions([*firsts.values()], {row["caption"] for row in captions})
            self._count(len(items) + gone + kept)

    def remove(self, places: Iterable[str]) -> int:
        """Remove files by the hash of their place; return how many there were."""
        with self._guard:
            self.check_serves()
            known = versions_at(self.tables, places)
            self._delete([version for versions in known.values() for version in versions])
            if known:
                self._count(sum(len(version.rows) for versions in known.values() for version in versions))
            return len(known)

    def move(self, moves: Sequence[tuple[Place, MediaFile]], new_captions: Mapping[str, Vectors]) -> None:
        """Move files; their rows keep their keys, so that they can swap places."""
        check_distinct("moved twice", [place for place, _ in moves])
        check_distinct("the new place of two files", [(file.root, file.path) for _, file in moves])
        columns = {place_key(place): file_columns(file) for place, file in moves}
        targets = [place_key((file.root, file.path)) for _, file in moves]
        with self._guard:
            self.check_serves()
            known = versions_at(self.tables, [*columns, *targets], (*ITEM_COLUMNS, "vector"))
            for place, _ in moves:
                if place_key(place) not in known:
                    raise InputError(
                        f"no file {place[0]}/{place[1]} to move: expected one of the collection, add it instead"
                    )
            written = self._now(known)
            items, captions, changed = list[Row](), list[Row](), dict[int, MediaFile]()
            for place, file in moves:
                version = known[place_key(place)][0]
                items += [{**row, **columns[place_key(place)], "written": written} for row in version.rows]
                if file_of(version.rows[0]).captions != file.captions:
                    changed[version.first] = file
            held = self._caption_vectors(changed)
            for first, file in changed.items():
                vectors = [held.get((first, text), new_captions.get(text)) for text in file.captions]
                captions += self._captions(file.captions, vectors, first)
            self._write(items, captions, {file.root for _, file in moves})
            self._forget_captions(list(changed), {row["caption"] for row in captions})
            replaced = [version for place in targets if place not in columns for version in known.get(place, ())]
            self._delete(replaced)
            self._count(sum(len(version.rows) for version in replaced))

    def keep_latest(self, places: Sequence[str]) -> None:
        """Delete all but the latest version at places where a killed or concurrent writer left several."""
        with self._guard:
            self._keep_latest(places)

    def drop_outdated(self) -> None:
        """Remove files of a resumed generation whose items have other ids by now, because the old one was changed."""
        if self.old is None:
            return
        gone: list[str] = []
        for rows in self.tables.windows("items", "position == 0", ("item", "place")):
            here = versions_at(self.tables, [row["place"] for row in rows])
            there = versions_at(self.old, here)
            owners = {
                int(row["item"]): row["place"]
                for row in self.old.query_in("items", "item", [row["item"] for row in rows], ("item", "place"))
            }
            for place, (version, *_) in here.items():
                moved = owners.get(version.first, place) != place
                again = [each.first for each in there.get(place, ())[:1] if each.content == version.content]
                if moved or (again and again[0] != version.first):
                    gone.append(place)
        self.remove(gone)

    def check_serves(self) -> None:
        """Raise VSEError when a newer generation than expected serves."""
        expected = self.tables if self.old is None else self.old
        if self._serving and serving_generation(self.tables.connection) != expected.generation:
            raise outdated_error(self.tables.connection.where)

    def _first_ids(self, entries: Mapping[str, Entry], held: Mapping[str, list[Version]]) -> dict[str, int]:
        """Return the first id of each file: that of the same file before, otherwise its hash."""
        found: dict[str, int] = {}
        before = [held] if self.old is None else [versions_at(self.old, entries), held]
        for place, entry in entries.items():
            spans = tuple((moment.start, moment.end) for moment in entry.moments)
            for known in before:
                same = [
                    each for each in known.get(place, ())[:1] if each.content == (to_stored(entry.file.digest), spans)
                ]
                if same and place not in found:
                    found[place] = same[0].first
        if self.old is not None:
            for place in self._taken({place: entries[place] for place in found}, found):
                del found[place]  # moved meanwhile: its id belongs to another file of the new generation
        left = {place: entry for place, entry in entries.items() if place not in found}
        for salt in range(MAX_SALT):
            found |= {place: first_id(entry, salt) for place, entry in left.items()}
            taken = self._taken(left, found, self.old)
            left = {place: left[place] for place in taken}
            if not left:
                return found
        raise InputError(f"{len(left)} files have no free id: expected fewer copies of one file that was moved")

    def _taken(self, entries: Mapping[str, Entry], firsts: Mapping[str, int], *also: Tables | None) -> set[str]:
        """Return the places whose ids belong to files at other places."""
        owners = {
            item: place
            for place, entry in entries.items()
            for item in range(firsts[place], firsts[place] + len(entry.moments))
        }
        rows = [
            row
            for tables in (self.tables, *also)
            if tables is not None
            for row in tables.query_in("items", "item", owners, ("item", "place"))
        ]
        return {owners[int(row["item"])] for row in rows if row["place"] != owners[int(row["item"])]}

    def _now(self, held: Mapping[str, list[Version]]) -> int:
        """Return a time later than that of anything it replaces, whatever the clocks of other writers say."""
        latest = max((version.order[0] for versions in held.values() for version in versions), default=0)
        return max(time.time_ns(), latest + 1)

    def _write(self, items: Sequence[Row], captions: Sequence[Row], roots: set[str]) -> None:
        new = roots - self._roots
        if new:
            self.tables.put({f"{ROOT}{hashed(root):032x}": to_stored(root) for root in sorted(new)})
            self._roots |= new
        self.tables.upsert("captions", captions)
        self.tables.upsert("items", [row for row in items if row["position"]])
        self.tables.upsert("items", [row for row in items if not row["position"]])

    def _keep_latest(self, places: Iterable[str]) -> int:
        late = [version for versions in versions_at(self.tables, places).values() for version in versions[1:]]
        self._delete(late)
        return sum(len(version.rows) for version in late)

    def _delete(self, versions: Sequence[Version]) -> None:
        self._forget_captions([version.first for version in versions], set())
        rows = [row for version in versions for row in version.rows]
        self.tables.delete("items", [row["item"] for row in rows if row["position"]])
        self.tables.delete("items", [row["item"] for row in rows if not row["position"]])

    def _captions(self, texts: Sequence[str], vectors: Sequence[Vectors | None], first: int) -> list[Row]:
        return caption_rows(texts, vectors, first, self.tables.about.dimensions)

    def _caption_vectors(self, firsts: Iterable[int]) -> dict[tuple[int, str], Vectors]:
        rows = self.tables.query_in("captions", "first", firsts, ("first", "text", "encoded", "vector"))
        return {
            (int(row["first"]), caption_text(row)): np.array(row["vector"], np.float32)
            for row in rows
            if row["encoded"]
        }

    def _forget_captions(self, firsts: Sequence[int], kept: set[int]) -> None:
        """Delete the captions of files, except those with the keys ``kept``."""
        rows = self.tables.query_in("captions", "first", firsts, ("caption",))
        self.tables.delete("captions", [row["caption"] for row in rows if row["caption"] not in kept])

    def _count(self, items: int) -> None:
        """Record that items came or went; the time makes every count a new one for readers that cache it."""
        known = self.tables.values().get(self._slot, "0").split()
        self.tables.put({self._slot: f"{int(known[0]) + items} {time.time_ns()}"})


def by_place(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the entries by the hash of their place; of duplicates the last one wins."""
    return {place_key((entry.file.root, entry.file.path)): entry for entry in entries}


def is_setting(key: str) -> bool:
    """Return whether a row of ``meta`` holds settings."""
    return key == SETTINGS or key.startswith(FOLDER)


def read_settings(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in the rows of ``meta``: the rules of each folder are in a row of their own."""
    found = dict(json.loads(values.get(SETTINGS, "{}")))
    rows = [json.loads(value) for key, value in sorted(values.items()) if key.startswith(FOLDER)]
    if rows or "folders" in found:  # which one row held at first
        rules = {**found.get("folders", {}), **{row["root"]: row["rules"] for row in rows}}
        found["folders"] = {root: each for root, each in rules.items() if each is not None}
    return found


def setting_rows(values: Mapping[str, str], known: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, str]:
    """Return the rows that turn the settings ``known`` into those ``wanted``; rows of other writers stay."""
    rows: dict[str, str] = {}
    before, after = known.get("folders", {}), wanted.get("folders", {})
    for root in {**before, **after}:
        if before.get(root) != after.get(root):
            rows[f"{FOLDER}{hashed(root):032x}"] = json.dumps({"root": root, "rules": after.get(root)}, allow_nan=False)
    plain = {name: value for name, value in wanted.items() if name != "folders"}
    if plain != {name: value for name, value in known.items() if name != "folders"}:
        kept = json.loads(values.get(SETTINGS, "{}")).get("folders", {})
        rows[SETTINGS] = json.dumps({**plain, "folders": kept}, allow_nan=False)
    for row in rows.values():
        if len(row) > MAX_BYTES:
            raise InputError(f"settings of {len(row)} bytes, expected at most {MAX_BYTES}: shorten the patterns")
    return rows
