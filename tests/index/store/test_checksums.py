"""Damage on disk never changes an answer: the cache has checksums, and commits are counted outside the log."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import QUERIES, VECTORS, directions
from tests.index.support import batch, cache, create, database

from vse.cli.main import main
from vse.errors import VSEError
from vse.index.filters import Filter
from vse.index.store import EmbeddedCollection, approximate, checksums, collection, scan, session
from vse.index.store import database as database_module
from vse.index.store.checksums import BLOCK_BYTES, extended, rows_per_block, sums_of, weights

COUNT, DIMENSIONS = 700, 24
ROWS = directions(COUNT, seed=3, dimensions=DIMENSIONS)
QUERY = directions(1, seed=4, dimensions=DIMENSIONS)[0]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed collection whose cache has several blocks, purged rows and appended ones."""
    place = tmp_path_factory.mktemp("sound") / "collection"
    with create(place, DIMENSIONS) as writer:
        writer.add(batch(ROWS))
    with EmbeddedCollection.open(place, write=True) as writer:
        writer.remove([("/photos", f"{row:05}.jpg") for row in (3, 171, 172, 699)])
        writer.add(batch(ROWS[:5], "late"))
    return place


def answers(folder: Path) -> list[object]:
    with EmbeddedCollection.open(folder) as reader:
        hits = reader.search(QUERY, 20)
        return [hits.ids.tolist(), hits.scores.tolist(), reader.search_captions(QUERY, 20), reader.sample(50).tolist()]


def flip(path: Path, place: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (value,) = file.read(1)
        file.seek(place)
        file.write(bytes([value ^ (1 << bit)]))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_checksums_equal_weighted_sums_in_whole_numbers(rows: int, dimensions: int, seed: int) -> None:
    """By definition: words times weights, modulo 2^64; appending in two parts gives the same."""
    vectors = np.random.default_rng(seed).standard_normal((rows, dimensions)).astype("<f4")
    size, factors = rows_per_block(dimensions), [int(each) for each in weights(dimensions)]
    expected = []
    for start in range(0, rows, size):
        raw = vectors[start : start + size].tobytes()
        words = struct.unpack(f"<{-(-len(raw) // 8)}Q", raw + bytes(-len(raw) % 8))
        expected.append(sum(map(int.__mul__, words, factors)) % 2**64)
    assert sums_of(vectors).tolist() == expected
    cut = seed % rows
    assert extended(extended(np.empty(0, np.uint64), vectors[:cut], 0), vectors[cut:], cut).tolist() == expected


def test_flipped_bits_of_the_cache_never_change_an_answer(sound: Path, tmp_path: Path) -> None:
    """In every file, at its ends and at random: the answers are those of the database, for readers and writers."""
    expected, generator = answers(sound), np.random.default_rng(7)
    assert ROWS.nbytes > 3 * BLOCK_BYTES
    for path in sorted(cache(sound).iterdir()):
        size = path.stat().st_size
        for place in sorted({0, size - 1, *generator.integers(0, size, 4).tolist()}):
            copy = tmp_path / "copy"
            shutil.copytree(sound, copy)
            flip(cache(copy) / path.name, place, int(generator.integers(8)))
            assert answers(copy) == expected, f"{path.name} at {place}"
            EmbeddedCollection.open(copy, write=True).close()
            with EmbeddedCollection.open(copy) as reader:
                assert reader.verify().ok, "the writer has rewritten it"
            shutil.rmtree(copy)


@pytest.mark.parametrize("kind", ["hnsw", "ivfpq"])
def test_flipped_bits_of_an_approximate_index_switch_it_off(
    tmp_path: Path, kind: approximate.Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong link could lead out of the graph and crash the process, so searches are exact until it is rebuilt."""
    monkeypatch.setattr(approximate, "kind_for", lambda rows: kind if rows else None)
    place = tmp_path / "collection"
    with create(place, DIMENSIONS) as writer:
        writer.add(batch(ROWS))
    with EmbeddedCollection.open(place) as reader:
        assert not reader.search(QUERY, 5).exact
        expected = reader.search(QUERY, 5, exact=True)
    (path,) = cache(place).glob(f"items-*.{kind}")
    size, generator, intact = path.stat().st_size, np.random.default_rng(6), path.read_bytes()
    places = (0, size // 2, size - 1, *generator.integers(0, size, 3).tolist())
    for damage in (*places, *generator.integers(0, size, 2).tolist()):
        if damage in places:
            flip(path, damage, int(generator.integers(8)))
        else:
            os.truncate(path, damage)
        with EmbeddedCollection.open(place) as reader:
            found = reader.search(QUERY, 5)
            assert found.exact
            assert found.ids.tolist() == expected.ids.tolist()
            assert path.name in " ".join(reader.verify().cache_problems)
        path.write_bytes(intact)


SHORTEN = """
import os, sys
from pathlib import Path
import numpy as np
from vse.index.store import EmbeddedCollection, approximate, checksums

folder, query, state, endings = Path(sys.argv[1]), np.array(eval(sys.argv[2]), np.float32), sys.argv[3], sys.argv[4:]
if "large" in state:
    checksums.MAX_READ_BYTES = approximate.MAX_READ_BYTES = 4096
reader = EmbeddedCollection.open(folder)
before = None if "cold" in state else reader.search(query, 20)
assert before is None or before.exact == ("ivfpq" not in endings)
for ending in endings:
    for path in folder.glob(f"*/cache/items-*.{ending}"):
        os.truncate(path, 4096)
after = reader.search(query, 20)
sys.stdout.write(repr(after.ids.tolist()))
"""


@pytest.mark.parametrize(
    "state", ["warm", "cold", "large warm", "large cold", "large lists", "large lists and vectors"]
)
def test_a_cache_that_is_shortened_under_a_reader_does_not_kill_it(
    sound: Path, tmp_path: Path, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files are not mapped either: a page beyond the end would be a signal. The reader uses the database."""
    copy = tmp_path / "copy"
    shutil.copytree(sound, copy)
    endings = [ending for ending, word in (("ivfpq", "lists"), ("vectors", "vectors")) if word in state] or ["vectors"]
    if "lists" in state:
        monkeypatch.setattr(approximate, "kind_for", lambda rows: "ivfpq" if rows else None)
        EmbeddedCollection.open(copy, write=True).close()
    arguments = [sys.executable, "-c", SHORTEN, str(copy), repr(QUERY.tolist()), state, *endings]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == repr(answers(sound)[0])


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
def test_large_matrix_in_its_file_gives_the_answers_of_one_in_memory(
    tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact search, filters of any width, samples and damage; rows are read in any order."""
    place = tmp_path / "collection"
    meta = {"model": "old", "model_source": "old", "dimensions": DIMENSIONS, "storage": storage}
    with EmbeddedCollection.create(place, **meta) as writer:
        writer.add(batch(ROWS[:400], "a/"))
        writer.add(batch(ROWS[400:], "b/"))
    with EmbeddedCollection.open(place, write=True) as writer:
        writer.remove([("/photos", "a/00007.jpg")])
    for name in ("SMALL", "SCAN_BLOCK"):
        monkeypatch.setattr(scan, name, 64)

    def found() -> list[object]:
        with EmbeddedCollection.open(place) as reader:
            wheres = (None, Filter(folder="b"), Filter(kind="image"), Filter(folder="none"))
            hits = [reader.search(QUERY, k, where=where) for where in wheres for k in (1, 9, 1000)]
            return [(each.ids.tolist(), each.scores.tolist()) for each in hits] + [reader.sample(30).tolist()]

    expected = found()
    monkeypatch.setattr(checksums, "MAX_READ_BYTES", 0)
    assert found() == expected
    (path,) = cache(place).glob("items-*.vectors")
    with EmbeddedCollection.open(place) as reader:
        opened = reader.caches.by_table["items"].opened()
        assert opened is not None
        rows = np.random.default_rng(1).permutation(COUNT)[:300]
        whole = np.fromfile(path, opened.vectors.form.dtype).reshape(COUNT, DIMENSIONS)
        assert opened.vectors.take(rows).tobytes() == whole[rows].tobytes()
    flip(path, path.stat().st_size // 2, 6)
    assert found() == expected
    with EmbeddedCollection.open(place) as reader:
        assert "different vector" in " ".join(reader.verify().cache_problems)


def test_a_block_that_is_being_purged_is_not_damage(sound: Path, tmp_path: Path) -> None:
    """A writer zeroes rows before it replaces the checksums: the reader keeps using the cache."""
    copy = tmp_path / "copy"
    shutil.copytree(sound, copy)
    with EmbeddedCollection.open(copy, write=True) as writer, EmbeddedCollection.open(copy) as reader:
        writer.remove([("/photos", "00010.jpg")])
        (path,) = cache(copy).glob("items-*.vectors")
        with path.open("r+b") as file:
            file.seek(10 * DIMENSIONS * 4)
            file.write(bytes(DIMENSIONS * 4))
        hits = reader.search(QUERY, 1000)
        assert len(hits.ids) == COUNT
        known = reader._searchers["items"]._snapshot
        assert known is not None
        assert len(known.base.ids) == COUNT + 5


def test_a_cache_without_checksums_is_not_used_until_it_is_rewritten(sound: Path, tmp_path: Path) -> None:
    """As an earlier version wrote it: damage in it changes no answer, and is no problem to report."""
    copy = tmp_path / "copy"
    shutil.copytree(sound, copy)
    for path in cache(copy).glob("*.json"):
        header = json.loads(path.read_bytes())
        for name in ("approximate_checksum", "ids_checksum", "purged", "checksum"):
            del header[name]
        path.write_text(json.dumps(header))
    for path in cache(copy).glob("*.sums*"):
        path.unlink()
    for path in cache(copy).glob("*.vectors"):
        for row in range(COUNT // 2):
            flip(path, row * DIMENSIONS * 4 + 3, 6)
    assert answers(copy) == answers(sound)
    with EmbeddedCollection.open(copy) as reader:
        assert reader.verify().ok
    EmbeddedCollection.open(copy, write=True).close()
    assert len(list(cache(copy).glob("*.sums*"))) == 2
    assert answers(copy) == answers(sound)


def test_a_vector_that_is_no_direction_is_an_error(tmp_path: Path) -> None:
    """Read from the database, where a flipped exponent would put one item before all others."""
    place = tmp_path / "collection"
    with create(place) as writer:
        writer.add(batch(VECTORS))
    shutil.rmtree(cache(place))
    with closing(sqlite3.connect(database(place))) as connection:
        (raw,) = connection.execute("SELECT vector FROM items WHERE id = 2").fetchone()
        spoilt = np.frombuffer(raw, "<f4").copy() * np.float32(1e30)
        connection.execute("UPDATE items SET vector = ? WHERE id = 2", (spoilt.tobytes(),))
        connection.commit()
    with EmbeddedCollection.open(place) as reader, pytest.raises(VSEError, match=r"is corrupt .*unit length.*verify"):
        reader.search(QUERIES[0], 100)


def test_an_item_whose_file_row_is_gone_is_an_error(tmp_path: Path) -> None:
    """Typed, with the way to find out more."""
    place = tmp_path / "collection"
    with create(place) as writer:
        writer.add(batch(VECTORS))
    with closing(sqlite3.connect(database(place))) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DELETE FROM files WHERE id = 2")
        connection.commit()
    with EmbeddedCollection.open(place) as reader, pytest.raises(VSEError, match="item 2 belongs to no file"):
        reader.items([1, 2])


def test_headers_of_killed_writers_are_removed(sound: Path, tmp_path: Path) -> None:
    """A process that was killed between writing and renaming leaves a temporary file."""
    copy = tmp_path / "copy"
    shutil.copytree(sound, copy)
    left = cache(copy) / ".items.json.k8_x1"
    left.write_text("{")
    with EmbeddedCollection.open(copy, write=True) as writer:
        writer.add(batch(ROWS[:1], "again"))
    assert not left.exists()


KILLED = """
import os, sys
from pathlib import Path
from tests.index.examples import VECTORS
from tests.index.support import batch, create

writer = create(Path(sys.argv[1]))
for number in range(12):
    writer.add(batch(VECTORS[:2], f"{number}/"))
os._exit(9)  # the log is neither checkpointed nor removed
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a collection whose writer was killed after 12 commits of two files each, all of them in the log."""
    place = tmp_path_factory.mktemp("killed") / "collection"
    done = subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False, timeout=60)
    assert done.returncode == 9
    return place


def log_of(place: Path) -> Path:
    return database(place).with_name(database(place).name + "-wal")


def test_commits_lost_with_a_damaged_log_are_reported(killed: Path, tmp_path: Path) -> None:
    """SQLite drops what follows the damage in silence; later writes do not hide how many commits are missing."""
    generator, size = np.random.default_rng(5), log_of(killed).stat().st_size
    for place in (0, 30, size - 1, *generator.integers(0, size, 21).tolist()):
        copy = tmp_path / f"{place}"
        shutil.copytree(killed, copy)
        flip(log_of(copy), place, int(generator.integers(8)))
        with EmbeddedCollection.open(copy) as reader:
            info, report = reader.info(), reader.verify()
        lost = info.lost_changes
        assert 0 < lost <= 12
        assert info.files + 2 * lost == 24
        assert f"{lost} committed changes are missing" in " ".join(report.problems)
        for number in range(2):
            with EmbeddedCollection.open(copy, write=True) as writer:
                for each in range(3):
                    writer.add(batch(VECTORS[:2], f"again/{number}/{each}"))
                assert writer.info().lost_changes == lost
        with EmbeddedCollection.open(copy) as reader:
            assert (reader.info().files, reader.verify().lost_changes) == (info.files + 12, lost)
            assert reader.verify().cache_problems == ()


def test_lost_commits_are_accepted_explicitly(killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command that verify names; an upgrade keeps the record."""
    copy = tmp_path / "collection"
    shutil.copytree(killed, copy)
    flip(log_of(copy), 32 + 24 + 100, 1)
    with (
        EmbeddedCollection.open(copy, write=True) as writer,
        writer.new_generation(model="other", model_source="other", dimensions=8) as new,
    ):
        new.commit()
    assert main(["collection", "verify", str(copy)]) == 1
    output = capsys.readouterr().out
    assert "12 committed changes are missing" in output
    assert f"vse collection verify {copy} --accept-loss" in output
    assert main(["collection", "verify", str(copy), "--accept-loss"]) == 0
    assert "no problems" in capsys.readouterr().out
    with EmbeddedCollection.open(copy) as reader:
        assert reader.info().lost_changes == 0


def test_cache_of_lost_commits_is_not_taken_for_later_ones(tmp_path: Path) -> None:
    """Ids and numbers of changes begin again before the damage: what the cache holds under them is of other files."""
    place, kept = tmp_path / "collection", tmp_path / "kept"
    with create(place, DIMENSIONS) as writer:
        writer.add(batch(ROWS[:5], "first/"))
        shutil.copytree(place, kept, ignore=shutil.ignore_patterns("cache"))
        writer.add(batch(ROWS[5:10], "lost/"))
    shutil.copytree(cache(place), cache(kept))
    record = database(kept).with_name("items.sqlite-committed")
    shutil.copy(database(place).with_name(record.name), record)
    with EmbeddedCollection.open(kept, write=True) as writer:
        for number in range(5):
            writer.add(batch(ROWS[20 + number : 21 + number], f"{number}/"))
        hits = writer.search(ROWS[24], 1)
        assert (hits.ids.tolist(), hits.scores[0]) == ([10], pytest.approx(1, abs=1e-5))
    with EmbeddedCollection.open(kept) as reader:
        assert reader.search(ROWS[24], 1).ids.tolist() == [10]
        assert reader.info().lost_changes == 1
        assert reader.verify().cache_problems == ()


def test_commits_of_another_writer_are_not_taken_for_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit between any two steps of counting and verifying is counted or not; it is never missing."""
    place, commits = tmp_path / "collection", 0
    with (
        create(place, DIMENSIONS) as writer,
        writer.new_generation(model="other", model_source="other", dimensions=DIMENSIONS) as upgrade,
        EmbeddedCollection.open(place) as reader,
    ):

        def committing(step: Callable[..., Any]) -> Callable[..., Any]:
            def called(*given: Any) -> Any:
                nonlocal commits
                found = step(*given)
                with pytest.MonkeyPatch.context() as once:
                    for module, name, plain in steps:
                        once.setattr(module, name, plain)
                    commits += 1
                    writer.add(batch(ROWS[:1], f"{commits}/"))
                    upgrade.add(batch(ROWS[:1], f"{commits}/"))
                return found

            return called

        steps = [
            (module, name, getattr(module, name))
            for module in (database_module, session, collection)
            for name in ("counts", "read_committed", "connect_to_read")
            if hasattr(module, name)
        ]
        for module, name, plain in steps:
            monkeypatch.setattr(module, name, committing(plain))
        counted, unfinished = reader.info(), reader.unfinished()
        assert unfinished is not None
        assert (counted.lost_changes, unfinished.lost_changes, reader.verify().lost_changes) == (0, 0, 0)
        assert commits >= 7


def test_a_sound_log_is_recovered_whole(killed: Path, tmp_path: Path) -> None:
    """A killed writer loses nothing, and nothing is reported."""
    place = tmp_path / "collection"
    shutil.copytree(killed, place)
    with EmbeddedCollection.open(place, write=True) as writer:
        assert (writer.info().files, writer.info().lost_changes) == (24, 0)
        log = log_of(place)
        assert log.stat().st_size == 0, "what was recovered does not depend on the log any longer"
        assert writer.verify().ok
