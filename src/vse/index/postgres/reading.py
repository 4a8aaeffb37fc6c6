"""Search, browse and sample one generation.

PostgreSQL proposes rows that are scored again here, as in the embedded collection: the dot product is summed in double
precision and rounded once, so that equal vectors have equal scores and the order (score descending, id ascending) does
not depend on ``k``. More rows are requested until no row left out can tie with the last. The approximate index, where
there is one, answers searches without a filter, from a pool of one size.

Words are found by an index of the words of each file, then compared with its texts, so that phrases are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.checks import check_page, check_vectors
from vse.index.filters import Filter
from vse.index.postgres.connection import Connections, decode_vectors
from vse.index.postgres.schema import FACTORS, FILE, GROUPS, Tables, captions_of, file_of, indexed, item_of, to_text
from vse.index.scoring import best_by_share, best_of_files, exact_scores, rounding
from vse.index.storage import to_bytes
from vse.index.types import FACET_NAMES, Facets, Hits, Item, MediaFile, NameCount, Vectors, WordHits, folder_counts
from vse.index.words import MIN_SHARE, core_words, fold, needle

SPARE = 16
"""Rows requested at first beyond ``k``."""
POOL, MAX_APPROXIMATE = 1000, 256
"""Proposals requested from the approximate index, its most, and the largest ``k`` that it answers."""
PAGE = 1024
SHARE_DIGITS = 9
LARGEST = 2**62
Condition = tuple[str, dict[str, Any]]
"""SQL over the columns of files, and its parameters."""


def condition(where: Filter | None) -> Condition:
    """Return the condition of a filter; null columns pass no comparison, and the bounds of a box are inclusive."""
    parts: list[str] = ["true"]
    values: dict[str, Any] = {}

    def add(part: str, **given: Any) -> None:
        parts.append(part)
        values.update(given)

    if where is None:
        return "true", values
    if where.root is not None:
        add("f.root = %(root)s", root=to_bytes(where.root))
    if where.folder is not None:
        folder = to_bytes(where.folder)
        add("f.path >= %(low)s AND f.path < %(high)s", low=folder + b"/", high=folder + b"0")  # "0" comes after "/"
    if where.kind is not None:
        add("f.kind = %(kind)s", kind=where.kind)
    if where.after is not None:
        add("f.taken >= %(after)s", after=float(where.after))
    if where.before is not None:
        add("f.taken < %(before)s", before=float(where.before))
    if where.within is not None:
        box = where.within
        add("f.latitude BETWEEN %(south)s AND %(north)s", south=float(box.south), north=float(box.north))
        joined = "AND" if box.west <= box.east else "OR"  # a box across the date line is two boxes
        add(f"(f.longitude >= %(west)s {joined} f.longitude <= %(east)s)", west=float(box.west), east=float(box.east))
    if where.needs_words:
        held, given = _words_condition(where)
        add(f"f.id IN (SELECT w.file FROM {{words}} w WHERE {held})", **given)
    return " AND ".join(parts), values


def _words_condition(where: Filter) -> Condition:
    wanted = [(_line(field), text) for field in ("name", "camera", "place") if (text := getattr(where, field))]
    wanted += [("w.named || w.half || w.other", text) for text in where.words]
    parts, values = list[str](), dict[str, Any]()
    for number, (texts, text) in enumerate(wanted):
        words = fold(text)
        whole = words[:-1] if text.rstrip().endswith("*") else words
        values |= {f"words{number}": indexed(whole), f"text{number}": needle(text)}
        parts.append(f"w.every @> %(words{number})s::text[] AND strpos({texts}, %(text{number})s) > 0")
    return " AND ".join(parts), values


def _line(field: str) -> str:
    """Return the SQL of the words of one field."""
    for column, group in zip(("named", "half", "other"), GROUPS, strict=True):
        if field in group:
            return f"split_part(w.{column}, chr(10), {group.index(field) + 1})"
    raise KeyError(field)


class Reader:
    """Reads one generation: see :class:`~vse.index.types.Collection` for the public methods."""

    def __init__(self, pool: Connections, tables: Tables, dimensions: int, *, index: bool) -> None:
        self.pool, self.tables, self.dimensions = pool, tables, dimensions
        self._index = index
        self._indexed = False

    def search(self, vector: Vectors, k: int, *, where: Filter | None = None, exact: bool | None = None) -> Hits:
        """Return the best items.

        Args:
            vector: The query ``(D,)``, a unit vector.
            k: How many. The best 5 are the first 5 of the best 15: always when the search is exact, otherwise for
                ``k`` up to 256.
            where: Only items of files that pass.
            exact: True compares every vector; so does a search with a filter, or without an approximate index.
        """
        query = self._checked(vector, k)
        with self.pool.using() as connection:
            if not exact and (where is None or where.empty) and k <= MAX_APPROXIMATE and self._has_index(connection):
                hits = self._proposed(connection, query, k)
                if len(hits.ids) == k:
                    return hits
            return self._nearest(connection, "items", query, k, condition(where))

    def search_captions(self, vector: Vectors, k: int) -> list[tuple[str, int, float]]:
        """Return the ``k`` best captions that have vectors, as (caption, id of its first item, score)."""
        query = self._checked(vector, k)
        with self.pool.using(snapshot=True) as connection:
            hits = self._nearest(connection, "captions", query, k, ("i.vector IS NOT NULL", {}))
            rows = connection.execute(
                self.tables.sql(
                    "SELECT c.id, c.position, f.first, f.about FROM {captions} c "
                    "JOIN {files} f ON f.id = c.file WHERE c.id = ANY(%s::bigint[])"
                ),
                (hits.ids.tolist(),),
            )
            known = {row[0]: (captions_of(row[3])[row[1]], row[2]) for row in rows}
        return [(*known[each], score) for each, score in zip(hits.ids.tolist(), hits.scores.tolist(), strict=True)]

    def items(self, ids: Sequence[int]) -> list[Item]:
        """Return the items with these ids, in this order; a missing id raises InputError."""
        text = f"SELECT i.id, i.starts, i.ends, {FILE} FROM {{items}} i JOIN {{files}} f ON f.id = i.file"
        known = {row[0]: item_of(row) for row in self._by_id(text, ids)}
        return [_found(known, each) for each in ids]

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """Return the vectors ``(n, D)`` of these items, in this order; a missing id raises InputError."""
        known = {row[0]: row[1] for row in self._by_id("SELECT i.id, i.vector FROM {items} i", ids)}
        return self._decoded([_found(known, each) for each in ids])

    def all_vectors(self, block: int = 8192) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Iterate over all ids with their vectors, ascending, in blocks; concurrent changes may or may not be seen."""
        if block < 1:
            raise InputError(f"block {block}: expected at least 1 vector")
        last = 0
        while True:
            text = "SELECT id, vector FROM {items} WHERE id > %s ORDER BY id LIMIT %s"
            rows = self._rows(text, (last, block), binary=True)
            if not rows:
                return
            yield _ids(rows), self._decoded([row[1] for row in rows])
            last = rows[-1][0]

    def sample(self, count: int) -> Vectors:
        """Return the vectors of at most ``count`` items, by id: those whose ids have the smallest hashes."""
        text = "SELECT id, vector FROM {items} ORDER BY chance LIMIT %s"
        rows = sorted(self._rows(text, (min(count, LARGEST),), binary=True))
        return self._decoded([row[1] for row in rows])

    def files(self, root: str | None = None) -> Iterator[MediaFile]:
        """Iterate over all files by root and path, as they are when the iteration begins."""
        only, values = condition(None if root is None else Filter(root=root))
        text = f"SELECT {FILE} FROM {{files}} f WHERE {only} ORDER BY f.root, f.path"
        with self.pool.using(snapshot=True) as connection, connection.cursor("files") as cursor:
            cursor.itersize = PAGE
            for row in cursor.execute(self.tables.sql(text), values):
                yield file_of(row)

    def recent(self, k: int, *, offset: int = 0, where: Filter | None = None) -> list[Item]:
        """Return ``k`` files that pass, newest first, after skipping ``offset``; each as its first item."""
        k, offset = check_page(k, offset)
        only, values = condition(where)
        text = (
            f"SELECT i.id, i.starts, i.ends, {FILE} FROM (SELECT * FROM {{files}} f WHERE {only} "
            "ORDER BY f.recency DESC, f.first LIMIT %(k)s OFFSET %(offset)s) f "
            "JOIN {items} i ON i.id = f.first ORDER BY f.recency DESC, f.first"
        )
        return [
            item_of(row) for row in self._rows(text, {**values, "k": min(k, LARGEST), "offset": min(offset, LARGEST)})
        ]

    def facets(self, folders: int = 200) -> Facets:
        """Return current counts by kind, time, folder, place and camera, from one state."""
        with self.pool.using(snapshot=True) as connection:
            counted = connection.execute(self.tables.sql("SELECT folder, count(*) FROM {files} GROUP BY folder"))
            paths = chain.from_iterable(repeat(f"{to_text(folder)}/x".lstrip("/"), files) for folder, files in counted)
            largest = folder_counts(paths, folders)
            images, videos, first, last = connection.execute(
                self.tables.sql(
                    "SELECT count(*) FILTER (WHERE kind = 'image'), count(*) FILTER (WHERE kind = 'video'), "
                    "min(taken), max(taken) FROM {files}"
                )
            ).fetchone()
            places, cameras = (
                connection.execute(
                    self.tables.sql(
                        f"SELECT {column}, count(*) FROM {{files}} WHERE {column} IS NOT NULL GROUP BY {column} "
                        "ORDER BY count(*) DESC, 1 LIMIT %s"
                    ),
                    (FACET_NAMES,),
                ).fetchall()
                for column in ("place", "camera")
            )
        names = [tuple(NameCount(to_text(name), files) for name, files in each) for each in (places, cameras)]
        return Facets(images, videos, first, last, largest, *names)

    def word_counts(self, words: Sequence[str]) -> dict[str, int]:
        """Return in how many files each word occurs, as split by :func:`vse.index.words.fold`."""
        text = (
            "SELECT u.word, (SELECT count(*) FROM {words} w WHERE w.every @> ARRAY[u.short]) "
            "FROM unnest(%s::text[], %s::text[]) u (word, short)"
        )
        found = dict(self._rows(text, (list(words), [indexed([word])[0] for word in words])))
        return {word: int(found[word]) for word in words}

    def search_words(
        self, words: Mapping[str, float], vector: Vectors, k: int, *, where: Filter | None = None
    ) -> WordHits:
        """Return the ``k`` files whose words weigh most, each as its best item for ``vector``."""
        query = self._checked(vector, k)
        with self.pool.using(snapshot=True) as connection:
            files, shares = self._shares(connection, words)
            only, values = condition(where)

            def best(some: NDArray[np.int64], count: int) -> tuple[Hits, NDArray[np.int64]]:
                owned = connection.execute(
                    self.tables.sql("SELECT id, file FROM {items} WHERE file = ANY(%s::bigint[]) ORDER BY id"),
                    (some.tolist(),),
                ).fetchall()
                passing = f"i.file = ANY(%(some)s::bigint[]) AND {only}", {**values, "some": some.tolist()}
                return best_of_files(
                    some, _ids(owned), np.array([row[1] for row in owned], np.int64), count,
                    lambda ask: self._nearest(connection, "items", query, ask, passing),
                )  # fmt: skip

            return best_by_share(files, shares, k, best)

    def items_with_words(self, ids: Sequence[int], texts: Sequence[str]) -> set[int]:
        """Return those of ``ids`` whose file holds one of ``texts``, word by word, in a field that names content."""
        phrases = [f" {' '.join(words)} " for words in map(core_words, texts) if words]
        text = (
            "SELECT i.id FROM {items} i JOIN {words} w ON w.file = i.file WHERE i.id = ANY(%s::bigint[]) "
            "AND EXISTS (SELECT 1 FROM unnest(%s::text[]) AS p (phrase) WHERE strpos(w.named, p.phrase) > 0)"
        )
        if not phrases or not len(ids):
            return set()
        return {row[0] for row in self._rows(text, ([int(each) for each in ids], phrases))}

    def _shares(self, connection: Any, weights: Mapping[str, float]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the files that hold enough of the words, ascending, and their shares."""
        text = (
            "SELECT u.number, w.file, strpos(w.named, u.word) > 0, strpos(w.half, u.word) > 0 "
            "FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY u (word, short, number) "
            "JOIN {words} w ON w.every @> ARRAY[u.short]"
        )
        each = list(weights)
        rows = connection.execute(
            self.tables.sql(text), ([f" {word} " for word in each], [indexed([word])[0] for word in each])
        ).fetchall()
        rows = [row for row in rows if row[2] or row[3]]
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.float64)
        held = np.array([(row[0] - 1, row[1]) for row in rows], np.int64)
        factors = np.array([FACTORS[0] if row[2] else FACTORS[1] for row in rows])
        ids, positions = np.unique(held[:, 1], return_inverse=True)
        gains = factors * np.array([weights[word] for word in each])[held[:, 0]]
        totals = np.bincount(positions, gains, len(ids)).astype(np.float64).round(SHARE_DIGITS)
        enough = totals >= MIN_SHARE
        return ids[enough], totals[enough]

    def _nearest(self, connection: Any, table: str, query: Vectors, k: int, passing: Condition) -> Hits:
        """Return the best rows by comparing all that pass; adding 0 keeps the approximate index out."""
        room, ask = rounding(self.dimensions), min(k, LARGEST) + SPARE
        joined = "JOIN {files} f ON f.id = i.file" if "f." in passing[0] else ""
        text = self.tables.sql(
            f"SELECT id, vector, distance FROM (SELECT i.id, i.vector, (i.vector <#> %(query)s) + 0.0 AS distance "
            f"FROM {{{table}}} i {joined} WHERE {passing[0]}) AS every ORDER BY distance LIMIT %(ask)s"
        )
        while True:
            rows = connection.execute(text, {**passing[1], "query": query, "ask": ask}, binary=True).fetchall()
            if len(rows) < ask or rows[-1][2] > rows[k - 1][2] + room:
                return self._ordered(rows, query, k, exact=True)
            ask *= 4

    def _proposed(self, connection: Any, query: Vectors, k: int) -> Hits:
        """Return the best of what the approximate index proposes."""
        text = self.tables.sql("SELECT id, vector FROM {items} ORDER BY vector <#> %s LIMIT %s")
        with connection.transaction():
            connection.execute("SELECT set_config('hnsw.ef_search', %s, true)", (str(POOL),))
            rows = connection.execute(text, (query, POOL), binary=True).fetchall()
        return self._ordered(rows, query, k, exact=False)

    def _ordered(self, rows: Sequence[Any], query: Vectors, k: int, *, exact: bool) -> Hits:
        ids = _ids(rows)
        scores = exact_scores(self._decoded([row[1] for row in rows]), np.arange(len(rows)), query)
        order = np.lexsort((ids, -scores))[:k]
        return Hits(ids[order], scores[order], exact)

    def _has_index(self, connection: Any) -> bool:
        if self._index and not self._indexed:
            (found,) = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (self.tables.nearest,)).fetchone()
            self._indexed = bool(found)
        return self._indexed

    def _checked(self, vector: Vectors, k: int) -> Vectors:
        check_vectors(vector, (self.dimensions,), "query")
        if k < 1:
            raise InputError(f"k {k}: expected at least 1 result")
        return np.ascontiguousarray(vector)

    def _rows(self, text: str, values: Sequence[Any] | Mapping[str, Any], *, binary: bool = False) -> list[Any]:
        with self.pool.using() as connection:
            return list(connection.execute(self.tables.sql(text), values, binary=binary))

    def _by_id(self, text: str, ids: Sequence[int]) -> list[Any]:
        some = sorted({int(each) for each in ids if abs(int(each)) < 2**63})
        return self._rows(f"{text} WHERE i.id = ANY(%s::bigint[])", (some,), binary=True)

    def _decoded(self, raw: list[bytes]) -> Vectors:
        return decode_vectors(raw, self.dimensions)


def _ids(rows: Sequence[Any]) -> NDArray[np.int64]:
    return np.array([row[0] for row in rows], np.int64)


def _found(known: Mapping[int, Any], each: int) -> Any:
    try:
        return known[int(each)]
    except KeyError:
        raise InputError(f"no item has the id {each}: it was removed or replaced, search again") from None
