"""Collections of float16 and int8: what is stored is searched exactly, and everything else is as with float32."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import directions, entry
from tests.index.support import Watched, batch, cache, database

from vse.errors import InputError
from vse.index.filters import Filter
from vse.index.open import create_collection
from vse.index.storage import Storage, VectorFormat, decode, encode, rounded
from vse.index.store import EmbeddedCollection, approximate, checksums
from vse.index.store.checksums import VectorFile, sums_of
from vse.index.types import Entry, Moment

DIMENSIONS = 24
ROWS = directions(300, DIMENSIONS, seed=60)
QUERIES = directions(4, DIMENSIONS, seed=61)
PACKED: tuple[Storage, ...] = ("float16", "int8")


def make(folder: Path, storage: Storage) -> EmbeddedCollection:
    return EmbeddedCollection.create(
        folder, model="old", model_source="models/old", dimensions=DIMENSIONS, storage=storage
    )


@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from(PACKED))
def test_stored_embeddings_are_close_and_stored_alike_again(dimensions: int, seed: int, storage: Storage) -> None:
    """Each value is rounded to its grid; decoded rows are unit vectors that encode to the same bytes, alone or not."""
    vectors = directions(7, dimensions, seed)
    stored = encode(vectors, storage)
    again = decode(stored)
    for vector, found in zip(vectors.tolist(), again.tolist(), strict=True):
        step = max(map(abs, vector)) / 127
        for value, near in zip(vector, found, strict=True):
            # int8: half a step, then the vector is stretched to unit length, which half-steps changed
            close = abs(value) * 2**-11 + 2**-24 if storage == "float16" else step * (0.5 + 0.5 * dimensions**0.5)
            assert abs(value - near) <= close + 1e-6
    assert np.abs(np.linalg.norm(again, axis=1) - 1).max() < 1e-3
    assert encode(again, storage).tobytes() == stored.tobytes()
    assert decode(stored[3:4]).tobytes() == again[3:4].tobytes()
    assert VectorFormat(dimensions, storage).to_bytes(vectors[2]) == stored[2].tobytes()
    assert not decode(encode(np.zeros((1, dimensions), np.float32), storage)).any()


@pytest.mark.parametrize("storage", ["float32", *PACKED])
def test_vector_barely_of_unit_length_stays_one_when_stored(storage: Storage) -> None:
    """What a collection takes in, it also takes as a query when it returns it."""
    vector = directions(1, DIMENSIONS, seed=62)[0]
    for length in (0.9991, 1.0009):
        found = rounded(vector * np.float32(length), storage)
        assert abs(float(np.linalg.norm(found)) - 1) <= 1e-3


def change(collection: EmbeddedCollection, vectors: np.ndarray, late: np.ndarray) -> None:
    """Add, replace, move and remove; half of it is in the cache, half is read from the database."""
    collection.add(batch(vectors))
    collection.settle()
    collection.remove([("/photos", f"{row:05}.jpg") for row in (0, 3, 17)])
    collection.add([*batch(late, "late"), entry("00005.jpg", late[0])])
    known = next(file for file in collection.files() if file.path == "00007.jpg")
    collection.move([(("/photos", "00007.jpg"), known)], captions={})


def answers(collection: EmbeddedCollection) -> list[object]:
    every = [(ids.tolist(), vectors.tolist()) for ids, vectors in collection.all_vectors(64)]
    hits = [collection.search(query, k) for query in QUERIES for k in (1, 20, 500)]
    some = [collection.search(QUERIES[0], 50, where=Filter(folder="late")), collection.search(QUERIES[1], 9)]
    return [
        every,
        [(each.ids.tolist(), each.scores.tolist(), each.exact) for each in (*hits, *some)],
        collection.search_captions(QUERIES[0], 400),
        collection.sample(50).tolist(),
        collection.vectors([every[0][0][5], every[0][0][0]]).tolist(),
        collection.search_words({"caption": 1.0}, QUERIES[2], 30).scores.tolist(),
    ]


@pytest.mark.parametrize("storage", PACKED)
def test_packed_collection_equals_float32_collection_of_rounded_vectors(tmp_path: Path, storage: Storage) -> None:
    """Bit by bit, whatever happens to it: changes, a crash, reopening, a rebuild and an upgrade."""
    late = directions(20, DIMENSIONS, seed=63)
    with make(tmp_path / "packed", storage) as packed, make(tmp_path / "plain", "float32") as plain:
        change(packed, ROWS, late)
        change(plain, rounded(ROWS, storage), rounded(late, storage))
        expected = answers(plain)
        assert answers(packed) == expected
        shutil.copytree(tmp_path / "packed", tmp_path / "crashed")  # with a log, and a cache that lags behind
    for name in ("packed", "crashed"):
        with EmbeddedCollection.open(tmp_path / name, write=True) as writer:
            assert answers(writer) == expected
            assert writer.verify().ok
            writer.rebuild()
            assert answers(writer) == expected
        with EmbeddedCollection.open(tmp_path / name) as reader:
            assert (reader.info().storage, reader.verify().ok) == (storage, True)
            assert answers(reader) == expected
    vector_bytes = VectorFormat(DIMENSIONS, storage).row_bytes
    (path,) = cache(tmp_path / "packed").glob("items-*.vectors")
    assert path.stat().st_size == vector_bytes * (len(ROWS) - 3 + len(late) + 1 - 1)
    with EmbeddedCollection.open(tmp_path / "packed", write=True) as writer:
        new = writer.new_generation(model="new", model_source="models/new", dimensions=DIMENSIONS)
        new.add([Entry(file, (Moment(ROWS[0]),)) for file in writer.files()])
        new.commit()
    with EmbeddedCollection.open(tmp_path / "packed") as reader:
        assert (reader.info().storage, reader.info().model, reader.verify().ok) == (storage, "new", True)
        assert reader.vectors([int(next(reader.all_vectors())[0][0])]).tobytes() == rounded(ROWS[:1], storage).tobytes()


def test_earlier_versions_refuse_packed_collections_and_open_others(tmp_path: Path) -> None:
    """They know format 1 alone; a collection of float32 still has it, and records nothing that they do not know."""
    for storage, number in (("float32", 1), ("float16", 2), ("int8", 2)):
        make(tmp_path / storage, storage).close()  # type: ignore[arg-type]
        assert json.loads((tmp_path / storage / "collection.json").read_bytes()) == {"format": number, "generation": 1}
        recorded = b"storage" in database(tmp_path / storage).read_bytes()
        assert recorded == (storage != "float32")


@pytest.mark.parametrize("storage", PACKED)
def test_damage_in_a_packed_block_never_changes_an_answer(tmp_path: Path, storage: Storage) -> None:
    place = tmp_path / "collection"
    with make(place, storage) as writer:
        writer.add(batch(ROWS))
    with EmbeddedCollection.open(place) as reader:
        expected = answers(reader)
    (path,) = cache(place).glob("items-*.vectors")
    sound = path.read_bytes()
    for byte in np.random.default_rng(5).integers(0, len(sound), 6).tolist():
        path.write_bytes(sound[:byte] + bytes([sound[byte] ^ 0x40]) + sound[byte + 1 :])
        with EmbeddedCollection.open(place) as reader:
            assert answers(reader) == expected
            assert "different vector" in " ".join(reader.verify().cache_problems)


def clustered(count: int, dimensions: int, seed: int) -> np.ndarray:
    """Return unit vectors around 60 centres, in no order."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(1).standard_normal((60, dimensions))
    vectors = centres[random.integers(0, 60, count)] + 0.7 * random.standard_normal((count, dimensions))
    return (vectors / np.linalg.norm(vectors, axis=1)[:, None]).astype(np.float32)


def recall(proposed: list[np.ndarray], vectors: np.ndarray, queries: np.ndarray) -> float:
    found = 0
    for rows, query in zip(proposed, queries, strict=True):
        scores = [sum(float(a) * float(b) for a, b in zip(vector, query, strict=True)) for vector in vectors]
        found += len(set(rows.tolist()) & set(sorted(range(len(vectors)), key=lambda row: -scores[row])[:10]))
    return found / (10 * len(queries))


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """Return inverted lists over 3,000 projected vectors in float16, and the vectors."""
    folder = tmp_path_factory.mktemp("lists")
    vectors = clustered(3000, 160, seed=3)
    stored = encode(vectors, "float16")
    (folder / "vectors").write_bytes(stored.tobytes())
    file = VectorFile(folder / "vectors", len(stored), VectorFormat(160, "float16"), sums_of(stored))
    approximate.build("ivfpq", file, folder / "items.ivfpq")
    return folder / "items.ivfpq", decode(stored)


def test_inverted_lists_reach_their_recall_on_clusters(
    lists: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build chose how many lists to visit; lists that stay in the file propose the same rows."""
    path, vectors = lists
    queries = clustered(12, 160, seed=4)
    index = approximate.load(path, len(vectors), 160)
    inner = approximate.library().extract_index_ivf(index)
    assert approximate.LEAST_PROBES <= inner.nprobe <= inner.nlist
    proposed = [approximate.propose(index, query, None) for query in queries]
    assert recall(proposed, vectors, queries) >= approximate.RECALL
    monkeypatch.setattr(approximate, "MAX_READ_BYTES", 0)
    stored = approximate.load(path, len(vectors), 160)
    for query, rows in zip(queries, proposed, strict=True):
        assert approximate.propose(stored, query, None).tolist() == rows.tolist()
    allowed = np.arange(len(vectors)) % 4 != 0
    assert (approximate.propose(stored, queries[0], allowed) % 4).all()
    assert approximate.load(path, len(vectors) + 1, 160) is None


def test_narrow_vectors_get_lists_without_projection_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """FAISS itself would print that it has few training rows for each list."""
    vectors = clustered(2000, 32, seed=5)
    (tmp_path / "vectors").write_bytes(vectors.tobytes())
    file = VectorFile(tmp_path / "vectors", len(vectors), VectorFormat(32, "float32"), sums_of(vectors))
    approximate.build("ivfpq", file, tmp_path / "items.ivfpq")
    index = approximate.load(tmp_path / "items.ivfpq", len(vectors), 32)
    queries = clustered(6, 32, seed=6)
    proposed = [approximate.propose(index, query, None) for query in queries]
    assert recall(proposed, vectors, queries) >= approximate.RECALL
    assert capfd.readouterr() == ("", "")


def test_several_threads_fill_the_same_lists(
    lists: tuple[Path, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row is in one list with its own code, and an interrupt in one thread ends all and writes nothing."""
    path, vectors = lists
    faiss = approximate.library()
    stored = encode(vectors, "float16")
    (tmp_path / "vectors").write_bytes(stored.tobytes())
    file = VectorFile(tmp_path / "vectors", len(stored), VectorFormat(160, "float16"), sums_of(stored))
    monkeypatch.setattr(approximate, "PARALLEL_FROM", 0)
    monkeypatch.setattr(approximate, "BLOCK", 256)
    monkeypatch.setattr(faiss, "omp_get_max_threads", lambda: 3)
    new = tmp_path / "new.ivfpq"

    def interrupt(stage: str, done: int) -> None:
        if done >= 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        approximate.build("ivfpq", file, new, Watched(interrupt))
    assert not new.exists()
    watched = Watched()
    approximate.build("ivfpq", file, new, watched)
    assert watched.told("approximate") == [(len(vectors), len(vectors))]
    for place in (path, new):
        index = approximate.load(place, len(vectors), 160)
        faiss.extract_index_ivf(index).nprobe = 2**30  # every list
        _, rows = index.search(vectors[:50], 5)
        assert [row in found for row, found in enumerate(rows.tolist())].count(True) >= 49
        inner = faiss.extract_index_ivf(index)
        members = [faiss.rev_swig_ptr(inner.invlists.get_ids(each), inner.invlists.list_size(each)).tolist()
                   for each in range(inner.nlist)]  # fmt: skip
        assert sorted(row for each in members for row in each) == list(range(len(vectors)))


def test_build_over_damaged_vectors_stops_and_keeps_the_old_index(lists: tuple[Path, np.ndarray]) -> None:
    path, vectors = lists
    before = path.read_bytes()
    stored = encode(vectors, "float16")
    raw = bytearray(stored.tobytes())
    raw[len(raw) // 3] ^= 1
    damaged = path.with_name("damaged")
    damaged.write_bytes(raw)
    file = VectorFile(damaged, len(stored), VectorFormat(160, "float16"), sums_of(stored))
    with pytest.raises(checksums.DamagedCacheError):
        approximate.build("ivfpq", file, path)
    assert path.read_bytes() == before


def test_lists_in_a_file_are_switched_off_by_damage_and_survive_a_killed_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partial file of a killed build is ignored, then removed; the index before it is used meanwhile."""
    monkeypatch.setattr(approximate, "kind_for", lambda rows: "ivfpq" if rows else None)
    for module in (approximate, checksums):
        monkeypatch.setattr(module, "MAX_READ_BYTES", 0)
    place = tmp_path / "collection"
    with make(place, "float16") as writer:
        writer.add(batch(ROWS))
    (path,) = cache(place).glob("items-*.ivfpq")
    partial = path.with_name(path.name + "-new")
    partial.write_bytes(path.read_bytes()[:1000])
    with EmbeddedCollection.open(place) as reader:
        assert not reader.search(QUERIES[0], 5).exact
        assert reader.verify().ok
    with EmbeddedCollection.open(place, write=True) as writer:
        writer.remove([("/photos", "00001.jpg")])
    assert not partial.exists()
    raw = bytearray(path.read_bytes())
    raw[len(raw) - 900] ^= 4  # in the codes
    path.write_bytes(raw)
    with EmbeddedCollection.open(place) as reader:
        found, true = reader.search(QUERIES[0], 5), reader.search(QUERIES[0], 5, exact=True)
        assert (found.exact, found.ids.tolist()) == (True, true.ids.tolist())
        assert path.name in " ".join(reader.verify().cache_problems)


def test_unknown_storage_is_refused_in_one_line(tmp_path: Path) -> None:
    for place, name in (("a.vse", "float8"), ("a.db", "float16"), ("a.vse", "")):
        with pytest.raises(InputError, match="storage") as caught:
            create_collection(tmp_path / place, model="own", dimensions=4, storage=name)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / place).exists()
