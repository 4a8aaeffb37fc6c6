"""Filling the next generation while the present one serves."""

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
    """A :class:`~vse.index.types.NextGeneration` in Milvus, made by :meth:`MilvusCollection.new_generation`.

    ::

        with collection.new_generation(model=..., model_source=..., dimensions=...) as new:
            for ...: new.add(...)
            new.commit()

    It has Milvus collections and states of its own, beside those that serve. Closing without :meth:`commit`, or dying,
    keeps what was added: the next call for the same model and dimensions resumes it, one for another model throws
    it away, and so does :meth:`discard`. The old collection has to stay open, and takes no more changes once the
    switch is made.
    """

    def __init__(self, tables: Tables, old: MilvusCollection, serving: Writer) -> None:
        super().__init__(tables, None, write=True)
        self._old, self._serving = old, serving

    @property
    def superseded(self) -> bool:
        """Never before it serves."""
        return False

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files, all of them or none."""
        last = self._by_place(entries)
        self._writing().change(lambda now: changing.adding(self.tables, now, last, self._ids(now, last)))

    def commit(self, *, progress: ProgressReporter | None = None) -> None:
        """Let this generation serve, in one step, and close it; open the collection again to use it."""
        self._writing().hand_over(self._serving)
        self.close()

    def discard(self) -> None:
        """Discard what was made, and close; the old generation goes on serving."""
        self._serving.owned()  # whoever else writes by now may be going on with it
        self._writing().owned()
        self.tables.connection.drop(*tables_of(self.tables.base))
        self.close()

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> MilvusNextGeneration:
        """An error: one is made at a time."""
        raise VSEError(f"generation {self.tables.generation} of {self.where} is not serving yet: commit it first")

    def _ids(self, now: State, entries: Mapping[str, Entry]) -> dict[str, list[int]]:
        """Those of the old generation where it has the same file, others from its sequence."""
        self._serving.owned()
        known = self._old.reading.steady(lambda state: kept_ids.ids_before(self._old.tables, state, entries))
        for key in kept_ids.held_elsewhere(self.tables, now, known, entries):
            del known[key]
        missing = [key for key in entries if key not in known]
        count = sum(len(entries[key].moments) for key in missing)
        fresh = iter(self._reserved(count))
        return {**known, **{key: list(islice(fresh, len(entries[key].moments))) for key in missing}}

    def _reserved(self, count: int) -> range:
        """So many ids that the old generation has not given and will not give, also when it goes on serving."""
        if not count:
            return range(0)
        before = self._serving.amend(lambda now: replace(now, next_item=now.next_item + count))
        return range(before.next_item, before.next_item + count)

    def _align(self, model_source: str) -> None:
        """Bring what an attempt has left in line with the old generation as it is now."""
        if self.tables.ledger.state().model_source != model_source:
            self._writing().amend(lambda now: replace(now, model_source=model_source))

        def planned(now: State) -> changing.Change:
            gone = self._old.reading.steady(lambda state: kept_ids.outdated(self.tables, now, self._old.tables, state))
            return changing.removing(self.tables, now, gone)[0]

        self._writing().change(planned)


def next_generation(
    old: MilvusCollection, serving: Writer, model: str, model_source: str, dimensions: int
) -> MilvusNextGeneration:
    """What an attempt for the same model and dimensions has left, or new Milvus collections beside those of ``old``."""
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
