"""Browsing in Milvus: many windows of ids, an estimated cutoff time, and files replaced meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.index.examples import DIMENSIONS, VECTORS, entry
from tests.index.twin import newness, passes

from vse.errors import VSEError
from vse.index.checks import MAX_TRIES
from vse.index.filters import Filter
from vse.index.milvus import MilvusCollection, browsing
from vse.index.milvus import search as searching
from vse.index.milvus.search import Reading
from vse.index.types import Facets, FolderCount

pytest.importorskip("milvus_lite")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[MilvusCollection]:
    with MilvusCollection.create(tmp_path / "c.db", model="m", model_source="s", dimensions=DIMENSIONS) as made:
        yield made


def test_milvus_browsing_joins_calls(writer: MilvusCollection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across many calls, order, pages and counts are those of all files."""
    monkeypatch.setattr(searching, "BLOCK_BYTES", 1)  # 64 ids at a time
    numbers = [(number * 37) % 200 for number in range(200)]
    writer.add([entry(f"{number % 2}/{number}.jpg", VECTORS[0], taken=float(number)) for number in numbers])
    writer.remove([("/photos", f"{number % 2}/{number}.jpg") for number in numbers[70:135]])  # an empty window
    left = sorted([*numbers[:70], *numbers[135:]], reverse=True)
    assert [item.file.taken for item in writer.recent(200)] == left
    assert [item.file.taken for item in writer.recent(20, offset=90)] == left[90:110]
    folders = tuple(FolderCount(str(odd), sum(each % 2 == odd for each in left)) for odd in (0, 1))
    assert writer.facets() == Facets(len(left), 0, float(left[-1]), float(left[0]), folders)


@pytest.mark.parametrize("guess", [None, 70.0, 1e6], ids=["asked", "few enough", "too few"])
def test_recent_is_independent_of_estimated_cutoff(
    writer: MilvusCollection, monkeypatch: pytest.MonkeyPatch, guess: float | None
) -> None:
    """They are the same for any estimated cutoff, and without one."""
    chance = random.Random(4)
    files = []
    for number in range(300):
        time = chance.choice([chance.uniform(-20, 100), float(chance.randrange(100))])
        known = {"taken": time, "modified": 10**18} if chance.random() < 0.6 else {"modified": int(time * 1e9)}
        files.append(entry(f"{'ab'[number % 2]}/{number:03}.jpg", VECTORS[0], **known))
    writer.add(files)
    writer.remove([("/photos", entry.file.path) for entry in files[50:90]])
    monkeypatch.setattr(browsing, "FEW", 0)
    monkeypatch.setattr(browsing, "ASKED", 100)
    state = writer.tables.ledger.state()
    since = browsing.likely_since(writer.reading, state, browsing.FIRST, 5)
    assert since is not None
    assert 5 <= sum(newness(file) >= since for file in writer.files()) < 120
    passing = browsing.likely_since(writer.reading, state, f"{browsing.FIRST} and taken < 50", 5)
    assert passing is not None
    assert passing < 50
    if guess is not None:
        monkeypatch.setattr(browsing, "likely_since", lambda *_: guess)
    for where in (Filter(), Filter(folder="a"), Filter(after=10.0, before=30.0)):
        left = [file for file in writer.files() if passes(file, where)]
        whole = sorted(left, key=lambda file: (-newness(file), file.path[2:]))  # file numbers are in id order
        for k, offset in ((5, 0), (1, 9), (40, 0), (60, 20), (300, 0)):
            assert [item.file for item in writer.recent(k, offset=offset, where=where)] == whole[offset : offset + k]


def test_recent_with_times_rounded_to_cutoff(writer: MilvusCollection, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the cutoff is the time of a file, no file of that time is skipped in favour of an older one."""
    modified = 1_700_000_000_906_691_059  # a float represents only every 256th nanosecond here
    assert modified / 1e9 * 1e9 > modified
    second = modified / 1e9
    times = [{"taken": 50.0}, {"modified": 50 * 10**9}, {"modified": modified}, {"taken": second}]
    older = [{"modified": 50 * 10**9 - 5000}, {"taken": 50.0 - 2e-6}]
    writer.add([entry(f"{number}.jpg", VECTORS[0], **each) for number, each in enumerate([*times, *older])])
    for since in (second, 50.0):
        monkeypatch.setattr(browsing, "likely_since", lambda *_, since=since: since)
        for k in range(1, 7):
            assert [int(item.file.path[0]) for item in writer.recent(k)] == [2, 3, 0, 1, 5, 4][:k]


@pytest.mark.parametrize("far", [1e300, -1e300])
def test_recent_with_extreme_times(writer: MilvusCollection, monkeypatch: pytest.MonkeyPatch, far: float) -> None:
    """A file may claim any time."""
    monkeypatch.setattr(browsing, "FEW", 0)
    monkeypatch.setattr(browsing, "ASKED", 30)
    writer.add([entry(f"{number:02}.jpg", VECTORS[0], taken=far) for number in range(30)])
    assert [item.file.path for item in writer.recent(3)] == ["00.jpg", "01.jpg", "02.jpg"]


def test_recent_retries_when_files_are_replaced(writer: MilvusCollection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is complete however often it is retried, up to a limit beyond which the error is one line."""
    files = [entry(f"{number}.jpg", VECTORS[0], taken=float(number)) for number in range(5)]
    writer.add(files)
    rows, left = Reading.rows, 3

    def rows_after_a_change(self: Reading, *arguments: object) -> object:
        nonlocal left
        if left:
            left -= 1
            writer.add(files)
        return rows(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Reading, "rows", rows_after_a_change)
    assert [item.file.path for item in writer.recent(3, offset=1)] == ["3.jpg", "2.jpg", "1.jpg"]
    assert left == 0
    left = MAX_TRIES
    with pytest.raises(VSEError, match=f"changed {MAX_TRIES} times"):
        writer.recent(3)
