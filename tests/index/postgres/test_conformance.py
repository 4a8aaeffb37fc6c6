"""The complete conformance suite for PostgreSQL, words included."""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from tests.index.conformance import Conformance
from tests.index.histories import Backend
from tests.index.postgres.server import Postgres, address_of, named


class TestPostgres(Conformance):
    histories = settings(max_examples=8, stateful_step_count=20, deadline=None)  # each of them makes all the tables

    @staticmethod
    def backend_in(folder: Path) -> Backend:
        return Postgres(address_of(named(folder)))
