"""Random histories of a collection, compared with its twin."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from numpy.typing import NDArray
from tests.index.examples import DIMENSIONS, QUERIES, entries, files, filters, places, queries, word_filters
from tests.index.twin import Twin

from vse.index.filters import Filter
from vse.index.types import Collection, Entry, MediaFile, Vectors

word_weights = st.dictionaries(
    st.sampled_from(["dog", "cat", "quito", "sea", "canon", "jpg", "dogs"]),
    st.sampled_from([0.2, 0.3, 0.5]),
    max_size=3,
)


def hit_scores(collection: Collection, query: Vectors) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return all ids with their scores."""
    hits = collection.search(query, 10_000)
    return hits.ids, hits.scores


class Backend(Protocol):
    """Creates a collection once and opens it any number of times."""

    def create(self, *, model: str, model_source: str, dimensions: int) -> Collection:
        """Create a collection, open for writing."""

    def open(self, *, write: bool) -> Collection:
        """Open the collection."""


def history(
    backend_in: Callable[[Path], Backend], *, words: bool = True, hashed_ids: bool = False
) -> type[RuleBasedStateMachine]:
    """Return a state machine that runs random operations on collections in their own folder.

    ``words`` says whether the backend finds the words of files, ``hashed_ids`` whether ids are hashes of files.
    """
    any_filter = word_filters() if words else filters()

    class History(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.folder = tempfile.TemporaryDirectory()
            self.backend = backend_in(Path(self.folder.name) / "collection")
            self.writer = self.backend.create(model="m", model_source="s", dimensions=DIMENSIONS)
            self.reader = self.backend.open(write=False)
            self.twin = Twin(hashed_ids=hashed_ids)

        def teardown(self) -> None:
            self.reader.close()
            self.writer.close()
            self.folder.cleanup()

        @rule(batch=st.lists(entries(words), min_size=1, max_size=5))
        def add(self, batch: list[Entry]) -> None:
            self.writer.add(batch)
            self.twin.add(batch)

        @rule(gone=st.lists(places, max_size=3))
        def remove(self, gone: list[tuple[str, str]]) -> None:
            assert self.writer.remove(iter(gone)) == self.twin.remove(gone)

        @rule(data=st.data())
        def move(self, data: st.DataObject) -> None:
            old = (
                data.draw(st.lists(st.sampled_from(sorted(self.twin.kept)), unique=True, max_size=3))
                if self.twin.kept
                else []
            )
            new: dict[tuple[str, str], MediaFile] = {}
            while len(new) < len(old):
                file = data.draw(files(words).filter(lambda file: (file.root, file.path) not in new))
                new[file.root, file.path] = file
            moves = list(zip(old, new.values(), strict=True))
            self.writer.move(moves)
            self.twin.move(moves)

        @rule()
        def reopen_writer(self) -> None:
            self.writer.close()
            self.writer = self.backend.open(write=True)

        @rule()
        def reopen_reader(self) -> None:
            self.reader.close()
            self.reader = self.backend.open(write=False)

        @rule(query=queries, k=st.integers(1, 20), where=st.none() | any_filter, exact=st.sampled_from([None, True]))
        def search(self, query: Vectors, k: int, where: Filter | None, exact: bool | None) -> None:
            ids, scores = self.twin.search(query, k, where)
            for collection in (self.writer, self.reader):
                hits = collection.search(query, k, where=where, exact=exact)
                assert hits.ids.tolist() == ids
                np.testing.assert_allclose(hits.scores, scores, atol=2e-6)

        @rule(query=queries, k=st.integers(1, 20))
        def search_captions(self, query: Vectors, k: int) -> None:
            best = self.twin.search_captions(query, k)
            everything = {(text, each): score for text, each, score in self.twin.search_captions(query, 1000)}
            for collection in (self.writer, self.reader):
                found = collection.search_captions(query, k)
                np.testing.assert_allclose([hit[2] for hit in found], [hit[2] for hit in best], atol=2e-6)
                assert len({hit[:2] for hit in found}) == len(found)
                assert all(abs(everything[hit[:2]] - hit[2]) < 2e-6 for hit in found)

        @rule(query=queries, k=st.integers(1, 9), where=st.none() | any_filter, some=word_weights)
        def search_words(self, query: Vectors, k: int, where: Filter | None, some: dict[str, float]) -> None:
            ids, held = self.twin.search_words(some, query, k, where) if words else ([], [])
            for collection in (self.writer, self.reader):
                hits = collection.search_words(some, query, k, where=where)
                assert hits.ids.tolist() == ids
                assert hits.shares.tolist() == held
                known = dict(zip(*(each.tolist() for each in hit_scores(collection, query)), strict=True))
                assert hits.scores.tolist() == [known[each] for each in ids]
                for word in some:
                    expected = self.twin.items_with_words(word) if words else set()
                    assert collection.items_with_words([*known, 10**6], [word, "the"]) == expected

        @rule(k=st.integers(1, 20), offset=st.integers(0, 10), where=st.none() | any_filter)
        def browse(self, k: int, offset: int, where: Filter | None) -> None:
            ids = self.twin.recent(where)[offset : offset + k]
            for collection in (self.writer, self.reader):
                found = collection.recent(k, offset=offset, where=where)
                assert [item.id for item in found] == ids
                assert found == collection.items(ids)
                assert collection.facets() == self.twin.facets()

        @invariant()
        def both_hold_what_the_twin_holds(self) -> None:
            for collection in (self.writer, self.reader):
                self.twin.learn(collection)
                for k in (3, 1000):
                    assert collection.search(QUERIES[0], k).ids.tolist() == self.twin.search(QUERIES[0], k)[0]
                for where in (Filter(before=100.5), Filter(after=0.0), Filter(folder="holiday")):
                    found = collection.search(QUERIES[0], 3, where=where).ids.tolist()
                    assert found == self.twin.search(QUERIES[0], 3, where)[0]

    return History
