"""Stop the PostgreSQL server of the tests with the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _postgres() -> Iterator[None]:
    yield
    import sys

    if (module := sys.modules.get("tests.index.postgres.server")) is not None:
        module.stop()
