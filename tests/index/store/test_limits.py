"""Full disks, read-only folders, other writers, wrong folders: a one-line error each, and nothing is lost."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.index.examples import QUERIES, VECTORS
from tests.index.support import batch, cache, create, database

from vse.errors import InputError, VSEError
from vse.index.store import EmbeddedCollection

NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "collection"
    with create(place) as writer:
        writer.add(batch(VECTORS))
    return place


def run(script: str, *arguments: object) -> str:
    """Return the output of a script run in another process."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits on the size of files")
def test_a_full_disk_changes_nothing(folder: Path) -> None:
    """A batch that does not fit fails with one line and changes nothing; adding works once there is space."""
    said = run(
        """
        import resource, sys
        from tests.index.examples import VECTORS, directions
        from tests.index.support import batch
        from vse.errors import VSEError
        from vse.index.store import EmbeddedCollection

        collection = EmbeddedCollection.open(sys.argv[1], write=True)
        before = list(collection.files())
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        for room in (5_000, 50_000, 200_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
            try:
                collection.add(batch(directions(5_000), "big"))
            except VSEError as error:
                assert "\\n" not in str(error), error
                print(type(error).__name__, "nothing was changed" in str(error))
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            assert list(collection.files()) == before
            assert len(collection.search(VECTORS[0], 100).ids) == len(before)
            assert collection.verify().ok
        collection.add(batch(VECTORS[:1], "later"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
        collection.close()  # the cache does not fit: it stays stale
        """,
        folder,
    )
    assert said.splitlines() == ["VSEError True"] * 3
    with EmbeddedCollection.open(folder) as reader:
        assert reader.info().files == len(VECTORS) + 1
        assert len(reader.search(QUERIES[0], 100).ids) == len(VECTORS) + 1
        assert reader.verify().ok


@pytest.fixture
def shut_folder() -> Iterator[Path]:
    """Yield a closed collection that everybody can read and nobody can write, in a folder that everybody can reach."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "collection"
        with create(folder) as writer:
            writer.add(batch(VECTORS))
        allow(folder, write=False)
        yield folder
        allow(folder, write=True)


def allow(folder: Path, *, write: bool) -> None:
    """Let everybody read ``folder``, and its owner write if ``write``."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod((0o555 if path.is_dir() else 0o444) | (0o200 if write else 0))


def as_nobody(work: Callable[[], None]) -> None:
    """Run ``work`` in a process without privileges."""
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            work()
        except BaseException as error:  # noqa: BLE001 - reported to the parent by the exit code
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_a_folder_that_may_not_be_written_is_searched(shut_folder: Path) -> None:
    """Readers need no write permission; opening for writing fails with one line."""
    import faiss  # noqa: F401 - before dropping privileges, which may hide where it is installed

    def work() -> None:
        with EmbeddedCollection.open(shut_folder) as reader:
            assert reader.search(VECTORS[3], 1).scores[0] > 0.999
            assert reader.search_captions(VECTORS[3], 1)[0][0] == "caption 3"
            assert len(list(reader.files())) == len(VECTORS)
            assert reader.verify().ok
        with pytest.raises(VSEError, match="cannot be written") as caught:
            EmbeddedCollection.open(shut_folder, write=True)
        assert "\n" not in str(caught.value)
        with pytest.raises(VSEError, match="cannot be used"):
            create(shut_folder / "inside")

    as_nobody(work)


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_a_reader_that_may_not_write_sees_what_changes(shut_folder: Path) -> None:
    """It opens the database as an immutable file without a log, and reopens it when the file or a log changes."""
    import faiss  # noqa: F401 - before dropping privileges, which may hide where it is installed

    asking, answering = os.pipe(), os.pipe()

    def work() -> None:
        with EmbeddedCollection.open(shut_folder) as reader:
            for _ in range(4):
                items = len(reader.search(VECTORS[0], 100).ids)
                assert (reader.info().items, len(reader.search_captions(VECTORS[0], 100))) == (items, items)
                assert reader.verify().ok
                os.write(answering[1], bytes([items]))
                os.read(asking[0], 1)

    def told() -> int:
        assert select.select([answering[0]], [], [], 60)[0], "the reader has failed"
        return os.read(answering[0], 1)[0]

    def again() -> int:
        os.write(asking[1], b"?")
        return told()

    pool = ThreadPoolExecutor(1)
    reading = pool.submit(as_nobody, work)
    try:
        assert told() == len(VECTORS)
        allow(shut_folder, write=True)
        writer = EmbeddedCollection.open(shut_folder, write=True)
        writer.add(batch(VECTORS[:1], "first"))
        allow(shut_folder, write=False)
        assert again() == len(VECTORS) + 1, "while the other writes, from its log"
        allow(shut_folder, write=True)
        writer.close()
        allow(shut_folder, write=False)
        assert again() == len(VECTORS) + 1
        allow(shut_folder, write=True)
        with EmbeddedCollection.open(shut_folder, write=True) as writer:
            writer.add(batch(VECTORS[:2], "second"))
        allow(shut_folder, write=False)
        assert again() == len(VECTORS) + 3
    finally:
        os.write(asking[1], b"????")  # let the reader exit, whatever it reported
        pool.shutdown()
    reading.result()
    for end in (*asking, *answering):
        os.close(end)


def test_another_process_that_writes_is_named(folder: Path) -> None:
    """The second writer is told who the first is, and changes nothing; once the first is gone it can write."""
    script = """
        import sys
        from vse.errors import VSEError
        from vse.index.store import EmbeddedCollection

        try:
            EmbeddedCollection.open(sys.argv[1], write=True).close()
        except VSEError as error:
            print(error)
        """
    with EmbeddedCollection.open(folder, write=True):
        assert f"is being written by process {os.getpid()}" in run(script, folder)
    assert run(script, folder) == ""


def test_store_refuses_other_model_with_upgrade_command(folder: Path) -> None:
    """Vectors of two models cannot be compared: the message names both models and the upgrade command."""
    EmbeddedCollection.open(folder, model="old").close()
    for write in (False, True):
        with pytest.raises(InputError, match=r"model old .*not of new.*vse collection upgrade .* --model"):
            EmbeddedCollection.open(folder, model="new", write=write)
    EmbeddedCollection.open(folder, write=True).close()  # the lock was released


def test_store_refuses_wrong_folders(folder: Path, tmp_path: Path) -> None:
    """Not a collection, already a collection, holding other files, or with a missing part."""
    with pytest.raises(InputError, match="is not a collection"):
        EmbeddedCollection.open(tmp_path / "nowhere", write=True)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(InputError, match="is already a collection"):
        create(folder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "photo.jpg").touch()
    with pytest.raises(InputError, match=r"holds 'photo\.jpg'"):
        create(tmp_path / "full")
    with pytest.raises(InputError, match="dimensions 0"):
        create(tmp_path / "new", dimensions=0)
    header = folder / "collection.json"
    sound = header.read_text()
    for spoilt in ("", "[]", '{"format": 9, "generation": 1}', '{"format": 1, "generation": 0}', "{}", "\xff"):
        header.write_text(spoilt, encoding="latin-1")
        with pytest.raises(InputError, match=r"collection\.json") as caught:
            EmbeddedCollection.open(folder)
        assert "\n" not in str(caught.value)
    header.write_text(sound)
    database(folder).write_bytes(b"no database at all" * 1000)
    with pytest.raises(VSEError, match="corrupt"):
        EmbeddedCollection.open(folder)
    database(folder).unlink()
    with pytest.raises(InputError, match="is missing"):
        EmbeddedCollection.open(folder, write=True)


def test_store_creation_can_be_repeated_after_kill(tmp_path: Path) -> None:
    """A process killed before ``collection.json`` was written leaves files that the next one cleans up."""
    folder = tmp_path / "collection"
    create(folder).close()
    (folder / "collection.json").unlink()
    with create(folder) as writer:
        writer.add(batch(VECTORS))
        assert writer.verify().ok


def test_searching_needs_no_heavy_library(folder: Path) -> None:
    """Opening and searching import numpy, SQLite and FAISS, and no other heavy library."""
    said = run(
        """
        import sys
        import numpy as np
        from vse.index.store import EmbeddedCollection

        with EmbeddedCollection.open(sys.argv[1]) as reader:
            assert len(reader.items(reader.search(np.eye(8, dtype=np.float32)[0], 3).ids.tolist())) == 3
        heavy = {"torch", "pydantic", "rich", "onnxruntime", "PIL", "scipy", "pandas", "tokenizers"}
        print(sorted(heavy & sys.modules.keys()))
        """,
        folder,
    )
    assert said == "[]\n"


def test_a_cache_that_grows_is_followed_by_open_readers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader switches to the cache that a working writer updates; results never change."""
    monkeypatch.setattr("vse.index.store.cache.FOLLOW_AFTER", 30)
    with EmbeddedCollection.open(folder, write=True) as writer, EmbeddedCollection.open(folder) as reader:
        for number in range(20):
            writer.add(batch(VECTORS[:5], f"{number}/"))
            writer.remove([("/photos", f"{number - 1}/00001.jpg"), ("/photos", f"{number - 5}/00002.jpg")])
            found, expected = reader.search(QUERIES[1], 500), writer.search(QUERIES[1], 500)
            np.testing.assert_array_equal(found.ids, expected.ids)
            assert len(found.ids) == writer.info().items
            assert reader.verify().ok
        known = reader._searchers["items"]._snapshot
        assert known is not None
        assert len(known.base.ids) > 50
    assert len(list(cache(folder).glob("items-*.vectors"))) == 1
