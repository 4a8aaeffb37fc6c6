"""An uncommitted generation: resumed for the same model, and correct whatever changed meanwhile."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.index.conformance_generations import NEW, WIDE, ids_of, next_generation
from tests.index.examples import VECTORS, entry, picture
from tests.index.support import Watched, batch, create, database, filled

from vse.errors import InputError, VSEError
from vse.index.store import EmbeddedCollection
from vse.index.types import Entry, Moment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path / "collection")


def test_closing_keeps_what_was_added(folder: Path) -> None:
    """After leaving the block, an error, or reopening the collection; the old generation is unchanged."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        with next_generation(writer) as new:
            new.add(batch(NEW)[:2])
        with pytest.raises(InputError, match="expected float32"), next_generation(writer) as new:
            new.add(batch(VECTORS))
        writer.add(batch(VECTORS[:1], "more"))
    with EmbeddedCollection.open(folder, write=True, model="old") as writer:
        assert writer.info().files == len(VECTORS) + 1
        assert writer.verify().ok
        with writer.new_generation(model="new", model_source="elsewhere", dimensions=WIDE) as new:
            assert [file.path for file in new.files()] == ["00000.jpg", "00001.jpg"]
            assert new.search(NEW[1], 1).scores[0] > 0.999
            new.add(batch(NEW)[2:])
            new.commit()
    with EmbeddedCollection.open(folder, model="new") as reader:
        info = reader.info()
        assert (info.files, info.generation, info.model_source) == (len(VECTORS), 2, "elsewhere")
        assert reader.verify().ok


def test_resume_reports_verification_progress(folder: Path) -> None:
    """The unfinished generation is verified first: each row is counted. A new one has nothing to read."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        watched = Watched()
        with writer.new_generation(model="new", model_source="s", dimensions=WIDE, progress=watched) as new:
            new.add(batch(NEW))
        assert watched.stages == []
        writer.new_generation(model="new", model_source="s", dimensions=WIDE, progress=watched).close()
        rows = 4 * len(NEW) + 4  # a file, its details, an item and a caption, and the table ``meta``
        assert (watched.told("reading"), watched.running) == ([(rows, rows)], False)


def test_unfinished_generation_is_discarded(folder: Path) -> None:
    """Nothing remains, and the old generation serves; a serving generation cannot be discarded."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        new = next_generation(writer)
        new.add(batch(NEW))
        new.discard()
        assert not database(folder, 2).parent.exists()
        with pytest.raises(VSEError, match="closed"):
            new.add(batch(NEW))
        new = next_generation(writer)
        assert new.info().files == 0
        new.commit()
        with pytest.raises(VSEError, match="is already serving"):
            new.discard()
        with pytest.raises(VSEError, match="closed"):
            new.commit()
    assert EmbeddedCollection.open(folder, model="new").info().files == 0


def _garbage(file: Path) -> None:
    file.write_bytes(b"no database" * 5000)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _flipped(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    place = raw.index(NEW[3].tobytes())
    raw[place] ^= 1
    file.write_bytes(raw)


@pytest.mark.parametrize("spoil", [_garbage, _empty, _flipped, Path.unlink])
def test_corrupt_unfinished_generation_is_rebuilt(folder: Path, spoil: Callable[[Path], None]) -> None:
    """Even for one flipped bit in a vector: nothing of it reaches the collection."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        with next_generation(writer) as new:
            new.add(batch(NEW))
        spoil(database(folder, 2))
        with next_generation(writer) as new:
            assert new.info().files == 0
            new.add(batch(NEW))
            new.commit()
    with EmbeddedCollection.open(folder, model="new") as reader:
        assert reader.verify().ok


def test_upgrade_resumes_after_kill(folder: Path) -> None:
    """The old generation serves, and the next upgrade resumes what the killed process had added."""
    script = """
        import os, sys
        from tests.index.support import batch
        from tests.index.examples import directions
        from vse.index.store import EmbeddedCollection

        writer = EmbeddedCollection.open(sys.argv[1], write=True)
        new = writer.new_generation(model="new", model_source="s", dimensions=12)
        new.add(batch(directions(7, 12, seed=30))[:5])
        os._exit(9)
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(folder)], check=False)
    with EmbeddedCollection.open(folder, write=True, model="old") as writer:
        assert writer.verify().ok
        assert writer.info().files == len(VECTORS)
        with next_generation(writer) as new:
            assert len(list(new.files())) == 5


def test_ids_of_changed_files_are_given_once(folder: Path) -> None:
    """An id assigned by the unfinished generation is not assigned by the old one, and vice versa."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        with next_generation(writer) as new:
            new.add([entry("00001.jpg", NEW[1], digest="changed"), entry("00002.jpg", NEW[2])])
            given = ids_of(new)
        assert not set(given["00001.jpg"]) & {each for ids in ids_of(writer).values() for each in ids}
        writer.add(batch(VECTORS[:2], "more"))
        highest = max(max(ids) for ids in ids_of(writer).values())
        writer.remove([("/photos", "more00001.jpg")])
        before = ids_of(writer)
        assert given["00002.jpg"] == before["00002.jpg"]
        with next_generation(writer) as new:
            assert ids_of(new) == given
            new.add(batch(NEW[:1], "more"))
            assert ids_of(new)["more00000.jpg"] == before["more00000.jpg"]
            new.commit()
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.add([entry("last.jpg", NEW[0])])
        assert ids_of(writer)["last.jpg"][0] > highest


def test_resume_drops_files_with_changed_ids(folder: Path) -> None:
    """Files renamed, or removed and added again, in the old generation are dropped from the unfinished one."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        with next_generation(writer) as new:
            new.add(batch(NEW))
        at = {number: ("/photos", f"{number:05}.jpg") for number in range(len(VECTORS))}
        files = {file.path: file for file in writer.files()}
        first, second, third = (files[at[number][1]] for number in (0, 1, 2))
        writer.move([(at[0], replace(first, path=second.path)), (at[1], replace(second, path=first.path))])
        writer.move([(at[2], replace(third, path="moved.jpg"))])
        writer.remove([at[3]])
        writer.add([batch(VECTORS)[3]])
        with next_generation(writer) as new:
            assert {file.path for file in new.files()} == {"00004.jpg", "00005.jpg", "00006.jpg"}
            everything = [replace(each, file=replace(each.file, path=path)) for each, path in zip(
                batch(NEW), ["00000.jpg", "00001.jpg", "moved.jpg", "00003.jpg", "00004.jpg", "00005.jpg", "00006.jpg"],
                strict=True,
            )]  # fmt: skip
            new.add(everything)
            assert ids_of(new) == ids_of(writer)
            new.commit()
        assert EmbeddedCollection.open(folder).verify().ok


def test_store_move_during_upgrade_reuses_no_id(folder: Path) -> None:
    """The old generation may change in the same process: an id in use is not assigned a second time."""
    with EmbeddedCollection.open(folder, write=True) as writer, next_generation(writer) as new:
        new.add(batch(NEW)[:3])
        first, second, third, *_ = writer.files()
        writer.move([(("/photos", first.path), replace(first, path=second.path)),
                     (("/photos", second.path), replace(second, path=first.path)),
                     (("/photos", third.path), replace(third, path="moved.jpg"))])  # fmt: skip
        new.add([replace(batch(NEW)[2], file=replace(third, path="moved.jpg"))])
        assert ids_of(new)["00002.jpg"] != ids_of(new)["moved.jpg"]
        new.add([replace(batch(NEW)[0], file=first), replace(batch(NEW)[1], file=second)])
        assert [ids_of(new)[file.path] for file in (first, second)] == [
            ids_of(writer)[file.path] for file in (first, second)
        ]
        assert new.verify().ok
        with pytest.raises(VSEError, match="is not serving yet"):
            next_generation(new)


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_between_attempts_keep_ids_unique(tmp_path: Path, seed: int) -> None:
    """After any changes, equal content at the same place keeps its id, and no id ever stands for two contents."""
    random = np.random.default_rng(seed)
    meant: dict[int, tuple[str, str]] = {}

    def check(collection: EmbeddedCollection) -> None:
        for ids, _ in collection.all_vectors():
            for item in collection.items(ids.tolist()):
                said = (item.file.digest, str(item.start))
                assert meant.setdefault(item.id, said) == said, "an id means two things"

    def made(vectors: np.ndarray) -> Entry:
        path, content = f"{random.integers(5)}", int(random.integers(3))
        moments = tuple(Moment(vectors[n], float(n), float(n + 1)) for n in range(1 + content))
        return Entry(picture(path, kind="video", digest=f"{path if random.random() < 0.5 else ''}{content}"), moments)

    with create(tmp_path / "collection") as writer:
        for _ in range(8):
            for _ in range(3):
                known = list(writer.files())
                if known and random.random() < 0.4:
                    chosen = random.permutation(len(known))[:2]
                    names = [known[each].path for each in chosen]
                    moves = zip((known[each] for each in chosen), reversed(names), strict=True)
                    writer.move([((file.root, file.path), replace(file, path=path)) for file, path in moves])
                elif known and random.random() < 0.3:
                    writer.remove([(known[0].root, known[0].path)])
                else:
                    writer.add([made(VECTORS)])
                check(writer)
            with next_generation(writer) as new:
                check(new)
                before, states = ids_of(writer), {file.path: file.digest for file in writer.files()}
                new.remove([(file.root, file.path) for file in new.files() if file.path not in states])
                for _ in range(2):
                    new.add([made(NEW)])
                    check(new)
                ids = ids_of(new)
                for file in new.files():
                    if states.get(file.path) == file.digest:
                        assert ids[file.path] == before[file.path]
        with next_generation(writer) as new:
            new.commit()
    with EmbeddedCollection.open(tmp_path / "collection", write=True) as writer:
        assert writer.verify().ok
        writer.add([entry("new.jpg", NEW[0], digest="never seen")])
        check(writer)
