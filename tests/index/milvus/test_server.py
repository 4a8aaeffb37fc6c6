"""Collections on a server. The server is Milvus Lite's own, which speaks the same protocol."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, entry
from tests.index.support import batch

from vse.errors import InputError, VSEError
from vse.index.milvus import MilvusCollection
from vse.index.open import collection_exists

pymilvus = pytest.importorskip("pymilvus")
server = pytest.importorskip("milvus_lite.adapter.grpc.server")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    running, database, port = server.start_server_in_thread(str(tmp_path / "data"))
    yield f"milvus+http://127.0.0.1:{port}/photos"
    running.stop(grace=0)
    database.close()


def create(address: str) -> MilvusCollection:
    return MilvusCollection.create(address, model="m", model_source="s", dimensions=DIMENSIONS)


def test_names_are_collections_of_their_own(address: str) -> None:
    """Two names on one server, even if one is a prefix of the other; an unknown name is reported."""
    with create(address) as first, create(address + "2") as second:
        first.add(batch(VECTORS))
        second.add(batch(VECTORS[:2]))
        assert (first.info().files, second.info().files) == (len(VECTORS), 2)
        assert (first.info().where, first.info().backend) == (address, "milvus")
        assert not first.search(QUERIES[0], 1).exact, "a server's index is approximate unless asked otherwise"
    with pytest.raises(InputError, match="is not a collection"):
        MilvusCollection.open(address + "3")
    with pytest.raises(InputError, match="is already a collection"):
        create(address)


def test_a_reader_in_another_process_follows(address: str) -> None:
    """Each search sees what was added before it."""
    script = """
        import sys
        from tests.index.examples import QUERIES
        from vse.index.milvus import MilvusCollection

        with MilvusCollection.open(sys.argv[1]) as reader:
            for _ in range(3):
                print(len(reader.search(QUERIES[0], 100).ids), flush=True)
                sys.stdin.readline()
        """
    with create(address) as writer:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            assert process.stdout.readline() == f"{number}\n"
            writer.add([entry(f"{number}.jpg", VECTORS[number])])
            process.stdin.write("\n")
            process.stdin.flush()
        process.stdin.close()
        process.stdout.close()
        assert process.wait() == 0


def test_the_last_writer_holds_the_collection(address: str) -> None:
    """Opening for writing takes over; the previous writer fails at its next change, and can still read."""
    with create(address) as first:
        first.add(batch(VECTORS))
        with MilvusCollection.open(address, write=True) as second:
            with pytest.raises(VSEError, match="opened for writing elsewhere") as caught:
                first.remove([("/photos", "00000.jpg")])
            assert "\n" not in str(caught.value)
            second.add([entry("more.jpg", VECTORS[0])])
            assert first.info().files == len(first.search(QUERIES[0], 100).ids) == len(VECTORS) + 1


def test_takeover_during_change_is_withdrawn(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous writer notices at its last check, and withdraws what it had written."""
    from vse.index.milvus.tables import Tables

    with create(address) as first:
        first.add(batch(VECTORS))
        before = list(first.files())
        rewrite, others = Tables.rewrite, []

        def rewrite_and_lose(self: Tables, table: str, rows: list[dict[str, object]]) -> None:
            rewrite(self, table, rows)  # type: ignore[arg-type]
            if table == "captions" and not others:
                others.append(None)
                others[0] = MilvusCollection.open(address, write=True)  # type: ignore[call-overload]

        with monkeypatch.context() as patch:
            patch.setattr(Tables, "rewrite", rewrite_and_lose)
            with pytest.raises(VSEError, match="opened for writing elsewhere"):
                first.add([entry("00000.jpg", VECTORS[1], digest="new"), entry("more.jpg", VECTORS[0])])
        second = others[0]
        assert list(second.files()) == before
        assert len(second.search(QUERIES[0], 100).ids) == len(second.search_captions(QUERIES[0], 100)) == len(before)
        second.add([entry("more.jpg", VECTORS[0])])
        assert second.info().files == len(list(second.files())) == len(before) + 1
        second.close()


def test_a_server_that_is_lost_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """For every operation on an open collection, without other output; closing is harmless."""
    from vse.index.milvus import tables as ledger

    running, database, port = server.start_server_in_thread(str(tmp_path / "data"))
    collection = create(f"milvus+http://127.0.0.1:{port}/photos")
    running.stop(grace=0).wait()
    database.close()
    monkeypatch.setattr(ledger, "ANSWER_SECONDS", 0.5)
    for work in (
        lambda: collection.search(QUERIES[0], 5),
        lambda: collection.add(batch(VECTORS)),
        lambda: list(collection.files()),
        collection.info,
    ):
        with pytest.raises(VSEError, match="/photos cannot be used") as caught:
            work()  # type: ignore[no-untyped-call]
        assert "\n" not in str(caught.value)
    collection.close()
    printed = capfd.readouterr()
    assert printed.out == ""
    assert all("chttp2_transport" in line for line in printed.err.splitlines()), "only gRPC may log that it was left"


def test_takeover_during_upgrade_stops_old_writer(address: str) -> None:
    """The new writer may resume it; the previous one can no longer fill, commit or discard it."""
    with create(address) as first:
        first.add(batch(VECTORS))
        new = first.new_generation(model="new", model_source="s", dimensions=DIMENSIONS)
        new.add(batch(VECTORS[:2]))
        with MilvusCollection.open(address, write=True) as second:
            for work in (lambda: new.add(batch(VECTORS)), new.commit, new.discard):
                with pytest.raises(VSEError, match="opened for writing elsewhere"):
                    work()
            again = second.new_generation(model="new", model_source="s", dimensions=DIMENSIONS)
            assert again.info().files == 2
            again.add(batch(VECTORS))
            again.commit()
        new.close()


def others(address: str, name: str) -> pymilvus.MilvusClient:
    """Return a client of somebody else, who stores a row in a Milvus collection of this name."""
    client = pymilvus.MilvusClient(uri=address.removeprefix("milvus+").rpartition("/")[0])
    client.create_collection(name, dimension=4, consistency_level="Strong")
    client.insert(name, [{"id": 1, "vector": [1.0, 0.0, 0.0, 0.0]}])
    return client


@pytest.mark.parametrize("name", ["photos", "photos_captions", "photos_meta", "photos_g2"])
def test_a_milvus_collection_of_somebody_else_is_never_dropped(address: str, name: str) -> None:
    """Creating a collection of that name fails, and creates nothing."""
    client = others(address, name)
    assert not collection_exists(address)
    with pytest.raises(InputError, match=f"^{name} at .* is a Milvus collection of something else: choose another"):
        create(address)
    assert client.list_collections() == [name]
    assert len(client.query(name, filter="id >= 0")) == 1
    client.close()


@pytest.mark.parametrize("name", ["photos_g1", "photos_g2", "photos_g2_meta"])
def test_an_upgrade_drops_nothing_of_somebody_else(address: str, name: str) -> None:
    """What is in the way of the next generation is named; what only looks like an old one is kept."""
    with create(address) as writer:
        writer.add(batch(VECTORS))
    client = others(address, name)
    options = {"model": "new", "model_source": "s", "dimensions": DIMENSIONS}
    with MilvusCollection.open(address, write=True) as writer:
        if name == "photos_g1":
            writer.new_generation(**options).commit()
        else:
            assert writer.unfinished() is None
            with pytest.raises(InputError, match=f"^{name} at .* of something else: rename or drop it"):
                writer.new_generation(**options)
    MilvusCollection.open(address, write=True).close()
    assert len(client.query(name, filter="id >= 0")) == 1
    client.close()


def test_an_upgrade_leaves_other_collections_alone(address: str) -> None:
    """Even those with the same prefix; names that parts of collections use are refused."""
    others = [address + "2", address + "_gallery", address.removesuffix("photos") + "my_photos"]
    for each in (address, *others):
        with create(each) as writer:
            writer.add(batch(VECTORS))
    for model in ("new", "newer"):
        with MilvusCollection.open(address, write=True) as writer:
            new = writer.new_generation(model=model, model_source="s", dimensions=DIMENSIONS)
            new.add(batch(VECTORS[:3]))
            new.commit()
    MilvusCollection.open(address, write=True).close()
    for each in others:
        with MilvusCollection.open(each, write=True, model="m") as writer:
            assert writer.info().files == len(writer.search(QUERIES[0], 100).ids) == len(VECTORS)
    for part in ("_captions", "_meta", "_g2", "_g3"):
        with pytest.raises(InputError, match=f"'photos{part}': expected a name that does not end in"):
            create(address + part)
    with MilvusCollection.open(address) as reader:
        assert (reader.info().generation, len(list(reader.files()))) == (3, 3)
