"""A process that adds to Milvus Lite is killed at any moment: what was acknowledged is there, and nothing by halves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from tests.index.examples import DIMENSIONS, QUERIES

from vse.index.milvus import MilvusCollection

pytest.importorskip("milvus_lite")
BATCH = 5
CHILD = textwrap.dedent(
    """
    import sys
    from tests.index.examples import VECTORS
    from tests.index.support import batch
    from vse.index.milvus import MilvusCollection, connection

    connection.FLUSH_AFTER = 12  # so that kills hit the moving of rows to files as well
    folder, begin = sys.argv[1], int(sys.argv[2])
    collection = MilvusCollection.open(folder, write=True)
    print("open", flush=True)
    for number in range(begin, begin + 10_000):
        collection.add(batch(VECTORS[:5], f"{number:06}/"))
        print("added", number, flush=True)
        if number % 3 == 0 and number > begin + 2:
            gone = number - 3
            print("removing", gone, flush=True)
            collection.remove([("/photos", f"{gone:06}/{row:05}.jpg") for row in range(5)])
            print("removed", gone, flush=True)
    """
)


def kill_during_work(folder: Path, begin: int, delay: float) -> list[list[str]]:
    """What the process had said when it was killed, ``delay`` seconds after it had opened the collection."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), str(begin)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    said = process.stdout.read().splitlines(keepends=True)
    process.stdout.close()
    process.wait()
    return [line.split() for line in said if line.endswith("\n")]


@pytest.mark.slow
def test_kill_at_any_moment(tmp_path: Path) -> None:
    """Read before any writer has cleared up: acknowledged batches are whole, every other is whole or absent.

    Counts, captions and searches agree; afterwards a writer clears up, and no row remains that is not of the state.
    """
    folder = tmp_path / "photos.db"
    MilvusCollection.create(folder, model="m", model_source="s", dimensions=DIMENSIONS).close()
    random = np.random.default_rng(20)
    added: set[int] = set()
    removed: set[int] = set()
    begin = 0
    for _ in range(8):
        said = kill_during_work(folder, begin, float(random.uniform(0, 0.5)))
        added |= {int(number) for word, number in said if word == "added"}
        removed |= {int(number) for word, number in said if word == "removed"}
        unsure = {int(number) for word, number in said if word == "removing"} - removed
        with MilvusCollection.open(folder) as reader:
            there: dict[int, int] = {}
            for file in reader.files():
                number = int(file.path.split("/")[0])
                there[number] = there.get(number, 0) + 1
            assert set(there.values()) <= {BATCH}, "half a batch"
            assert added - removed - unsure <= there.keys(), "an acknowledged batch is lost"
            assert not removed & there.keys(), "a removed batch is back"
            info = reader.info()
            assert info.files == info.items == info.captions == BATCH * len(there)
            assert len(reader.search(QUERIES[0], 10**6).ids) == info.items
            assert len(reader.search_captions(QUERIES[0], 10**6)) == info.captions
        assert len(there.keys() - added) <= 1, "at most the batch under way was not acknowledged"
        added |= there.keys()
        removed |= unsure - there.keys()
        begin = max(added, default=0) + 1
    assert len(added) > 8
    with MilvusCollection.open(folder, write=True) as writer:
        rows = [writer._connection.query(lane, "row >= 0", ["row"]) for lane in ("items", "captions")]
        assert [len(some) for some in rows] == [BATCH * len(there)] * 2
