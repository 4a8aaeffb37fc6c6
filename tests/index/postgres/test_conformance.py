"""The complete conformance suite for PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from tests.index.conformance import Conformance
from tests.index.histories import Backend
from tests.index.postgres.server import Postgres, address_of, named


class TestPostgres(Conformance):
    @staticmethod
    def backend_in(folder: Path) -> Backend:
        return Postgres(address_of(named(folder)))
