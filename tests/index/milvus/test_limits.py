"""Other models, wrong folders, other processes, unreachable servers: a one-line error each, and nothing is lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, directions, entry, picture
from tests.index.support import batch

from vse.errors import InputError, VSEError
from vse.index.filters import Filter
from vse.index.milvus import MilvusCollection
from vse.index.milvus.tables import Tables
from vse.index.types import Entry, Moment

pytest.importorskip("milvus_lite")


def create(folder: Path, **options: object) -> MilvusCollection:
    values = {"model": "old", "model_source": "models/old", "dimensions": DIMENSIONS, **options}
    return MilvusCollection.create(folder, **values)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "photos.db"
    with create(place) as writer:
        writer.add(batch(VECTORS))
    return place


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Yield a port that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def run(script: str, *arguments: object) -> str:
    """Return the output of a script run in another process."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("port", ["closed", pytest.param("silent", marks=pytest.mark.slow)])
def test_a_server_that_does_not_answer_is_told_within_seconds(port: str, silent_port: int) -> None:
    """One line that names the address, after a short timeout, and no other output."""
    script = """
        import sys, time
        from vse.errors import VSEError
        from vse.index.milvus import MilvusCollection

        begin = time.monotonic()
        try:
            MilvusCollection.open(sys.argv[1])
        except VSEError as error:
            print(time.monotonic() - begin < 10, error)
        """
    address = f"milvus+http://127.0.0.1:{silent_port if port == 'silent' else 9}/photos"
    (line,) = run(script, address).splitlines()
    assert line.startswith(f"True {address} cannot be used (")


def test_milvus_refuses_other_model(folder: Path) -> None:
    """Vectors of two models cannot be compared: the message names both, and the lock is released."""
    MilvusCollection.open(folder, model="old").close()
    for write in (False, True):
        with pytest.raises(InputError, match=r"model old \(models/old\), not of new: .*vse collection upgrade"):
            MilvusCollection.open(folder, model="new", write=write)
    MilvusCollection.open(folder, write=True).close()


def test_milvus_refuses_wrong_folders(folder: Path, tmp_path: Path) -> None:
    """Not a collection, already a collection, holding other files, or a file; nothing is created."""
    with pytest.raises(InputError, match="is not a collection"):
        MilvusCollection.open(tmp_path / "nowhere.db", write=True)
    assert not (tmp_path / "nowhere.db").exists()
    with pytest.raises(InputError, match="is already a collection"):
        create(folder)
    (tmp_path / "full.db").mkdir()
    (tmp_path / "full.db" / "photo.jpg").touch()
    with pytest.raises(InputError, match=r"holds 'photo\.jpg'"):
        create(tmp_path / "full.db")
    (tmp_path / "file.db").touch()
    with pytest.raises(InputError, match="is a file"):
        create(tmp_path / "file.db")
    with pytest.raises(InputError, match="is a file"):
        MilvusCollection.open(tmp_path / "file.db")
    with pytest.raises(InputError, match="dimensions 0"):
        create(tmp_path / "new.db", dimensions=0)
    with MilvusCollection.open(folder) as reader:
        assert reader.info().files == len(VECTORS)


def test_milvus_lite_refuses_second_process(folder: Path) -> None:
    """Another writer is named; a reader elsewhere learns that Milvus Lite serves one process. All exit cleanly."""
    script = """
        import sys
        from vse.errors import VSEError
        from vse.index.milvus import MilvusCollection

        for write in (False, True):
            try:
                with MilvusCollection.open(sys.argv[1], write=write) as collection:
                    print(collection.info().files)
            except VSEError as error:
                print(error)
        """
    with MilvusCollection.open(folder, write=True):
        reading, writing = run(script, folder).splitlines()
        assert "serves one process" in reading
        assert f"is being written by process {os.getpid()}" in writing
    assert run(script, folder).split() == [str(len(VECTORS))] * 2


def test_milvus_creation_can_be_repeated_after_kill(tmp_path: Path) -> None:
    """What a process created before it was killed, without an alias, is not a collection, and is rebuilt."""
    script = """
        import os, sys
        import pymilvus
        from vse.index.milvus import MilvusCollection

        pymilvus.MilvusClient.create_alias = lambda *_, **__: os._exit(9)
        MilvusCollection.create(sys.argv[1], model="m", model_source="s", dimensions=3)
        """
    place = tmp_path / "photos.db"
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(place)], check=False)
    with pytest.raises(InputError, match="is not a collection"):
        MilvusCollection.open(place)
    with create(place) as writer:
        writer.add(batch(VECTORS))
        assert len(writer.search(QUERIES[0], 10).ids) == len(VECTORS)


def test_milvus_refuses_values_beyond_its_limits(folder: Path) -> None:
    """Names, captions and numbers beyond its limits."""
    with MilvusCollection.open(folder, write=True) as writer:
        for bad in (
            picture("x" * 20_000),
            picture("long.jpg", captions=("a" * 70_000,)),
            picture("big.jpg", size=2**63),
            picture("half\ud800.jpg"),
        ):
            with pytest.raises(InputError) as caught:
                writer.add([entry("good.jpg", VECTORS[0]), Entry(bad, (Moment(VECTORS[0]),))])
            assert "\n" not in str(caught.value)
            with pytest.raises(InputError):
                writer.move([(("/photos", "00000.jpg"), bad)])
        assert len(list(writer.files())) == writer.info().files == len(VECTORS)


@pytest.mark.parametrize("step", ["upsert", "delete", "put"])
def test_failed_milvus_change_is_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Every file is there in its old or its new version; repeating the change completes it."""
    with MilvusCollection.open(folder, write=True) as writer, MilvusCollection.open(folder) as reader:
        before = {file.path: file.digest for file in reader.files()}

        def fail(*_: object) -> None:
            raise VSEError("the line is cut")

        new = [entry("00000.jpg", VECTORS[3], digest="new"), entry("more.jpg", VECTORS[4])]
        with monkeypatch.context() as patch:
            patch.setattr(Tables, step, fail)
            with pytest.raises(VSEError, match="cut"):
                writer.add(new)
        found = {file.path: file.digest for file in reader.files()}
        assert found in (before, {**before, "00000.jpg": "new", "more.jpg": "d"})
        writer.add(new)
        assert {file.path: file.digest for file in reader.files()} == {**before, "00000.jpg": "new", "more.jpg": "d"}
        assert reader.info().items == len(reader.search(QUERIES[0], 100).ids) == len(before) + 1
        assert len(reader.search_captions(QUERIES[0], 100)) == reader.info().captions == len(before) - 1


def test_hnsw_search_reports_inexact(tmp_path: Path) -> None:
    """Hits are scored exactly, fewer hits are a prefix of more; ``exact=True`` compares with every vector."""
    many = directions(1500, seed=9)
    with create(tmp_path / "photos.db", options={"index_type": "HNSW", "M": "24"}) as writer:
        writer.add([entry(f"{row}.jpg", vector, kind="image" if row else "video") for row, vector in enumerate(many)])
        scores = np.sort(many.astype(np.float64) @ QUERIES[0].astype(np.float64))[::-1]
        hits = writer.search(QUERIES[0], 50)
        assert not hits.exact
        np.testing.assert_allclose(hits.scores, scores[:50], atol=2e-6)
        np.testing.assert_array_equal(writer.search(QUERIES[0], 5).ids, hits.ids[:5])
        exact = writer.search(QUERIES[0], 50, exact=True)
        assert exact.exact
        np.testing.assert_allclose(exact.scores, scores[:50], atol=2e-6)
        alone = writer.search(QUERIES[0], 50, where=Filter(kind="video"))
        assert alone.exact
        assert len(alone.ids) == 1


def test_search_scans_when_ties_exceed_reply(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When equal scores do not fit one reply, every vector is compared here, and the order is unaffected."""
    from vse.index.milvus import reading as searching

    with MilvusCollection.open(folder, write=True) as writer:
        writer.add([entry(f"same{number}.jpg", VECTORS[0]) for number in range(100)])
        whole = writer.search(VECTORS[0], 1000)
        monkeypatch.setattr(searching, "MAX_ROWS", 40)
        for k in (3, 30, 1000):
            hits = writer.search(VECTORS[0], k)
            assert hits.exact
            np.testing.assert_array_equal(hits.ids, whole.ids[:k])
            np.testing.assert_array_equal(hits.scores, whole.scores[:k])
