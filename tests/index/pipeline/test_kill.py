"""After a kill or an interrupt, committed files are there and the next run resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
from tests.index.pipeline.support import ids_of, model, new_collection, save_picture

from vse.index.pipeline import index_folder
from vse.index.store import EmbeddedCollection

PICTURES = 120
CHILD = textwrap.dedent(
    """
    import sys
    from tests.index.pipeline.support import model
    from vse.index.store import EmbeddedCollection
    from vse.index.pipeline import index_folder, plan
    from vse.progress import SilentProgress

    plan.BLOCK = 5

    def tell(line):  # one write: threads must not mix their lines
        print(line + "\\n", end="", flush=True)

    class Telling(SilentProgress):
        def advance(self, steps=1, description=None):
            tell("encoded")

    class Collection(EmbeddedCollection):
        def add(self, entries):
            super().add(entries)
            tell(f"added {len(entries)}")

    collection = Collection(EmbeddedCollection.open(sys.argv[1], write=True).session)
    try:
        index_folder(
            collection, model(), sys.argv[2], batch_size=4, commit_files=int(sys.argv[3]), progress=Telling()
        )
    except KeyboardInterrupt:
        tell("interrupted")
    collection.close()
    """
)


@pytest.fixture
def root(tmp_path):
    for seed in range(PICTURES):
        save_picture(tmp_path / "photos", f"{seed:03}.png", seed)
    new_collection(tmp_path / "index.vse").close()
    return tmp_path / "photos"


def stop_after(root, lines, how, commit_files):
    """Send a signal after that many lines of output; return all lines until the process ended."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    arguments = [str(root.parent / "index.vse"), str(root), str(commit_files)]
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(how)
    said += process.stdout.readlines()
    process.stdout.close()
    process.wait()
    return [line.split() for line in said if line.endswith("\n")]


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 17, 60])
def test_killed_indexing_resumes(root, tmp_path, lines):
    """Every acknowledged file is intact; the next run encodes only the others."""
    said = stop_after(root, lines, signal.SIGKILL, commit_files=5)
    acknowledged = sum(int(words[1]) for words in said if words[0] == "added")
    with EmbeddedCollection.open(tmp_path / "index.vse", write=True) as collection:
        there = set(ids_of(collection))
        assert acknowledged <= len(there) < PICTURES
        assert collection.verify().ok
        report = index_folder(collection, model(), root)
        assert (report.new, report.unchanged) == (PICTURES - len(there), len(there))
        assert len(ids_of(collection)) == PICTURES


@pytest.mark.slow
def test_killed_metadata_update_resumes(root, tmp_path):
    """Files whose metadata was read before the kill are not read again, and all keep their ids."""
    with EmbeddedCollection.open(tmp_path / "index.vse", write=True) as collection:
        index_folder(collection, model(), root)
        whole, before = list(collection.files()), ids_of(collection)
        old = [replace(file, metadata_version=0) for file in whole]
        collection.move([((file.root, file.path), file) for file in old])
    stop_after(root, 17, signal.SIGKILL, commit_files=5)
    with EmbeddedCollection.open(tmp_path / "index.vse", write=True) as collection:
        done = sum(file.metadata_version > 0 for file in collection.files())
        assert 10 <= done < PICTURES
        assert collection.verify().ok
        report = index_folder(collection, model(), root)
        assert (report.touched, report.unchanged, report.images) == (PICTURES - done, done, 0)
        assert (list(collection.files()), ids_of(collection)) == (whole, before)


@pytest.mark.slow
def test_interrupted_indexing_commits(root, tmp_path):
    """An interrupt commits what was encoded, although no commit was due."""
    said = stop_after(root, 30, signal.SIGINT, commit_files=10_000)
    words = [each[0] for each in said]
    assert words[-1] == "interrupted"
    encoded, added = words.count("encoded"), sum(int(each[1]) for each in said if each[0] == "added")
    assert 30 <= encoded < PICTURES
    assert encoded - 4 <= added <= encoded + 4, "at most the batch under way is told otherwise"
    with EmbeddedCollection.open(tmp_path / "index.vse", write=True) as collection:
        report = index_folder(collection, model(), root)
        assert (report.new, report.unchanged) == (PICTURES - added, added)
