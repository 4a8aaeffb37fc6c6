"""The writer's side of the commit protocol, which is told in the package's description."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from vse.errors import VSEError
from vse.index.lanes import LANES, Lane
from vse.index.milvus.changing import Change
from vse.index.milvus.schema import NEVER
from vse.index.milvus.state import State
from vse.index.milvus.tables import MOST_ROWS, Tables, rows_at_once

STRIDE = 2**32
"""Keys that a new writer leaves to the one before, which may still be writing."""


class Writer:
    """Whoever changes a generation; making one takes over from the writer before. One thread changes at a time."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._token = secrets.token_hex(8)
        self._guard = threading.Lock()
        take_over(tables, self._token)
        self._unfinished = False

    def change(self, planned: Callable[[State], Change]) -> None:
        """Let what is planned for the present state happen, all of it or nothing; it has when this returns."""
        with self._guard:
            now = self._cleared()
            change = planned(now)
            if not change.empty:
                self._happen(now, change)

    def amend(self, amended: Callable[[State], State]) -> State:
        """Publish what is made of the present state, while all rows stay as they are; return the state before."""
        with self._guard:
            now = self._cleared()
            self._happen(now, Change(replace(amended(now), batch=now.batch + 1)))
            return now

    def hand_over(self, serving: Writer) -> None:
        """Let this generation serve, in the place of the one of the writer ``serving``: one row."""
        with self._guard:
            new = self._cleared()
            with serving._guard:
                now = serving._cleared()
                if now.batch < new.batch:  # rows of the new generation are born with up to this number
                    before, now = now, replace(now, batch=new.batch)
                    serving._happen(before, Change(now))
                item = max(now.next_item, new.next_item)
                switched = replace(new, batch=now.batch + 1, next_item=item, writer=serving._token)
                serving._happen(now, Change(switched))

    def owned(self) -> State:
        """What is published, when this writer may still change it."""
        state = self._tables.ledger.own()
        if state.writer != self._token:
            raise VSEError(
                f"{self._tables.connection.where} was opened for writing elsewhere since: nothing was changed, let one "
                "process write and open it again"
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
                if self._tables.ledger.serving() == change.state:  # only the answer of Milvus was lost
                    return
            raise
        with suppress(VSEError):  # nobody sees these rows any more, and they are looked for again
            for lane in LANES:
                self._tables.delete(lane, [row["row"] for row in change.go[lane]])
            if change.state.generation == now.generation:  # otherwise some still read what served so far
                self._tables.ledger.forget([now.batch])
            self._unfinished = False
            for lane in LANES:
                self._tables.settle(lane)

    def _publish(self, change: Change) -> None:
        batch = change.state.batch
        for lane in LANES:
            self._tables.insert(lane, change.come[lane])
            self._let_die(change, lane, batch)
        try:
            self.owned()
        except VSEError:
            self._withdraw(change)
            raise
        self._tables.ledger.publish(change.state)

    def _withdraw(self, change: Change) -> None:
        """Take back rows that another writer, being past this batch, would show."""
        for lane in LANES:
            self._tables.delete(lane, [row["row"] for row in change.come[lane]])
            self._let_die(change, lane, NEVER)

    def _let_die(self, change: Change, lane: Lane, batch: int) -> None:
        for rows in self._tables.whole(lane, [row["row"] for row in change.go[lane]], change.state.dimensions):
            self._tables.rewrite(lane, [{**row, "died": batch} for row in rows])


def take_over(tables: Tables, token: str) -> State:
    """Clear away what is not part of the published state, and publish it again as that of the writer ``token``.

    The number of a batch that was under way is passed over: should its row arrive late, a newer one holds. Those who
    still read a generation that served before learn here that it is no longer kept.
    """
    now = tables.ledger.own()
    dying = f"born <= {now.batch} and died > {now.batch} and died < {NEVER}"
    lost = f"born > {now.batch} or died <= {now.batch}"
    for lane in LANES:
        while rows := tables.query(lane, dying, most=rows_at_once(now.dimensions)):
            tables.rewrite(lane, [{**row, "died": NEVER} for row in rows])
        while rows := tables.query(lane, lost, ["row"], most=MOST_ROWS):
            tables.delete(lane, [row["row"] for row in rows])
    taken = replace(now, batch=now.batch + 2, next_row=now.next_row + STRIDE, writer=token)
    tables.ledger.publish(taken)
    tables.ledger.forget(state.batch for state in tables.ledger.states() if state.batch != taken.batch)
    return taken
