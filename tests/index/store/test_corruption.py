"""``verify`` finds corruption on disk; the cache can always be rebuilt."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.index.examples import QUERIES, VECTORS, directions, entry
from tests.index.support import batch, cache, create, database

from vse.errors import VSEError
from vse.index.filters import Filter
from vse.index.store import EmbeddedCollection

COUNT = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a closed collection whose cache has purged rows."""
    place = tmp_path / "collection"
    with create(place) as writer:
        writer.add(batch(directions(COUNT, seed=8)))
    with EmbeddedCollection.open(place, write=True) as writer:
        writer.remove([("/photos", "00003.jpg")])
        writer.add(batch(VECTORS[:2], "late"))
    return place


def everything(folder: Path) -> list[object]:
    """Return all that a reader can see without the cache."""
    with EmbeddedCollection.open(folder) as reader:
        blocks = list(reader.all_vectors())
        ids = np.concatenate([block for block, _ in blocks]).tolist()
        captions = reader.search_captions(QUERIES[0], 1000)
        return [
            replace(reader.info(), where=""),
            list(reader.files()),
            reader.items(ids),
            [v.tolist() for _, v in blocks],
            captions,
            reader.recent(1000),
            reader.facets(),
            reader.word_counts(["caption", "17", "jpg", "late", "00007"]),
            reader.search(QUERIES[0], 100, where=Filter(name="00007", words=("caption 7",))).ids.tolist(),
            reader.search_words({"caption": 0.3, "17": 0.4, "jpg": 0.3}, QUERIES[0], 100).ids.tolist(),
            sorted(reader.items_with_words(ids, ["caption 9", "late"])),
        ]


def flip(path: Path, place: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1 << bit
    path.write_bytes(raw)


def test_a_sound_collection_has_no_problems(folder: Path) -> None:
    """The report counts what was read."""
    with EmbeddedCollection.open(folder) as reader:
        report = reader.verify()
    assert report.ok
    assert report.to_json() == {
        "where": str(folder), "files": COUNT + 1, "items": COUNT + 1, "captions": COUNT + 1,
        "problems": [], "cache_problems": [], "damaged_files": [], "lost_changes": 0, "ok": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "part",
    [directions(COUNT, seed=8)[5].tobytes(), b"00007.jpg", b"caption 9", b"models/old"],
    ids=["vector", "path", "caption", "origin"],
)
def test_a_flipped_bit_of_a_row_is_found(folder: Path, part: bytes) -> None:
    """At each occurrence in the database, with a line that names the row; rebuilding the cache does not hide it."""
    whole = database(folder).read_bytes()
    places = [place for place in range(len(whole)) if whole.startswith(part, place)]
    assert places
    found = 0
    for place in places:
        flip(database(folder), place + len(part) // 2)
        with EmbeddedCollection.open(folder, write=True) as writer:
            report = writer.verify()
            assert not report.ok
            assert all("\n" not in line for line in (*report.problems, *report.cache_problems))
            writer.rebuild()  # the words follow from the rest, so they come right again
            assert bool(writer.verify().problems) == bool(report.problems)
        found += bool(report.problems)
        database(folder).write_bytes(whole)
    assert found


def test_no_flipped_bit_of_the_database_passes_unseen(folder: Path, tmp_path: Path) -> None:
    """Wherever it is: the collection cannot be opened, or ``verify`` finds it, or readers see no difference."""
    sound = everything(folder)
    used = np.flatnonzero(np.frombuffer(database(folder).read_bytes(), np.uint8))  # most of a page is unused
    random = np.random.default_rng(3)
    seen = 0
    for trial in range(150):
        copy = tmp_path / f"copy{trial}"
        shutil.copytree(folder, copy)
        flip(database(copy), int(random.choice(used)), int(random.integers(8)))
        try:
            with EmbeddedCollection.open(copy) as reader:
                found = not reader.verify().ok
        except VSEError:
            found = True
        if not found:
            assert everything(copy) == sound
        seen += found
        shutil.rmtree(copy)
    assert seen > 75


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE words SET caption = 'other' WHERE file = 5", "the words of 1 files"),
        ("DELETE FROM word_index_data WHERE id > 1000", "the word index"),
        ("DELETE FROM words WHERE file = 5", "the words of 1 files"),
        ("DROP TRIGGER words_removed", "not as they were created"),
        ("PRAGMA user_version = 77", "another version"),
    ],
)
def test_words_that_differ_from_the_files_are_found_and_rebuilt(folder, damage, problem):
    """A reader finds them; writing may already have mended them, and ``rebuild`` certainly does."""
    with closing(sqlite3.connect(database(folder), isolation_level=None)) as connection:
        connection.executescript(damage)
    with EmbeddedCollection.open(folder) as reader:
        report = reader.verify()
        assert not report.problems
        assert problem in " ".join(report.cache_problems)
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.rebuild()
        assert writer.verify().ok
        writer.remove([("/photos", "00005.jpg")])
        assert writer.word_counts(["caption", "00005", "00006"]) == {"caption": COUNT, "00005": 0, "00006": 1}
        hits = writer.search_words({"00006": 0.5, "00005": 0.5}, QUERIES[0], 9)
        assert [item.file.path for item in writer.items(hits.ids.tolist())] == ["00006.jpg"]
        assert writer.verify().ok


def test_corrupt_cache_is_reported_and_rebuilt(folder: Path) -> None:
    """A changed vector or id in the cache is only a cache problem, and a rebuild fixes it."""
    for ending in ("vectors", "ids"):
        (path,) = cache(folder).glob(f"items-*.{ending}")
        flip(path, path.stat().st_size - 8)
        with EmbeddedCollection.open(folder, write=True) as writer:
            report = writer.verify()
            assert not report.problems
            assert report.cache_problems
            writer.rebuild()
            assert writer.verify().ok


def remove_all(place: Path) -> None:
    shutil.rmtree(place)


def cut_vectors(place: Path) -> None:
    for path in place.glob("*.vectors"):
        path.write_bytes(path.read_bytes()[:-7])


def lose_ids(place: Path) -> None:
    for path in place.glob("*.ids"):
        path.unlink()


def spoil_headers(place: Path) -> None:
    for path in place.glob("*.json"):
        path.write_text('{"changes": "many"}')


def claim_the_future(place: Path) -> None:
    for path in place.glob("*.json"):
        path.write_text(path.read_text().replace('"changes": ', '"changes": 9'))


@pytest.mark.parametrize("damage", [remove_all, cut_vectors, lose_ids, spoil_headers, claim_the_future])
def test_a_cache_that_cannot_be_used_costs_no_answer(folder: Path, damage: Callable[[Path], None]) -> None:
    """Searches return the same without it, and the next writer rebuilds it."""
    with EmbeddedCollection.open(folder) as reader:
        before = reader.search(QUERIES[0], 100)
        captions = reader.search_captions(QUERIES[0], 100)
    damage(cache(folder))
    with EmbeddedCollection.open(folder) as reader:
        after = reader.search(QUERIES[0], 100)
        np.testing.assert_array_equal(after.ids, before.ids)
        np.testing.assert_array_equal(after.scores, before.scores)
        assert reader.search_captions(QUERIES[0], 100) == captions
    EmbeddedCollection.open(folder, write=True).close()
    with EmbeddedCollection.open(folder) as reader:
        assert reader.verify().ok
    assert list(cache(folder).glob("items-*.vectors"))


def test_purged_vectors_are_nowhere_on_disk(tmp_path: Path) -> None:
    """After the writer closes, no file of the collection holds a removed vector or path."""
    vectors = directions(200, seed=12)
    folder = tmp_path / "collection"
    secret = entry("secret.jpg", vectors[17], keywords=("Zanzibar",), description="hush", captions=("Xylophon",))
    with create(folder) as writer:
        writer.add(batch(vectors))
        writer.add([secret])
        writer.move([(("/photos", "secret.jpg"), replace(secret.file, title="Quibble", description=None))])
        writer.remove([("/photos", "secret.jpg")])
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.remove([("/photos", "00017.jpg")])
        writer.add(batch(vectors[30:31], "another"))
    kept, gone = vectors[16].tobytes(), vectors[17].tobytes()
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert sum(kept in content for content in contents) >= 2
    words = (b"00017", b"ecret", b"anzibar", b"hush", b"ylophon", b"uibble")
    assert not any(part in content for part in (gone, *words) for content in contents)
