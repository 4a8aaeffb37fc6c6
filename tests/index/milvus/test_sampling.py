"""Sampling a collection in Milvus by looking up ids: the right ones, in bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.conformance import scrambled
from tests.index.examples import DIMENSIONS, directions
from tests.index.support import batch

from vse.index.milvus import MilvusCollection
from vse.index.milvus import search as sampled


@given(st.integers(1, 300), st.integers(1, 320), st.integers(1, 40))
def test_ordered_ids_match_full_sort(end: int, most: int, block: int) -> None:
    """Those that sorting all ids would put first, for any block size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampled, "BLOCK", block)
        assert sampled.ordered_ids(end, most) == sorted(range(1, end), key=scrambled)[:most]


def test_many_ids_take_little_memory() -> None:
    """Less than eight bytes for each id ever assigned, and far less than an object each."""
    tracemalloc.start()
    try:
        sampled.ordered_ids(4_000_000, 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 * 2**20


def test_sample_skips_removed_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When those with the smallest hashes were removed, more are looked up until there are enough."""
    pytest.importorskip("milvus_lite")
    monkeypatch.setattr(sampled, "LEAST_TRIED", 1)
    with MilvusCollection.create(tmp_path / "c.db", model="m", model_source="s", dimensions=DIMENSIONS) as writer:
        writer.add(batch(directions(100, seed=9)))
        order = sorted(range(1, 101), key=scrambled)
        places = [(item.file.root, item.file.path) for item in writer.items(order[:40])]
        writer.remove(places)
        for count in (1, 3, 59):
            np.testing.assert_array_equal(writer.sample(count), writer.vectors(sorted(order[40 : 40 + count])))
