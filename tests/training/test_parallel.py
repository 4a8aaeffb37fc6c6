"""Parallel runs: no worker outlives the process that started it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.training.support import tiny_values, write_pairs

PROGRAM = """
import json, sys
from pathlib import Path
from vse._util.strict import parse
from vse.training import Recipe
from vse.training.parallel import Run, train_several

if __name__ == "__main__":
    recipe = parse(Recipe, json.loads(sys.argv[1]), "test")
    train_several([Run(recipe, Path(sys.argv[2]) / name, name) for name in ("a", "b")], jobs=2)
"""


def workers(folder):
    """The processes that have a file of the runs open."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                names = [str(each.readlink()) for each in (process / "fd").iterdir()]
            except OSError:
                continue
            if any(str(folder) in name for name in names):
                found.add(int(process.name))
    return found


def until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_workers_end_with_their_parent(tmp_path):
    """Killed without a chance to say so, it leaves no process behind, and what was trained is in checkpoints."""
    data, runs, program = write_pairs(tmp_path / "data"), tmp_path / "runs", tmp_path / "program.py"
    program.write_text(PROGRAM)
    values = tiny_values(data, schedule={"epochs": 5000, "batch_size": 16})
    process = subprocess.Popen([sys.executable, str(program), json.dumps(values), str(runs)], stderr=subprocess.PIPE)
    try:
        until(lambda: len(list(runs.glob("*/checkpoint.json"))) == 2)
        assert len(workers(runs)) == 2
        process.send_signal(signal.SIGKILL)
        said = process.communicate(timeout=120)[1]  # it ends when no process is left that could say something
        assert not workers(runs)
        assert b"Traceback" not in said
    finally:
        process.kill()
    assert all(json.loads(path.read_text()) for path in runs.glob("*/checkpoint.json"))
