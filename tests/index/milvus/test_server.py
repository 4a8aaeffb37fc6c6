"""Collections on a server. The server is Milvus Lite's own, which speaks the same protocol."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, directions, entry
from tests.index.support import batch

from vse.errors import InputError, VSEError
from vse.index.milvus import MilvusCollection
from vse.index.milvus.tables import About, Tables, create_tables
from vse.index.open import collection_exists
from vse.index.scan.exclude import ScanRules, rules_of, with_rules

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


@pytest.mark.parametrize("moment", ["before", "after"])
def test_creator_that_is_late_opens_the_collection_of_the_faster_one(
    address: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Whether it made its tables already or not, it drops nothing but these; for another model it is refused."""
    make, faster = Tables.make, list[MilvusCollection]()

    def late(self: Tables, *given: object) -> None:
        if moment == "after":
            make(self, *given)  # type: ignore[arg-type]
        if not faster:
            with monkeypatch.context() as patch:
                patch.setattr(Tables, "make", make)
                faster.append(create(address))
                faster[0].add(batch(VECTORS))
        if moment == "before":
            make(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Tables, "make", late)
    with create(address) as second:
        assert second.info().files == len(VECTORS)
        second.add([entry("other.jpg", VECTORS[0])])
        assert faster[0].info().files == len(VECTORS) + 1
        assert sorted(second.tables.connection.names()) == sorted(faster[0].tables.names())
        faster.pop().close()
        monkeypatch.setattr(Tables, "make", make)
        with pytest.raises(InputError, match="is already a collection"):
            create(address)
    with create(address + "2") as third:
        found = create_tables(third.tables.connection, About("x", 3, third.about.options), {})
        assert (found.base, found.about) == (third.tables.base, third.about)


CREATING = """
    import sys
    from tests.index.examples import DIMENSIONS, VECTORS
    from tests.index.support import batch
    from vse.errors import InputError
    from vse.index.milvus import MilvusCollection

    print("ready", flush=True)
    sys.stdin.readline()
    try:
        writer = MilvusCollection.create(sys.argv[1], model="m", model_source="s", dimensions=DIMENSIONS)
    except InputError:  # the other one was much faster
        writer = MilvusCollection.open(sys.argv[1], write=True)
    with writer:
        writer.add(batch(VECTORS, f"{sys.argv[2]}/"))
    """


@pytest.mark.slow
def test_processes_that_create_a_milvus_collection_together_share_it(address: str) -> None:
    """What each of them was told to be added is there."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CREATING), address, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for name in ("first", "second")
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate() and process.returncode for process in processes] == [0, 0]
    with MilvusCollection.open(address, write=True) as writer:
        assert writer.info().files == 2 * len(VECTORS)
        assert len(writer.tables.connection.names()) == 3


def test_milvus_writers_keep_the_rules_of_each_others_folders(address: str) -> None:
    """Two writers record rules for different folders at the same time; an upgrade and a reader see both."""
    with create(address) as first, MilvusCollection.open(address, write=True) as second:
        before = [each.settings() for each in (first, second)]
        first.set_settings(with_rules(before[0], "/a", ScanRules(("*.png",))))
        second.set_settings(with_rules(before[1], "/b", ScanRules(follow_links=True)))
        rules = {"/a": ScanRules(("*.png",)), "/b": ScanRules(follow_links=True)}
        assert {root: rules_of(first.settings(), root) for root in rules} == rules
        second.set_settings(with_rules(second.settings(), "/a", ScanRules()))
        assert first.settings()["folders"].keys() == {"/b"}
        second.tables.put({"settings": '{"x": 1, "folders": {"/c": {"ocr": true}}}'})  # as they were recorded first
        first.set_settings({**first.settings(), "y": 2})
        found = second.settings()
        assert (found["x"], found["y"], sorted(found["folders"])) == (1, 2, ["/b", "/c"])
        with second.new_generation(model="new", model_source="s", dimensions=DIMENSIONS) as new:
            new.commit()
    with MilvusCollection.open(address) as reader:
        assert reader.settings() == found


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


WRITING = """
    import sys
    from tests.index.examples import VECTORS
    from tests.index.support import batch
    from vse.index.milvus import MilvusCollection

    with MilvusCollection.open(sys.argv[1], write=True) as writer:
        print("open", flush=True)
        for number in range(int(sys.argv[2]), int(sys.argv[3])):
            writer.add(batch(VECTORS, f"{number:03}/"))
            print("added", number, flush=True)
    """


@pytest.mark.slow
def test_concurrent_milvus_writers_converge_when_one_is_killed(address: str) -> None:
    """Two processes write overlapping files, one is killed: what either was told is there, each file once."""
    create(address).close()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITING), address, str(begin), str(end)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for begin, end in ((0, 12), (6, 100_000))
    ]  # fmt: skip
    first, second = processes
    assert first.stdout is not None
    assert second.stdout is not None
    told = [line.split() for line in first.stdout]
    assert first.wait() == 0
    for line in second.stdout:
        told.append(line.split())
        if told[-1] == ["added", "8"]:
            break
    second.kill()
    told += [line.split() for line in second.stdout if line.endswith("\n")]
    second.wait()
    for process in processes:
        assert process.stdout is not None
        process.stdout.close()
    numbers = {int(words[1]) for words in told if words[0] == "added"}
    assert {*range(12)} <= numbers
    with MilvusCollection.open(address, write=True) as writer:
        found = {int(file.path.split("/")[0]) for file in writer.files()}
        assert numbers <= found <= {*numbers, max(numbers) + 1}
        last = max(numbers) + 1  # of which captions may be there without their files
        writer.add(batch(VECTORS, f"{last:03}/"))  # the run that was killed is repeated
        assert writer.info().files == writer.info().items == len(found | {last}) * len(VECTORS)
        assert writer.info().captions == writer.info().files
        assert len(writer.search(QUERIES[0], 10**5, exact=True).ids) == writer.info().items


def test_concurrent_milvus_writers_keep_the_last_version(address: str) -> None:
    """Two writers replace the same file at the same time: both end with the later one, and other files stay."""
    with create(address) as first, MilvusCollection.open(address, write=True) as second:
        first.add(batch(VECTORS))
        writing = second._writer
        assert writing is not None
        keep, late = writing._keep_latest, []
        writing._keep_latest = lambda places: late.append(list(places)) or 0  # type: ignore[func-returns-value, method-assign]
        second.add([entry("00000.jpg", VECTORS[1], digest="second")])
        first_writing = first._writer
        assert first_writing is not None
        first_writing._keep_latest = lambda places: late.append(list(places)) or 0  # type: ignore[func-returns-value, method-assign]
        first.add([entry("00000.jpg", VECTORS[2], digest="first")])
        assert {file.path: file.digest for file in second.files()}["00000.jpg"] == "first"
        keep(late[0])
        keep(late[1])
        for each in (first, second):
            assert sorted({file.digest for file in each.files()}) == ["d", "first"]
            assert each.info().files == len(each.search(QUERIES[0], 100).ids) == len(VECTORS)
        first.remove([("/photos", "00001.jpg")])
        second.add([entry("other.jpg", VECTORS[1])])
        assert first.info().files == second.info().files == len(VECTORS)


def test_milvus_options_are_passed_and_recorded(address: str) -> None:
    """Shards, index and consistency of a new collection come from the address; opening it needs none of them."""
    options = "?num_shards=2&index_type=IVF_FLAT&nlist=4&nprobe=4&consistency_level=Bounded"
    with create(address + options) as writer:
        assert writer.info().where == address
        writer.add(batch(VECTORS))
        with writer.tables.connection.using() as client:
            assert client.describe_index("photos", "vector")["index_type"] == "IVF_FLAT"
    with MilvusCollection.open(address) as reader:
        assert reader.about.options["consistency_level"] == "Bounded"
        assert reader.search(VECTORS[3], 1).scores[0] > 0.999
        with reader.tables.connection.using() as client:
            assert client.describe_collection("photos")["collection_name"].startswith("photos_g1_"), "others can use it"


def test_a_server_that_is_lost_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """For every operation on an open collection, without other output; closing is harmless."""
    from vse.index.milvus import connection as calls

    running, database, port = server.start_server_in_thread(str(tmp_path / "data"))
    collection = create(f"milvus+http://127.0.0.1:{port}/photos")
    running.stop(grace=0).wait()
    database.close()
    monkeypatch.setattr(calls, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(calls, "CALL_SECONDS", 0.5)
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


def test_import_resumes_when_the_milvus_server_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in the middle of an import; on the restarted server the same import adds the rest, and ids stay."""
    from vse.index import import_embeddings, stream_items
    from vse.index.milvus import connection as calls
    from vse.index.milvus.tables import Tables
    from vse.index.transfer import importing

    np.save(tmp_path / "v.npy", directions(20, DIMENSIONS, seed=3))
    running, database, port = server.start_server_in_thread(str(tmp_path / "data"))
    address = f"milvus+http://127.0.0.1:{port}/photos"
    monkeypatch.setattr(importing, "BATCH", 5)
    upsert, written = Tables.upsert, []

    def lost(self: Tables, table: str, rows: list[dict[str, object]]) -> None:
        written.extend(row["item"] for row in rows if table == "items")
        if len(written) > 10:
            running.stop(grace=0).wait()
            database.close()
        upsert(self, table, rows)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "upsert", lost)
        patch.setattr(calls, "ANSWER_SECONDS", 0.5)
        patch.setattr(calls, "CALL_SECONDS", 0.5)
        with pytest.raises(VSEError, match="/photos cannot be used") as caught:
            import_embeddings(address, [tmp_path / "v.npy"], model="m")
    assert "\n" not in str(caught.value)
    running, database, port = server.start_server_in_thread(str(tmp_path / "data"))
    address = f"milvus+http://127.0.0.1:{port}/photos"
    report = import_embeddings(address, [tmp_path / "v.npy"], model="m")
    assert (report.unchanged, report.added, report.info.items) == (10, 10, 20)
    with MilvusCollection.open(address) as reader:
        assert set(written[:10]) < {item.id for item, _ in stream_items(reader)}
    running.stop(grace=0)
    database.close()


def others(address: str, name: str) -> pymilvus.MilvusClient:
    """Return a client of somebody else, who stores a row in a Milvus collection of this name."""
    client = pymilvus.MilvusClient(uri=address.removeprefix("milvus+").rpartition("/")[0])
    client.create_collection(name, dimension=4, consistency_level="Strong")
    client.insert(name, [{"id": 1, "vector": [1.0, 0.0, 0.0, 0.0]}])
    return client


@pytest.mark.parametrize("name", ["photos", "photos_g1", "photos_g1_meta"])
def test_a_milvus_collection_of_somebody_else_is_never_dropped(address: str, name: str) -> None:
    """Creating a collection of that name fails, and creates nothing."""
    client = others(address, name)
    assert not collection_exists(address)
    with pytest.raises(InputError, match=f"^{name} at .* is a Milvus collection of something else: choose another"):
        create(address)
    assert client.list_collections() == [name]
    assert len(client.query(name, filter="id >= 0")) == 1
    client.close()


@pytest.mark.parametrize("name", ["photos_g2", "photos_g2_meta"])
def test_an_upgrade_drops_nothing_of_somebody_else(address: str, name: str) -> None:
    """What is in the way of the next generation is named."""
    with create(address) as writer:
        writer.add(batch(VECTORS))
    client = others(address, name)
    options = {"model": "new", "model_source": "s", "dimensions": DIMENSIONS}
    with MilvusCollection.open(address, write=True) as writer:
        assert writer.unfinished() is None
        with pytest.raises(InputError, match=f"^{name} at .* of something else: rename or drop it"):
            writer.new_generation(**options)
    MilvusCollection.open(address, write=True).close()
    assert len(client.query(name, filter="id >= 0")) == 1
    client.close()


def test_an_upgrade_leaves_other_collections_alone(address: str) -> None:
    """Even those with the same prefix; names that parts of collections use are refused."""
    others = [address + "2", address + "_gallery"]
    for each in (address, *others):
        with create(each) as writer:
            writer.add(batch(VECTORS))
    for model in ("new",):
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
        assert (reader.info().generation, len(list(reader.files()))) == (2, 3)
