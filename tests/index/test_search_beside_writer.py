"""Search during writes: retry when hits are replaced before they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.index.examples import directions
from tests.index.support import batch, create

from vse.errors import InputError, VSEError
from vse.index.caption_search import search_captions
from vse.index.checks import MAX_TRIES
from vse.index.item_search import search
from vse.index.query import Query
from vse.index.store import EmbeddedCollection

VECTORS = directions(50, seed=60)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[EmbeddedCollection]:
    """Fifty images with captions."""
    with create(tmp_path / "c") as made:
        made.add(batch(VECTORS))
        yield made


@pytest.fixture
def reader(writer: EmbeddedCollection) -> Iterator[EmbeddedCollection]:
    with EmbeddedCollection.open(writer.folder) as made:
        yield made


def replaced_after(monkeypatch, reader: EmbeddedCollection, writer: EmbeddedCollection, times: int) -> None:
    """After each of the first ``times`` searches, replace all files but the first with the same images."""
    left = times

    def meanwhile(ask):
        def asked(*arguments, **options):
            nonlocal left
            hits = ask(*arguments, **options)
            if left:
                left -= 1
                writer.add(batch(VECTORS)[1:])
            return hits

        return asked

    monkeypatch.setattr(reader, "search", meanwhile(reader.search))
    monkeypatch.setattr(reader, "search_captions", meanwhile(reader.search_captions))


@pytest.mark.parametrize("threshold", [None, 0.9])
def test_search_retries_when_hits_are_replaced(monkeypatch, reader, writer, threshold):
    """The results are complete and of the last state, however often it changed before."""
    replaced_after(monkeypatch, reader, writer, 3)
    found = search(reader, Query(like=(1,)), 20, group_duplicates=threshold)
    assert len(found.results) > 5
    assert [result.path for result in found.results] == [
        item.file.path.join(["/photos/", ""]) for item in writer.items([result.id for result in found.results])
    ]
    assert found.results == search(writer, Query(like=(1,)), 20, group_duplicates=threshold).results


def test_caption_search_retries_when_hits_are_replaced(monkeypatch, reader, writer):
    """The same for captions."""
    replaced_after(monkeypatch, reader, writer, 3)
    found = search_captions(reader, Query(like=(1,)), 20)
    assert found.captions == search_captions(writer, Query(like=(1,)), 20).captions


def test_search_gives_up_after_max_tries(monkeypatch, reader, writer):
    """Retries are bounded; the error suggests a fix."""
    replaced_after(monkeypatch, reader, writer, MAX_TRIES)
    with pytest.raises(VSEError, match=f"changed {MAX_TRIES} times") as caught:
        search(reader, Query(like=(1,)), 5)
    assert "\n" not in str(caught.value)


def test_search_does_not_retry_stale_query_id(reader, writer):
    """A stale id given by the caller is not retried."""
    writer.remove([("/photos", "00002.jpg")])
    with pytest.raises(InputError, match="no item has id 3"):
        search(reader, Query(like=(3,)))
