"""Browsing and sampling in Milvus: many windows of ids, dense ids, and an estimated cutoff time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.index.conformance import scrambled
from tests.index.examples import DIMENSIONS, VECTORS, entry
from tests.index.twin import newness, passes

from vse.index.filters import Filter
from vse.index.milvus import MilvusCollection, reading, tables
from vse.index.milvus.writing import by_place
from vse.index.types import Facets, FolderCount

pytest.importorskip("milvus_lite")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[MilvusCollection]:
    with MilvusCollection.create(tmp_path / "c.db", model="m", model_source="s", dimensions=DIMENSIONS) as made:
        yield made


@pytest.mark.parametrize("dense", [False, True])
def test_milvus_browsing_joins_calls(writer: MilvusCollection, monkeypatch: pytest.MonkeyPatch, dense: bool) -> None:
    """Across many calls, order, pages and counts are those of all files, even if ids are not spread like hashes."""
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1)  # 64 ids at a time
    numbers = [(number * 37) % 200 for number in range(200)]
    files = by_place([entry(f"{number % 2}/{number}.jpg", VECTORS[0], taken=float(number)) for number in numbers])
    firsts = {place: 7 + row for row, place in enumerate(files)} if dense else None
    assert writer._writer is not None
    writer._writer.add(files, firsts)
    writer.remove([("/photos", f"{number % 2}/{number}.jpg") for number in numbers[70:135]])
    left = sorted([*numbers[:70], *numbers[135:]], reverse=True)
    ids = np.concatenate([some for some, _ in writer.all_vectors(block=50)]).tolist()
    assert ids == sorted(set(ids))
    assert len(ids) == len(left)
    assert [item.file.taken for item in writer.recent(200)] == left
    assert [item.file.taken for item in writer.recent(20, offset=90)] == left[90:110]
    folders = tuple(FolderCount(str(odd), sum(each % 2 == odd for each in left)) for odd in (0, 1))
    assert writer.facets() == Facets(len(left), 0, float(left[-1]), float(left[0]), folders)
    for count in (1, 30, 134):
        assert reading.sample(writer.tables, count) == sorted(sorted(ids, key=scrambled)[:count])


def test_recent_is_independent_of_estimated_cutoff(writer: MilvusCollection, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same for any estimated cutoff, and without one."""
    chance = random.Random(4)
    files = []
    for number in range(300):
        time = chance.choice([chance.uniform(-20, 100), float(chance.randrange(100))])
        known = {"taken": time, "modified": 10**18} if chance.random() < 0.6 else {"modified": int(time * 1e9)}
        files.append(entry(f"{'ab'[number % 2]}/{number:03}.jpg", VECTORS[0], **known))
    writer.add([*files, entry("a/far.jpg", VECTORS[0], taken=-1e300)])
    monkeypatch.setattr(reading, "FEW", 0)
    monkeypatch.setattr(reading, "ASKED", 100)
    since = reading.likely_since(writer.tables, reading.FIRST, 5)
    assert since is not None
    assert 5 <= sum(newness(file) >= since for file in writer.files()) < 150
    expected = {}
    for guess in (since, None, 70.0, 1e6):
        monkeypatch.setattr(reading, "likely_since", lambda *_, guess=guess: guess)
        for where in (Filter(), Filter(folder="a"), Filter(after=10.0, before=30.0)):
            found = writer.recent(40, offset=3, where=where)
            times = [newness(item.file) for item in found]
            assert (
                times == sorted((newness(file) for file in writer.files() if passes(file, where)), reverse=True)[3:43]
            )
            assert expected.setdefault(where, found) == found
