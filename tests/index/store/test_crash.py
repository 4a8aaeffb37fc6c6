"""A process that adds is killed at any moment: what was acknowledged has happened, and nothing by halves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.index.crash import kill_again_and_again
from tests.index.examples import QUERIES
from tests.index.support import create

from vse.index.store import EmbeddedCollection
from vse.index.types import Collection

TUNING = "from vse.index.store import cache; cache.FOLLOW_AFTER = 12"  # so that kills hit the cache as well


def check(reader: Collection, files: int) -> None:
    """Everything matches its checksum, and all of it is found."""
    assert isinstance(reader, EmbeddedCollection)
    report = reader.verify()
    assert report.ok, report
    assert len(reader.search(QUERIES[0], 10**6).ids) == report.items == files


@pytest.mark.slow
def test_store_survives_kill_at_any_moment(tmp_path: Path) -> None:
    """The collection opens, every acknowledged batch is whole, every other is whole or absent, and verify is clean."""
    folder = tmp_path / "collection"
    create(folder).close()
    kill_again_and_again(folder, TUNING, times=25, longest=0.25, check=check)
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.rebuild()
        assert writer.verify().ok
