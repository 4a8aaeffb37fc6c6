"""The complete conformance suite for Milvus Lite.

Ids are hashes of files, so a file that is added again has the id it had. Three guarantees of the protocol are given up,
none of which the suite can observe: that a call is atomic, that nothing is lost in a power failure, and, with Milvus
Lite, that readers may be in other processes (see ``docs/collections.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.index.conformance import Conformance
from tests.index.examples import QUERIES, VECTORS, entry
from tests.index.histories import Backend, history

from vse.errors import InputError
from vse.index.filters import Filter
from vse.index.item_search import search_encoded
from vse.index.milvus import MilvusCollection, tables
from vse.index.query import QueryVector
from vse.index.types import Collection

pytest.importorskip("milvus_lite")
HISTORIES = settings(max_examples=6, stateful_step_count=15, deadline=None)  # each step makes some hundred calls


@dataclass(frozen=True)
class Milvus:
    """A collection in ``folder``."""

    folder: Path

    def create(self, *, model: str, model_source: str, dimensions: int) -> Collection:
        return MilvusCollection.create(self.folder, model=model, model_source=model_source, dimensions=dimensions)

    def open(self, *, write: bool) -> Collection:
        return MilvusCollection.open(self.folder, write=write)


class TestMilvusLite(Conformance):
    hashed_ids = True

    @staticmethod
    def backend_in(folder: Path) -> Backend:
        return Milvus(folder.with_suffix(".db"))

    @pytest.mark.slow
    @pytest.mark.parametrize("flush_after", [4, 1024])
    def test_random_histories(self, flush_after: int, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[override]
        """As in the suite, with rows in the log of Milvus Lite and with rows in its files."""
        monkeypatch.setattr(tables, "FLUSH_AFTER", flush_after)
        run_state_machine_as_test(history(self.backend_in, words=False, hashed_ids=True), settings=HISTORIES)

    def test_words_are_not_searched_on_milvus(self, writer: Collection) -> None:
        """The ranking is that of the embeddings, and a filter on words is an error."""
        writer.add([entry(f"{row}.jpg", VECTORS[row], captions=("Mathilda",)) for row in range(5)])
        plain, named = (QueryVector(QUERIES[0], "x", words_only=True, texts=texts) for texts in ((), ("Mathilda",)))
        assert search_encoded(writer, named).results == search_encoded(writer, plain).results
        for where in (Filter(words=("Mathilda",)), Filter(name="1"), Filter(camera="canon"), Filter(place="quito")):
            with pytest.raises(InputError, match="cannot be filtered on Milvus"):
                search_encoded(writer, named, where=where)

    @pytest.mark.slow
    def test_files_come_by_root_and_path(self, writer: Collection) -> None:
        """As in the suite; Milvus Lite scans every row for each of a thousand removals."""
        super().test_files_come_by_root_and_path(writer)
