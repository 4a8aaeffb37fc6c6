"""PostgreSQL: addresses, damage, other owners, a lost server, the index, and writers that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.index.crash import kill_again_and_again
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, directions, entry, picture
from tests.index.postgres.server import address_of, named, running, start
from tests.index.support import batch

from vse.errors import InputError, VSEError
from vse.index import import_embeddings, stream_items
from vse.index.filters import Filter
from vse.index.open import backend_of, collection_exists, create_collection, open_collection, overview_of
from vse.index.postgres import PostgresAddress, PostgresCollection, collection, parse_address
from vse.index.postgres.reading import condition
from vse.index.postgres.schema import FORMAT
from vse.index.types import Collection, Entry, Moment
from vse.index.words import FIELDS, NAMED, RANKED


def create(address: str, dimensions: int = DIMENSIONS) -> PostgresCollection:
    return PostgresCollection.create(address, model="m", model_source="s", dimensions=dimensions)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return address_of(named(tmp_path))


def sql(address: str, statement: str) -> None:
    """Run a statement as somebody else would."""
    import psycopg

    with psycopg.connect(parse_address(address).uri, autocommit=True) as connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://ann@host:5433/d?collection=photos", PostgresAddress("postgresql://ann@host:5433/d", "photos")),
        ("postgres://host/media", PostgresAddress("postgresql://host/media")),
        ("postgresql:///media?host=/run/pg&collection=p_1", PostgresAddress("postgresql:///media?host=/run/pg", "p_1")),
        (
            "postgresql://host/m?sslmode=verify-full&collection=p&sslrootcert=/a%20b",
            PostgresAddress("postgresql://host/m?sslmode=verify-full&sslrootcert=/a%20b", "p"),
        ),
    ],
)  # fmt: skip
def test_postgres_address_round_trip(text: str, expected: PostgresAddress) -> None:
    """Options of libpq pass through; a printed address parses to the same address, and names its backend."""
    assert parse_address(text) == expected
    assert parse_address(str(expected)) == expected
    assert backend_of(text) == backend_of(str(expected)) == "postgresql"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://h/d?collection=", "postgresql://h/d?collection=a-b", "postgresql://h/d?collection=public",
        "postgresql://h/d?collection=pg_x", "postgresql://h/d?collection=1a", "postgresql://h/d?collection=A",
        "postgresql://h/d?index=flat", "postgresql:h/d", "photos.vse", "postgresql://h/d?collection=" + "a" * 64,
    ],
)  # fmt: skip
def test_invalid_postgres_address_is_named(text: str) -> None:
    """One line with the address and what was expected."""
    with pytest.raises(InputError, match="expected") as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://ann:secret@host/d", "postgresql://ann:s@secret/x@host/d", "postgresql://ann:?secret@host/d",
        "postgresql://host/d?password=secret", "postgresql://host/d?sslpassword=secret&sslmode=require",
    ],
)  # fmt: skip
def test_postgres_password_is_not_repeated(text: str) -> None:
    """Messages end up in logs: the one about a password in the address only says where it belongs."""
    for use in (parse_address, open_collection, collection_exists):
        with pytest.raises(InputError, match="PGPASSWORD") as caught:
            use(text)
        assert "secret" not in str(caught.value)


def test_no_command_prints_a_postgres_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even one that fails for another reason."""
    from vse.cli.main import main

    where = "postgresql://ann:secret@host/d"
    for arguments in (
        ("search", where, "dog"), ("index", str(tmp_path), "--into", where), ("collection", "info", where),
        ("collection", "verify", where), ("collection", "upgrade", where, "--model", "photo"), ("serve", where),
    ):  # fmt: skip
        assert main(list(arguments)) != 0
        printed = capsys.readouterr()
        assert "PGPASSWORD" in printed.err
        assert "secret" not in printed.out + printed.err


def test_unreachable_postgres_is_one_line(address: str, tmp_path: Path) -> None:
    """A missing server, database, user option or collection, and an option that libpq does not know."""
    server = parse_address(address).uri
    for wrong, said in (
        (f"postgresql:///d?host={tmp_path}", "cannot be used"),
        (server.replace("/postgres?", "/nowhere?"), '"nowhere" does not exist'),
        (f"{server}&colour=red", "colour"),
        (address, "is not a collection: 'vse index' creates one"),
    ):
        with pytest.raises(VSEError, match=said) as caught:
            open_collection(wrong)
        assert "\n" not in str(caught.value)
    assert not collection_exists(address)


def test_postgres_without_pgvector_names_the_fix(address: str) -> None:
    """An administrator has to create the extension."""
    sql(address, "CREATE DATABASE plain")
    with pytest.raises(VSEError, match="an administrator has to run CREATE EXTENSION vector"):
        create(address.replace("/postgres?", "/plain?"))


def test_postgres_refuses_other_models_formats_and_owners(address: str) -> None:
    """Nothing is changed: neither a schema of somebody else, nor a collection of a newer version or another model."""
    name = parse_address(address).name
    sql(address, f"CREATE SCHEMA {name}; CREATE TABLE {name}.meta (note text)")
    assert not collection_exists(address)
    with pytest.raises(InputError, match=r"holds 'meta\w*' of something else: choose another name"):
        create(address)
    sql(address, f"DROP TABLE {name}.meta")
    with create(address) as made, pytest.raises(InputError, match="expected float32"):
        made.add([entry("a.jpg", directions(1, 5)[0])])
    with pytest.raises(InputError, match="already a collection"):
        create(address)
    with pytest.raises(InputError, match="holds embeddings of model m"):
        open_collection(address, model="other")
    with pytest.raises(InputError, match="PostgreSQL stores float32"):
        create_collection(address + "2", model="m", dimensions=8, storage="int8")
    sql(address, f"UPDATE {name}.meta SET format = 99")
    assert collection_exists(address)
    with pytest.raises(InputError, match=f"has format 99, expected {FORMAT}"):
        open_collection(address)
    for dimensions, where in ((20_000, address + "3"), (2_001, address + "3&index=hnsw")):
        with pytest.raises(InputError, match=f"dimensions {dimensions}: .* at most"):
            create(where, dimensions)


def test_names_are_parameters_in_postgres(address: str) -> None:
    """Names that look like SQL, long names and long words are stored, found and removed like others."""
    evil = "'); DROP TABLE items_g1; --%s{files}\\"
    long = "x" * 3000
    with create(address) as writer:
        for vector, name in zip(VECTORS, (evil, f"{long}/{long}.jpg"), strict=False):
            file = picture(f"{name}/a.jpg", root=f"/{name}", camera=name, captions=(name,), digest=name)
            writer.add([Entry(file, (Moment(vector),), vector[None])])
            where = Filter(root=file.root, folder=name, camera=name)
            assert [item.file for item in writer.recent(5, where=where)] == [file]
            assert writer.search(vector, 5, where=where).scores == pytest.approx([1])
            assert writer.search_captions(vector, 1)[0][0] == name
        assert [each.name for each in writer.facets().cameras] == sorted([evil, f"{long}/{long}.jpg"])
        assert writer.word_counts([long, "drop"]) == {long: 1, "drop": 1}
        assert writer.remove([(f"/{evil}", f"{evil}/a.jpg")]) == 1
    assert condition(None) == ("true", {})


def test_word_groups_cover_all_fields() -> None:
    """A field is searched by words with its weight: the columns of PostgreSQL know two."""
    from vse.index.postgres.schema import FACTORS, GROUPS

    assert sorted(field for group in GROUPS for field in group) == sorted(FIELDS)
    assert {field: factor for group, factor in zip(GROUPS, FACTORS, strict=False) for field in group} == RANKED
    assert GROUPS[0] == NAMED


def test_words_of_another_version_are_split_again(address: str) -> None:
    """The next writer does it; so a search by words finds what this version splits."""
    with create(address) as writer:
        writer.add([entry(f"{row}.jpg", VECTORS[row], captions=("a dog",)) for row in range(3)])
    name = parse_address(address).name
    sql(address, f"UPDATE {name}.generations SET words = 0; TRUNCATE {name}.words_g1")
    with PostgresCollection.open(address) as reader:
        assert reader.word_counts(["dog"]) == {"dog": 0}
        PostgresCollection.open(address, write=True).close()
        assert reader.word_counts(["dog"]) == {"dog": 3}


def test_approximate_index_in_postgres(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``index=hnsw`` is recorded; it answers searches without a filter, with exact scores, and follows changes."""
    monkeypatch.setattr(collection, "INDEX_FROM", 100)
    many = directions(400, seed=9)
    with create(f"{address}&index=hnsw") as writer:
        writer.add([entry(f"{row}.jpg", vector) for row, vector in enumerate(many[:300])])
        assert writer.search(QUERIES[0], 10).exact, "it is built later"
    with PostgresCollection.open(address, write=True) as writer:
        writer.add([entry(f"{row}.jpg", many[row]) for row in range(300, 400)])
        writer.remove([("/photos", "7.jpg")])
        found, exact = writer.search(QUERIES[0], 10), writer.search(QUERIES[0], 10, exact=True)
        assert (found.exact, exact.exact, writer.search(QUERIES[0], 257).exact) == (False, True, True)
        assert found.ids.tolist() == exact.ids.tolist(), "of 399 items a pool of 1000 misses none"
        assert found.scores.tolist() == exact.scores.tolist()
        np.testing.assert_array_equal(writer.search(QUERIES[0], 3).ids, found.ids[:3])
        assert writer.search(QUERIES[0], 10, where=Filter(kind="image")).exact


def test_readers_leave_old_postgres_generations(address: str) -> None:
    """After a switch the next writer drops the old tables; a reader of them is asked to open the collection again."""
    with create(address) as writer:
        writer.add(batch(VECTORS))
        writer.set_settings({"folders": {"a": 1}})
        reader, reading = open_collection(address), open_collection(address)
        assert overview_of(reader).bytes is None
        new = writer.new_generation(model="new", model_source="t", dimensions=5)
        new.add(batch(directions(3, 5)))
        unfinished = reader.unfinished()
        assert unfinished is not None
        assert (unfinished.model, unfinished.files, unfinished.generation) == ("new", 3, 2)
        new.commit()
    old = reading.files()
    next(old)
    open_collection(address, write=True).close()
    assert len(list(old)) == len(VECTORS) - 1, "a read that has begun is finished before the tables are dropped"
    with open_collection(address, write=True) as again:  # type: ignore[attr-defined]
        assert again.settings() == {"folders": {"a": 1}}
        assert again.info().files == 3
    for ask in (lambda: reader.search(QUERIES[0], 3), reader.info, lambda: list(reader.files())):
        with pytest.raises(VSEError, match="open it again"):
            ask()  # type: ignore[no-untyped-call]
    assert reader.superseded
    sql(address, f"DROP SCHEMA {parse_address(address).name} CASCADE")
    again = create(address)
    assert again.info().generation == 1
    assert reader.superseded
    for each in (reader, reading, again):
        each.close()


def check(reader: Collection, files: int) -> None:
    """Check that nothing is missing and nothing is left over, not even in the middle of a change."""
    info = reader.info()
    assert info.files == info.items == info.captions == files
    assert len(reader.search(QUERIES[0], 10**6).ids) == len(reader.search_captions(QUERIES[0], 10**6)) == files
    assert reader.word_counts(["caption"]) == {"caption": files}


def test_killed_postgres_writer_leaves_whole_batches(address: str) -> None:
    """The lock goes with the process; acknowledged batches are complete, others complete or absent."""
    create(address).close()
    kill_again_and_again(address, "", times=3, longest=0.2, check=check, batches=2)
    with PostgresCollection.open(address, write=True) as writer:
        writer.add(batch(VECTORS))


def test_postgres_writer_holds_the_lock_until_killed(address: str) -> None:
    """A second writer is refused while the first process lives, and let in when it is killed."""
    create(address).close()
    script = (
        "import sys, time; from vse.index.open import open_collection; "
        "held = open_collection(sys.argv[1], write=True); print('open', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, address], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(VSEError, match="is being written by another process"):
            open_collection(address, write=True)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    open_collection(address, write=True).close()


def test_import_resumes_when_the_postgres_server_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in the middle of an import; on the restarted server the same import adds the rest, and ids stay."""
    from vse.index.postgres.writing import Changes
    from vse.index.transfer import importing

    np.save(tmp_path / "v.npy", directions(20, DIMENSIONS, seed=3))
    own = named(tmp_path)
    folder = running().pgdata.parent / own
    server = start(folder)
    try:
        address = address_of("photos", server)
        monkeypatch.setattr(importing, "BATCH", 5)
        add, batches = Changes.add, []

        def lost(self: Changes, entries: list[Entry]) -> None:
            batches.append(len(entries))
            add(self, entries)
            if len(batches) == 3:
                server._stop()

        with monkeypatch.context() as patch:
            patch.setattr(Changes, "add", lost)
            with pytest.raises(VSEError, match="cannot be used") as caught:
                import_embeddings(address, [tmp_path / "v.npy"], model="m")
        assert "\n" not in str(caught.value)
        server.ensure_postgres_running()
        reader = open_collection(address)
        before = {item.file.path: item.id for item, _ in stream_items(reader)}
        server._stop()
        for _ in range(2):
            with pytest.raises(VSEError, match="cannot be used"):
                reader.info()
        server.ensure_postgres_running()
        report = import_embeddings(address, [tmp_path / "v.npy"], model="m")
        assert (report.unchanged, report.added, report.info.items) == (10, 10, 20)
        assert reader.info().items == 20, "a reader connects again"
        after = {item.file.path: item.id for item, _ in stream_items(reader)}
        assert len(before) == 10
        assert before.items() <= after.items()
        reader.close()
    finally:
        server.cleanup()
