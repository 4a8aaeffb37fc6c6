"""A process that adds is killed at any moment: what was acknowledged has happened, and nothing by halves."""

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
from tests.index.examples import QUERIES
from tests.index.support import create

from vse.index.embedded import EmbeddedCollection

BATCH = 5
CHILD = textwrap.dedent(
    """
    import sys
    from tests.index.examples import VECTORS
    from tests.index.support import batch
    from vse.index.embedded import EmbeddedCollection, caches

    caches.FOLLOW_AFTER = 12  # so that kills hit the writing of the cache as well
    folder, begin = sys.argv[1], int(sys.argv[2])
    collection = EmbeddedCollection.open(folder, write=True)
    print("open", flush=True)
    for number in range(begin, begin + 10_000):
        collection.add(batch(VECTORS[:5], f"{number:06}/"))
        print("added", number, flush=True)
        if number % 3 == 0 and number > begin + 2:
            gone = number - 3
            print("removing", gone, flush=True)
            collection.remove([("/photos", f"{gone:06}/{row:05}.jpg") for row in range(5)])
            print("removed", gone, flush=True)
        if number % 7 == 6:
            collection.close()
            collection = EmbeddedCollection.open(folder, write=True)
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
    """The collection opens, every acknowledged batch is whole, every other is whole or absent, and verify is clean."""
    folder = tmp_path / "collection"
    create(folder).close()
    random = np.random.default_rng(20)
    added: set[int] = set()
    removed: set[int] = set()
    begin = 0
    for _ in range(25):
        said = kill_during_work(folder, begin, float(random.uniform(0, 0.25)))
        added |= {int(number) for word, number in said if word == "added"}
        removed |= {int(number) for word, number in said if word == "removed"}
        unsure = {int(number) for word, number in said if word == "removing"} - removed
        with EmbeddedCollection.open(folder) as reader:
            there: dict[int, int] = {}
            for file in reader.files():
                number = int(file.path.split("/")[0])
                there[number] = there.get(number, 0) + 1
            assert set(there.values()) <= {BATCH}, "half a batch"
            assert added - removed - unsure <= there.keys(), "an acknowledged batch is lost"
            assert not removed & there.keys(), "a removed batch is back"
            report = reader.verify()
            assert report.ok, report
            assert len(reader.search(QUERIES[0], 10**6).ids) == report.items == BATCH * len(there)
        assert len(there.keys() - added) <= 1, "at most the batch under way was not acknowledged"
        added |= there.keys()
        removed |= unsure - there.keys()
        begin = max(added, default=0) + 1
    assert len(added) > 25
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.rebuild()
        assert writer.verify().ok
