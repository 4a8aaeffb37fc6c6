"""Fill the next generation while the current one serves."""

from __future__ import annotations

from vse.errors import VSEError
from vse.index.milvus.collection import SOURCE, MilvusCollection
from vse.index.milvus.connection import Connection
from vse.index.milvus.tables import About, Tables, expect_ours, switch
from vse.index.milvus.writing import is_setting
from vse.progress import ProgressReporter


class MilvusNextGeneration(MilvusCollection):
    """A :class:`~vse.index.types.NextGeneration` in Milvus; see :meth:`MilvusCollection.new_generation`.

    ::

        with collection.new_generation(model=..., model_source=..., dimensions=...) as new:
            for ...: new.add(...)
            new.commit()

    Closing without :meth:`commit`, or a crash, keeps what was added: the next call for the same model and dimensions
    resumes it, a call for another model removes it, and so does :meth:`discard`. The old collection has to stay open,
    and rejects changes after the switch.
    """

    def __init__(self, tables: Tables, old: MilvusCollection) -> None:
        super().__init__(tables, None, write=True, old=old.tables)
        self._old = old

    @property
    def superseded(self) -> bool:
        """Always False: nothing replaces a generation before it serves."""
        return False

    def resume(self, model_source: str) -> None:
        """Align what an earlier attempt left with the current state of the old generation."""
        self.tables.put({SOURCE: model_source})
        self._writing().drop_outdated()

    def commit(self, *, progress: ProgressReporter | None = None) -> None:
        """Make this generation serve, atomically, and close it; open the collection again to use it."""
        self._writing().check_serves()
        settings = {key: value for key, value in self._old.tables.values().items() if is_setting(key)}
        if settings:
            self.tables.put(settings)
        switch(self.tables)
        self.close()

    def discard(self) -> None:
        """Drop this generation and close it; the old one keeps serving."""
        self._writing().check_serves()
        self.tables.drop()
        self.close()

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> MilvusNextGeneration:
        """Raise VSEError: only one generation is built at a time."""
        raise VSEError(f"generation {self.tables.generation} of {self.where} is not serving yet: commit it first")


def next_generation(old: MilvusCollection, about: About, model_source: str) -> MilvusNextGeneration:
    """Resume an attempt for the same model and dimensions, or create new Milvus collections beside those of ``old``."""
    connection = Connection(old.tables.connection.address)
    try:
        tables = Tables(connection, old.tables.generation + 1)
        expect_ours(connection, tables.names(), fix="rename or drop it")
        resumed = tables.load() and tables.about == about
        if not resumed:
            tables.make(about, {SOURCE: model_source})
        new = MilvusNextGeneration(tables, old)
        if resumed:
            new.resume(model_source)
        return new
    except BaseException:
        connection.close()
        raise
