"""A process that adds files is killed at any moment: acknowledged batches are there, and none is partial."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.index.crash import kill_again_and_again
from tests.index.examples import QUERIES
from tests.index.support import create

from vse.index.store import EmbeddedCollection
from vse.index.types import Collection

TUNING = "from vse.index.store import cache; cache.FOLLOW_AFTER = 12"  # so that kills also hit cache updates


def check(reader: Collection, files: int) -> None:
    """Check that everything matches its checksum and can be found."""
    assert isinstance(reader, EmbeddedCollection)
    report = reader.verify()
    assert report.ok, report
    assert len(reader.search(QUERIES[0], 10**6).ids) == report.items == files
    assert reader.word_counts(["caption"]) == {"caption": files}
    assert len(reader.search_words({"caption": 1.0}, QUERIES[0], 10**6).ids) == files


@pytest.mark.slow
def test_store_survives_kill_at_any_moment(tmp_path: Path) -> None:
    """The collection opens, acknowledged batches are complete, others complete or absent, and ``verify`` passes."""
    folder = tmp_path / "collection"
    create(folder).close()
    kill_again_and_again(folder, TUNING, times=25, longest=0.25, check=check)
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.rebuild()
        assert writer.verify().ok
