"""Kill processes while they change a collection, on any backend."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vse.index.open import open_collection
from vse.index.types import Collection

BATCH = 5
CHANGING = """
    import sys
    from tests.index.examples import VECTORS
    from tests.index.support import batch
    from vse.index.open import open_collection

    folder, begin = sys.argv[1], int(sys.argv[2])
    collection = open_collection(folder, write=True)
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
            collection = open_collection(folder, write=True)
    """


def killed(script: str, *arguments: object, delay: float, batches: int = 0) -> list[list[str]]:
    """Kill a process ``delay`` seconds after it printed "open" and added so many batches; return what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    said: list[str] = []
    while sum(line.startswith("added") for line in said) < batches:
        said.append(process.stdout.readline())
        assert said[-1], "the process has ended"
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().splitlines(keepends=True)
    process.stdout.close()
    process.wait()
    return [line.split() for line in said if line.endswith("\n")]


def kill_again_and_again(
    folder: Path | str,
    tuning: str,
    times: int,
    longest: float,
    check: Callable[[Collection, int], None],
    *,
    batches: int = 0,
) -> int:
    """Kill processes that add and remove batches, each within ``longest`` seconds; return the final number of files.

    After each kill, before a writer cleans up: acknowledged batches are complete, others complete or absent. ``check``
    gets a reader and the expected number of files; ``tuning`` is code that the processes run first. Each adds at least
    so many ``batches`` before the time begins.
    """
    script = f"{tuning}\n{textwrap.dedent(CHANGING)}"
    random = np.random.default_rng(20)
    added: set[int] = set()
    removed: set[int] = set()
    there: Counter[int] = Counter()
    for _ in range(times):
        said = killed(
            script, folder, max(added, default=-1) + 1, delay=float(random.uniform(0, longest)), batches=batches
        )
        added |= {int(number) for word, number in said if word == "added"}
        removed |= {int(number) for word, number in said if word == "removed"}
        unsure = {int(number) for word, number in said if word == "removing"} - removed
        reader = open_collection(folder)
        there = Counter(int(file.path.split("/")[0]) for file in reader.files())
        assert set(there.values()) <= {BATCH}, "half a batch"
        assert added - removed - unsure <= there.keys(), "an acknowledged batch is lost"
        assert not removed & there.keys(), "a removed batch is back"
        assert len(there.keys() - added) <= 1, "at most the batch under way was not acknowledged"
        check(reader, there.total())
        reader.close()
        added |= there.keys()
        removed |= unsure - there.keys()
    assert len(added) > times
    return there.total()
