"""The writer's side of the commit protocol, which is told in the package's description."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from vse.errors import VSEError
from vse.index.milvus.changing import Change
from vse.index.milvus.connection import MOST_ROWS, Connection, rows_at_once
from vse.index.milvus.schema import LANES, NEVER, Lane
from vse.index.milvus.state import State

STRIDE = 2**32
"""Keys that a new writer leaves to the one before, which may still be writing."""


class Writer:
    """Whoever changes a collection; making one takes over from the writer before. One thread changes at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._token = secrets.token_hex(8)
        self._guard = threading.Lock()
        take_over(connection, self._token)
        self._unfinished = False

    def change(self, planned: Callable[[State], Change]) -> None:
        """Let what is planned for the present state happen, all of it or nothing; it has when this returns."""
        with self._guard:
            now = self._owned()
            if self._unfinished:
                now = take_over(self._connection, self._token)
                self._unfinished = False
            change = planned(now)
            if change.empty:
                return
            self._unfinished = True
            try:
                self._publish(change)
            except VSEError:
                with suppress(VSEError):
                    if self._connection.state() == change.state:  # only the answer of Milvus was lost
                        return
                raise
            with suppress(VSEError):  # nobody sees these rows any more, and they are looked for again
                for lane in LANES:
                    self._connection.delete(lane, [row["row"] for row in change.go[lane]])
                self._connection.forget(now.batch)
                self._unfinished = False
                for lane in LANES:
                    self._connection.settle(lane)

    def _publish(self, change: Change) -> None:
        batch = change.state.batch
        for lane in LANES:
            self._connection.insert(lane, change.come[lane])
            self._let_die(change, lane, batch)
        try:
            self._owned()
        except VSEError:
            self._withdraw(change)
            raise
        self._connection.publish(change.state)

    def _owned(self) -> State:
        state = self._connection.state()
        if state.writer != self._token:
            raise VSEError(
                f"{self._connection.where} was opened for writing elsewhere since: nothing was changed, let one "
                "process write and open it again"
            )
        return state

    def _withdraw(self, change: Change) -> None:
        """Take back rows that another writer, being past this batch, would show."""
        for lane in LANES:
            self._connection.delete(lane, [row["row"] for row in change.come[lane]])
            self._let_die(change, lane, NEVER)

    def _let_die(self, change: Change, lane: Lane, batch: int) -> None:
        for rows in self._connection.whole(lane, [row["row"] for row in change.go[lane]], change.state.dimensions):
            self._connection.rewrite(lane, [{**row, "died": batch} for row in rows])


def take_over(connection: Connection, token: str) -> State:
    """Clear away what is not part of the published state, and publish it again as that of the writer ``token``.

    The number of a batch that was under way is passed over: should its row arrive late, a newer one holds.
    """
    now = connection.state()
    dying = f"born <= {now.batch} and died > {now.batch} and died < {NEVER}"
    lost = f"born > {now.batch} or died <= {now.batch}"
    for lane in LANES:
        while rows := connection.query(lane, dying, most=rows_at_once(now.dimensions)):
            connection.rewrite(lane, [{**row, "died": NEVER} for row in rows])
        while rows := connection.query(lane, lost, ["row"], most=MOST_ROWS):
            connection.delete(lane, [row["row"] for row in rows])
    taken = replace(now, batch=now.batch + 2, next_row=now.next_row + STRIDE, writer=token)
    connection.publish(taken)
    connection.forget(now.batch, now.batch + 1)
    return taken
