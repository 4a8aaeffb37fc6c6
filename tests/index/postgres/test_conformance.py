"""The complete conformance suite for PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.index.conformance import Conformance
from tests.index.histories import Backend, history
from tests.index.postgres.server import Postgres, address_of, named

HISTORIES = settings(max_examples=8, stateful_step_count=20, deadline=None)  # each of them makes all the tables


class TestPostgres(Conformance):
    @staticmethod
    def backend_in(folder: Path) -> Backend:
        return Postgres(address_of(named(folder)))

    def test_random_histories(self) -> None:
        """As in the suite, words included, with fewer histories."""
        run_state_machine_as_test(history(self.backend_in), settings=HISTORIES)
