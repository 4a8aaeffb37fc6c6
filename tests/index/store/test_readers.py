"""Readers beside a writer, in other processes and threads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.index.examples import QUERIES, VECTORS, directions
from tests.index.support import batch, create

from vse.index.filters import Filter
from vse.index.store import EmbeddedCollection

BATCH = 5


def test_store_reader_never_sees_partial_batch(tmp_path: Path) -> None:
    """While another process adds, removes, closes and reopens, every search finds complete batches."""
    folder = tmp_path / "collection"
    with create(folder) as writer:
        writer.add(batch(VECTORS[:BATCH], "first/"))
    script = """
        import sys
        from tests.index.examples import VECTORS
        from tests.index.support import batch
        from vse.index.store import EmbeddedCollection, cache

        cache.FOLLOW_AFTER = 17
        print("ready", flush=True)
        for number in range(40):
            if number % 10 == 0:
                writer = EmbeddedCollection.open(sys.argv[1], write=True)
            writer.add(batch(VECTORS[:5], f"{number}/"))
            if number % 4 == 3:
                writer.remove([("/photos", f"{number - 2}/{row:05}.jpg") for row in range(5)])
            if number % 10 == 9:
                writer.close()
        """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    sizes = set()
    with EmbeddedCollection.open(folder) as reader:
        while process.poll() is None:
            found = len(reader.search(QUERIES[0], 1000).ids)
            filtered = len(reader.search(QUERIES[0], 1000, where=Filter(folder="first")).ids)
            assert (found % BATCH, filtered) == (0, BATCH)
            assert len(reader.search_captions(QUERIES[0], 1000)) % BATCH == 0
            info = reader.info()
            assert info.items % BATCH == info.captions % BATCH == 0
            sizes.add(found)
        assert len(reader.search(QUERIES[0], 1000).ids) == BATCH * (1 + 40 - 10)
        assert reader.verify().ok
    process.stdout.close()
    assert process.returncode == 0
    assert len(sizes) > 2


@pytest.mark.parametrize("exact", [None, True])
def test_threads_search_while_one_adds(tmp_path: Path, exact: bool | None) -> None:
    """Searches in several threads are right while another thread adds, as in the service."""
    vectors = directions(200, seed=2)
    with create(tmp_path / "collection") as writer:
        writer.add(batch(vectors))
        ids = np.concatenate([block for block, _ in writer.all_vectors()])
        done = threading.Event()

        def search(seed: int) -> int:
            count = 0
            for row in np.random.default_rng(seed).permutation(len(vectors)):
                hits = writer.search(
                    vectors[row], 3, exact=exact, where=Filter(folder="late") if row % 5 == 0 else None
                )
                if row % 5:
                    assert hits.ids[0] == ids[row]
                    assert writer.items(hits.ids.tolist())[0].file.path == f"{row:05}.jpg"
                count += 1
            return count

        def add() -> None:
            number = 0
            while not done.is_set():
                writer.add(batch(VECTORS[:2], f"late/{number}/"))
                number += 1

        with ThreadPoolExecutor(5) as pool:
            adding = pool.submit(add)
            assert list(pool.map(search, range(4))) == [200] * 4
            done.set()
            adding.result()
        assert writer.verify().ok


def test_open_reader_maps_rebuilt_cache(tmp_path: Path) -> None:
    """Only the files have changed: the reader maps the new ones, and keeps no rows of its own in memory."""
    with create(tmp_path / "collection") as writer, EmbeddedCollection.open(tmp_path / "collection") as reader:
        writer.add(batch(VECTORS))
        before = reader.search(QUERIES[0], 100)
        writer.rebuild()
        after = reader.search(QUERIES[0], 100)
        np.testing.assert_array_equal(before.ids, after.ids)
        known = reader._searchers["items"]._snapshot
        assert known is not None
        assert (len(known.base.ids), len(known.fresh.ids)) == (len(VECTORS), 0)


def test_an_open_reader_is_told_that_the_collection_was_made_again(tmp_path: Path) -> None:
    """A collection deleted and created again at the same path has the same generation number, but other items."""
    folder = tmp_path / "collection"
    with create(folder) as writer:
        writer.add(batch(VECTORS[:BATCH], "first/"))
    with EmbeddedCollection.open(folder) as reader:
        reader.search(QUERIES[0], 1)
        assert not reader.superseded
        shutil.rmtree(folder)
        with create(folder) as writer:
            writer.add(batch(VECTORS[:1], "second/"))
        assert reader.superseded
    with EmbeddedCollection.open(folder) as reader:
        assert not reader.superseded
        assert reader.info().files == 1
