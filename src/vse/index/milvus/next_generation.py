"""Filling the next generation while the current one serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from vse.errors import VSEError
from vse.index.milvus import commits as changing
from vse.index.milvus import commits as kept_ids
from vse.index.milvus.collection import MilvusCollection
from vse.index.milvus.commits import Writer
from vse.index.milvus.connection import Connection
from vse.index.milvus.schema import State, tables_of
from vse.index.milvus.tables import Tables, unfinished_tables
from vse.index.types import Entry
from vse.progress import ProgressReporter


class MilvusNextGeneration(MilvusCollection):
    """A :class:`~vse.index.types.NextGeneration` in Milvus; see :meth:`MilvusCollection.new_generation`.

    ::

        with collection.new_generation(model=..., model_source=..., dimensions=...) as new:
            for ...: new.add(...)
            new.commit()

    It has its own Milvus collections and states, beside the serving ones. Closing without :meth:`commit`, or a crash,
    keeps what was added: the next call for the same model and dimensions resumes it, a call for another model removes
    it, and so does :meth:`discard`. The old collection has to stay open, and rejects changes after the switch.
    """

    def __init__(self, tables: Tables, old: MilvusCollection, serving: Writer) -> None:
        super().__init__(tables, None, write=True)
        self._old, self._serving = old, serving

    @property
    def superseded(self) -> bool:
        """Always False: nothing replaces a generation before it serves."""
        return False

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files atomically.

        Args:
            entries: The files with the vectors of the new model; of duplicates the last one wins.

        Raises:
            InputError: An entry is invalid; nothing is added.
        """
        last = self._by_place(entries)
        self._writing().change(lambda now: changing.adding(self.tables, now, last, self._ids(now, last)))

    def commit(self, *, progress: ProgressReporter | None = None) -> None:
        """Make this generation serve, atomically, and close it; open the collection again to use it."""
        self._writing().hand_over(self._serving)
        self.close()

    def discard(self) -> None:
        """Drop this generation and close it; the old one keeps serving."""
        self._serving.owned()  # another writer may already be resuming it
        self._writing().owned()
        self.tables.connection.drop(*tables_of(self.tables.base))
        self.close()

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> MilvusNextGeneration:
        """Raise VSEError: only one generation is built at a time."""
        raise VSEError(f"generation {self.tables.generation} of {self.where} is not serving yet: commit it first")

    def _ids(self, now: State, entries: Mapping[str, Entry]) -> dict[str, list[int]]:
        """Return the ids of the old generation where it has the same file, otherwise new ones from its sequence."""
        self._serving.owned()
        known = self._old.reading.steady(lambda state: kept_ids.ids_before(self._old.tables, state, entries))
        for key in kept_ids.held_elsewhere(self.tables, now, known, entries):
            del known[key]
        missing = [key for key in entries if key not in known]
        count = sum(len(entries[key].moments) for key in missing)
        fresh = iter(self._reserved(count))
        return {**known, **{key: list(islice(fresh, len(entries[key].moments))) for key in missing}}

    def _reserved(self, count: int) -> range:
        """Reserve ``count`` ids of the old generation, which it will never assign itself."""
        if not count:
            return range(0)
        before = self._serving.amend(lambda now: replace(now, next_item=now.next_item + count))
        return range(before.next_item, before.next_item + count)

    def _align(self, model_source: str) -> None:
        """Align what an earlier attempt left with the current state of the old generation."""
        if self.tables.ledger.state().model_source != model_source:
            self._writing().amend(lambda now: replace(now, model_source=model_source))

        def planned(now: State) -> changing.Change:
            gone = self._old.reading.steady(lambda state: kept_ids.outdated(self.tables, now, self._old.tables, state))
            return changing.removing(self.tables, now, gone)[0]

        self._writing().change(planned)


def next_generation(
    old: MilvusCollection, serving: Writer, model: str, model_source: str, dimensions: int
) -> MilvusNextGeneration:
    """Resume an attempt for the same model and dimensions, or create new Milvus collections beside those of ``old``."""
    now = serving.owned()
    wanted = State(model, model_source, dimensions, now.index, generation=now.generation + 1, next_item=now.next_item)
    connection = Connection(old.tables.connection.address)
    try:
        tables = unfinished_tables(connection, wanted)
        if tables is not None:
            new = MilvusNextGeneration(tables, old, serving)
            new._align(wanted.model_source)
            return new
        tables = Tables(connection, wanted.generation, serving=False)
        tables.make(wanted)
        return MilvusNextGeneration(tables, old, serving)
    except BaseException:
        connection.close()
        raise
