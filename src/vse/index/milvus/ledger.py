"""The Milvus collection of the states, of which the one with the highest batch holds."""

from __future__ import annotations

from collections.abc import Iterable

from vse.errors import VSEError
from vse.index.milvus.connection import CALL_SECONDS, Connection
from vse.index.milvus.state import State, state_of

ANSWER_SECONDS = 10.0
"""For the state, with which everything begins: a server that was lost is told after so long."""


class Ledger:
    """States as rows of ``table``, read for one generation.

    Where several generations have states the newest of all says which one serves, and the newest of a generation what
    it holds; a generation that served before keeps its last state for as long as it may be read.
    """

    def __init__(self, connection: Connection, table: str, generation: int) -> None:
        self.table, self.generation = table, generation
        self._connection = connection

    def states(self) -> list[State]:
        """All that are there, the newest first."""
        with self._connection.using() as client:
            rows = client.query(
                self.table, filter="batch >= 0", output_fields=["batch", "state"],
                consistency_level="Strong", timeout=ANSWER_SECONDS,
            )  # fmt: skip
            newest = sorted(rows, key=lambda row: int(row["batch"]), reverse=True)
        return [state_of(self._connection.where, str(row["state"])) for row in newest]

    def state(self) -> State:
        """What this generation holds, which need not be the one that serves."""
        states = self.states()
        for state in states:
            if state.generation == self.generation:
                return state
        raise self._outdated() if states else self._damaged()

    def serving(self) -> State:
        """What holds."""
        states = self.states()
        if not states:
            raise self._damaged()
        return states[0]

    def own(self) -> State:
        """What holds, when this is the generation that serves."""
        state = self.serving()
        if state.generation != self.generation:
            raise self._outdated()
        return state

    def publish(self, state: State) -> None:
        """Let ``state`` hold from now on: one row."""
        row = {"batch": state.batch, "state": state.to_text(), "vector": [0.0, 0.0]}
        with self._connection.using() as client:
            client.insert(self.table, [row], timeout=CALL_SECONDS)

    def forget(self, batches: Iterable[int]) -> None:
        """Delete states that no longer hold."""
        gone = list(batches)
        if gone:
            with self._connection.using() as client:
                client.delete(self.table, ids=gone, timeout=CALL_SECONDS)

    def _outdated(self) -> VSEError:
        return VSEError(f"{self._connection.where} was switched to a newer generation: open it again")

    def _damaged(self) -> VSEError:
        return VSEError(f"{self._connection.where} is damaged, it has no state: restore it or index again")
