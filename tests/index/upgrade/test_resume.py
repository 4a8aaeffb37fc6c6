"""An interrupted upgrade resumes: nothing committed is encoded again, and nothing is stale."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time

import pytest
from tests.index.pipeline.support import ids_of, later, model, save_picture
from tests.index.support import database
from tests.index.upgrade.support import Counting, assert_like_indexing_anew, filled, other
from tests.inputs.video.clips import write_clip

from vse.convert.onnx_export import export_onnx
from vse.errors import VSEError
from vse.index.pipeline import index_folder
from vse.index.store import EmbeddedCollection
from vse.index.upgrade.run import upgrade_collection
from vse.progress import SilentProgress

PICTURES = 24


@pytest.fixture
def root(tmp_path):
    for seed in range(PICTURES):
        save_picture(tmp_path / "photos", f"{seed:02}.png", seed)
    (tmp_path / "photos" / "captions.csv").write_text("path,caption\n03.png,snow\n03.png,a dog\n")
    return tmp_path / "photos"


@pytest.fixture
def index(tmp_path, root):
    filled(tmp_path / "index.vse", root).close()
    return tmp_path / "index.vse"


class Interrupting(SilentProgress):
    """Raises KeyboardInterrupt after a number of encoded files."""

    def __init__(self, files):
        self._left = files

    def advance(self, steps=1, description=None):
        if description is not None and description.startswith("upgrading"):
            self._left -= steps
            if self._left <= 0:
                raise KeyboardInterrupt


def upgrade(index, encoder=None, **options):
    with EmbeddedCollection.open(index, write=True) as collection:
        return upgrade_collection(collection, encoder or other(), "other", **options)


def interrupted(index, files, encoder=None):
    """Interrupt an upgrade after ``files`` files; return how many the next generation holds."""
    with pytest.raises(KeyboardInterrupt):
        upgrade(index, encoder, batch_size=4, progress=Interrupting(files))
    return committed(index)


def committed(index):
    """Return the number of files in the next generation, read independently of the tested code."""
    if not database(index, 2).exists():
        return 0
    connection = sqlite3.connect(database(index, 2))
    try:
        return connection.execute("SELECT count(*) FROM files").fetchone()[0]
    except sqlite3.OperationalError:  # killed before the tables were created
        return 0
    finally:
        connection.close()


def test_an_interrupt_keeps_what_was_encoded(index, tmp_path):
    """Even if no commit was due; the next run encodes the rest, with the same result as a single run."""
    with EmbeddedCollection.open(index) as reader:
        before = ids_of(reader)
    kept = interrupted(index, 9)
    assert 8 <= kept < PICTURES
    counting = Counting(other())
    report = upgrade(index, counting)
    assert (report.encoded, report.resumed, counting.images) == (PICTURES - kept, kept, PICTURES - kept)
    with EmbeddedCollection.open(index, model=other().fingerprint()) as reader:
        assert ids_of(reader) == before
        assert_like_indexing_anew(reader, tmp_path / "anew.vse")


def test_the_collection_serves_and_changes_meanwhile(index):
    """Between two attempts the collection is intact with the old model, and writable."""
    kept = interrupted(index, 9)
    with EmbeddedCollection.open(index, write=True, model=model().fingerprint()) as collection:
        assert collection.verify().ok
        assert collection.info().generation == 1
        assert collection.info().files == PICTURES
        collection.rebuild()
    assert committed(index) == kept


def test_files_that_changed_between_two_attempts(index, root, tmp_path, monkeypatch):
    """Changed, touched, moved, swapped, deleted, new and recaptioned files, both indexed and not."""
    monkeypatch.setattr("vse.index.upgrade.encode.PAGE", 2)
    kept = interrupted(index, 16)
    assert kept >= 16
    later(save_picture(root, "00.png", 50))
    later(root / "01.png")
    (root / "02.png").rename(root / "moved.png")
    (root / "04.png").unlink()
    (root / "05.png").rename(root / "x.png")
    (root / "06.png").rename(root / "05.png")
    (root / "x.png").rename(root / "06.png")
    save_picture(root, "00-new.png", 51)
    write_clip(root / "07-new.mp4", seconds=8.0, rate=5)
    (root / "captions.csv").write_text("path,caption\n03.png,snow\n07.png,a dog runs\n")
    with EmbeddedCollection.open(index, write=True) as collection:
        index_folder(collection, model(), root)
        expected = ids_of(collection)
    later(save_picture(root, "08.png", 52))  # not indexed
    report = upgrade(index)
    assert report.resumed == kept - 9  # 00 to 08
    assert report.encoded + report.resumed == PICTURES + 1
    with EmbeddedCollection.open(index) as reader:
        found = ids_of(reader)
        del found["08.png"], expected["08.png"]
        assert found == expected
        assert_like_indexing_anew(reader, tmp_path / "anew.vse")


def test_files_that_were_forgotten_between_two_attempts(index, root):
    """Files removed from the collection but still on disk do not come back."""
    interrupted(index, 9)
    with EmbeddedCollection.open(index, write=True) as collection:
        collection.remove([(str(root), "01.png"), (str(root), "20.png")])
    upgrade(index)
    with EmbeddedCollection.open(index) as reader:
        assert {"00.png", "01.png", "20.png"} & set(ids_of(reader)) == {"00.png"}
        assert reader.info().files == PICTURES - 2


def test_files_that_left_with_their_disk(index, root):
    """Encoded files of a folder that is now absent are dropped with the rest of it."""
    save_picture(root.parent / "more", "m.png", 60)
    with EmbeddedCollection.open(index, write=True) as collection:
        index_folder(collection, model(), root.parent / "more")
    interrupted(index, 16)
    root.rename(root.parent / "away")
    report = upgrade(index, drop_missing=True)
    assert (report.left_out, report.resumed + report.encoded) == (PICTURES, 1)
    with EmbeddedCollection.open(index) as reader:
        assert [file.path for file in reader.files()] == ["m.png"]


def test_upgrade_to_another_model_starts_over(index):
    """An upgrade to another model starts over, and so does a later one to the first."""
    assert interrupted(index, 9) > 0
    third = other(seed=2)
    counting = Counting(third)
    interrupted(index, 5, counting)
    assert upgrade(index, third).resumed < 9
    with EmbeddedCollection.open(index, write=True, model=third.fingerprint()) as collection:
        assert collection.info().files == PICTURES
        report = upgrade_collection(collection, model(), "first")
    assert (report.encoded, report.resumed, report.info.generation) == (PICTURES, 0, 3)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no limits on the size of files")
def test_upgrade_survives_full_disk(index, tmp_path):
    """A full disk while adding or switching is a one-line error; the old embeddings serve, and the upgrade resumes."""
    script = """
        import resource, sys
        from tests.index.pipeline.support import model
        from tests.index.upgrade.support import other
        from vse.errors import VSEError
        from vse.index.store import EmbeddedCollection
        from vse.index.store.cache import VectorCache
        from vse.index.upgrade import upgrade_collection

        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

        def fill(room):
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))

        def attempt(**options):
            with EmbeddedCollection.open(sys.argv[1], write=True, model=model().fingerprint()) as collection:
                try:
                    upgrade_collection(collection, other(), "other", **options)
                except VSEError as error:
                    fill(hard)
                    assert "\\n" not in str(error), error
                    print(error, flush=True)
            with EmbeddedCollection.open(sys.argv[1]) as reader:
                assert reader.verify().ok
                assert reader.info().generation == 1

        fill(150_000)
        attempt(batch_size=2, commit_files=2)
        rewrite = VectorCache.rewrite
        VectorCache.rewrite = lambda *arguments: (fill(100), rewrite(*arguments))[1]
        attempt()
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(index)],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    adding, switching = done.stdout.splitlines()
    assert "cannot be used" in adding
    assert "the old generation still serves" in switching
    assert (upgrade(index).resumed, committed(index)) == (PICTURES, PICTURES)
    with EmbeddedCollection.open(index) as reader:
        assert_like_indexing_anew(reader, tmp_path / "anew.vse")


def test_a_disk_that_is_full_from_the_start(index, monkeypatch):
    """A system error while opening the next generation does not discard what it holds."""
    kept = interrupted(index, 9)

    def full(*arguments):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("vse.index.store.generations.set_meta", full)
        with pytest.raises(VSEError, match="disk is full"):
            upgrade(index)
    assert committed(index) == kept


CHILD = textwrap.dedent(
    """
    import sys
    import vse
    from vse.index.store import EmbeddedCollection, generations
    from vse.index.upgrade import upgrade_collection

    def tell(line):  # one write: threads must not mix their lines
        print(line + "\\n", end="", flush=True)

    class Telling(generations.NewGeneration):
        def add(self, entries):
            super().add(entries)
            tell(f"added {len(entries)}")

        def commit(self, **options):
            tell("switching")
            super().commit(**options)

    class Counting:
        def __init__(self, model):
            self._model = model

        def __getattr__(self, name):
            return getattr(self._model, name)

        def embed_images(self, batch, lengths=None):
            tell(f"encoding {len(batch)}")
            return self._model.embed_images(batch, lengths)

    generations.NewGeneration = Telling
    model = Counting(vse.load(sys.argv[2]))
    with EmbeddedCollection.open(sys.argv[1], write=True) as collection:
        upgrade_collection(collection, model, sys.argv[2], batch_size=2, commit_files=3)
    """
)


def killed(index, exported, lines, delay):
    """Kill the process ``delay`` seconds after ``lines`` lines; return its output and whether it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(index), str(exported)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    said += process.stdout.readlines()
    process.stdout.close()
    return [line.split() for line in said if line.endswith("\n")], process.wait() != 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again(index, tmp_path, seed):
    """Committed files are never encoded again, the old embeddings are served until the switch, and ids stay."""
    exported = tmp_path / "other"
    export_onnx(other(), exported)
    chance = random.Random(seed)
    with EmbeddedCollection.open(index) as reader:
        before = ids_of(reader)
    was_killed, attempts = True, 0
    while was_killed:
        kept = committed(index)
        lines = chance.randrange(1, 14) if attempts < 6 else 10_000
        if attempts:
            said, was_killed = killed(index, exported, lines, chance.random() * 0.03)
        else:  # at once, so that there is something left to resume
            said, was_killed = killed(index, exported, 1, 0.0)
        attempts += 1
        assert attempts < 10, "it is not killed any more, and does not come to its end"
        encoded = sum(int(words[1]) for words in said if words[0] == "encoding")
        added = sum(int(words[1]) for words in said if words[0] == "added")
        assert encoded <= PICTURES - kept, "a file that was committed was encoded again"
        if EmbeddedCollection.open(index).info().generation == 2:
            break
        assert kept + added <= committed(index) <= kept + encoded
        with EmbeddedCollection.open(index) as reader:
            assert reader.info().files == PICTURES
            assert reader.verify().ok
    assert attempts > 1
    with EmbeddedCollection.open(index, write=True, model=other().fingerprint()) as collection:
        assert ids_of(collection) == before
        assert collection.verify().ok
        assert not database(index, 1).exists()
