"""Conformance suite: generations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, directions, entry, picture
from tests.index.histories import Backend
from tests.index.support import batch

from vse.errors import InputError, VSEError
from vse.index.types import Collection, Entry, Moment, NextGeneration

WIDE = 12
NEW = directions(len(VECTORS), WIDE, seed=30)
ATTEMPTS = 5


def next_generation(writer: Collection, model: str = "new", dimensions: int = WIDE) -> NextGeneration:
    return writer.new_generation(model=model, model_source=f"models/{model}", dimensions=dimensions)


def ids_of(collection: Collection) -> dict[str, list[int]]:
    """Return the item ids by path."""
    found: dict[str, list[int]] = {}
    for ids, _ in collection.all_vectors():
        for item in collection.items(ids.tolist()):
            found.setdefault(item.file.path, []).append(item.id)
    return found


class Generations:
    """Generations in the protocol; ``writer``, ``backend`` and ``hashed_ids`` are those of the suite."""

    hashed_ids = False

    def test_the_switch(self, writer: Collection, backend: Backend) -> None:
        """Until ``commit`` everyone sees the old generation; afterwards a reopened collection has the new one.

        Open handles of the old one can still read, report that they are superseded, and cannot write.
        """
        writer.add(batch(VECTORS))
        reader = backend.open(write=False)
        new = next_generation(writer)
        new.add(batch(NEW))
        assert new.search(NEW[2], 1).scores[0] > 0.999
        assert new.search_captions(NEW[2], 1)[0][0] == "caption 2"
        assert (new.info().generation, new.info().dimensions, new.superseded) == (2, WIDE, False)
        opened = backend.open(write=False)
        for each in (writer, reader, opened):
            assert (each.info().generation, each.info().files, each.superseded) == (1, len(VECTORS), False)
            assert each.search(VECTORS[2], 1).scores[0] > 0.999
        opened.close()
        new.commit()
        with pytest.raises(VSEError, match="closed"):
            new.add(batch(NEW, "more"))
        for each in (writer, reader):
            assert each.superseded
            assert each.search(VECTORS[2], 1).scores[0] > 0.999
            assert len(list(each.files())) == len(VECTORS)
        for change in (lambda: writer.add(batch(VECTORS, "late")), lambda: next_generation(writer)):
            with pytest.raises(VSEError, match="newer generation"):
                change()
        opened = backend.open(write=False)
        info = opened.info()
        assert (info.generation, info.model, info.model_source) == (2, "new", "models/new")
        assert info.files == info.items == info.captions == len(opened.search(NEW[0], 100).ids) == len(NEW)
        assert not opened.superseded
        for each in (opened, reader, writer):
            each.close()
        again = backend.open(write=True)
        again.add(batch(NEW[:1], "late"))
        assert again.info().files == len(NEW) + 1
        with next_generation(again, "third", 5) as third:  # type: ignore[attr-defined]
            third.commit()
        again.close()
        last = backend.open(write=False)
        assert (last.info().generation, last.info().files) == (3, 0)
        last.close()

    def test_only_a_writer_makes_one(self, writer: Collection, backend: Backend) -> None:
        """A reader is rejected, and so is a model without dimensions."""
        reader = backend.open(write=False)
        with pytest.raises(VSEError, match="read"):
            next_generation(reader)
        reader.close()
        with pytest.raises(InputError, match="dimensions 0"):
            next_generation(writer, dimensions=0)

    def test_settling_changes_no_answer(self, writer: Collection, backend: Backend) -> None:
        """At any time; only a writer can settle."""
        writer.settle()
        writer.add(batch(VECTORS))
        before = writer.search(QUERIES[0], 100).ids.tolist()
        writer.settle()
        writer.remove([("/photos", "00002.jpg")])
        gone = writer.search(VECTORS[2], 1).ids[0]
        writer.settle()
        reader = backend.open(write=False)
        for each in (writer, reader):
            assert set(each.search(QUERIES[0], 100).ids.tolist()) < set(before)
            assert each.search(VECTORS[2], 1).ids[0] == gone
        with pytest.raises(VSEError, match="read"):
            reader.settle()
        reader.close()

    def test_uncommitted_generation_is_resumed(self, writer: Collection, backend: Backend) -> None:
        """It is resumed, even after closing and after changes to the old generation; another model discards it."""
        writer.add(batch(VECTORS))
        new = next_generation(writer)
        new.add(batch(NEW[:3]))
        new.remove([("/photos", "00001.jpg")])
        new.close()
        writer.add(batch(VECTORS[:1], "more"))
        assert writer.info().files == len(VECTORS) + 1
        writer.close()
        again = backend.open(write=True)
        assert (again.info().model, again.info().files) == ("fingerprint", len(VECTORS) + 1)
        new = again.new_generation(model="new", model_source="elsewhere", dimensions=WIDE)
        assert [file.path for file in new.files()] == ["00000.jpg", "00002.jpg"]
        assert (new.info().files, new.info().captions, new.info().model_source) == (2, 2, "elsewhere")
        np.testing.assert_array_equal(np.sort(new.sample(10), axis=0), np.sort(NEW[[0, 2]], axis=0))
        new.close()
        for model, dimensions in (("other", WIDE), ("other", DIMENSIONS), ("new", WIDE)):
            new = next_generation(again, model, dimensions)
            assert (new.info().files, list(new.files())) == (0, [])
            new.add([entry("a.jpg", directions(1, dimensions)[0])])
            new.close()
        new = next_generation(again)
        assert new.info().files == 1
        new.discard()
        assert again.info().files == len(again.search(QUERIES[0], 100).ids) == len(VECTORS) + 1
        new = next_generation(again)
        assert new.info().files == 0
        with pytest.raises(InputError, match="expected float32"):
            new.add(batch(VECTORS))
        new.close()
        again.close()

    def test_items_keep_their_ids(self, writer: Collection, backend: Backend) -> None:
        """If place, content and moments are the same; others get ids that no generation has used."""
        clip = picture("clip.mp4", kind="video", digest="c")
        moments = (Moment(VECTORS[0], 0.0, 1.0), Moment(VECTORS[1], 1.0, 2.0))
        writer.add([Entry(clip, moments), Entry(replace(clip, path="other.mp4"), moments), *batch(VECTORS)])
        writer.add([entry("gone.jpg", VECTORS[0])])
        (gone,) = ids_of(writer)["gone.jpg"]
        used = {each for ids in ids_of(writer).values() for each in ids}
        writer.remove([("/photos", "gone.jpg")])
        old = ids_of(writer)
        new = next_generation(writer)
        same = tuple(Moment(NEW[row], moment.start, moment.end) for row, moment in enumerate(moments))
        new.add([Entry(replace(clip, path="other.mp4"), same[:1]), Entry(clip, same)])
        changed = batch(NEW)
        changed[2] = replace(changed[2], file=replace(changed[2].file, digest="changed"))
        new.add([entry("new.jpg", NEW[3]), *changed, entry("gone.jpg", NEW[4])])
        new.commit()
        writer.close()
        again = backend.open(write=True)
        now = ids_of(again)
        fresh = {"00002.jpg", "other.mp4", "new.jpg", "gone.jpg"}
        assert {path: ids for path, ids in now.items() if path not in fresh} == {
            path: ids for path, ids in old.items() if path not in fresh
        }
        given = [each for path in fresh for each in now[path]]
        assert len(set(given)) == 4
        assert used & set(given) == ({gone} if self.hashed_ids else set())
        again.add([entry("later.jpg", NEW[4])])
        later = ids_of(again)["later.jpg"][0]
        assert later not in {*used, *given}
        assert self.hashed_ids or later > max(each for ids in now.values() for each in ids)
        again.close()

    def test_no_id_ever_means_two_items(self, writer: Collection, backend: Backend) -> None:
        """Files of the old generation move, change, come and go between attempts; a resumed generation follows."""
        random = np.random.default_rng(5)
        contents: dict[int, str] = {}

        def learn(collection: Collection) -> dict[tuple[str, str], list[int]]:
            """The ids by path and content, each of a content that it had always."""
            ids = ids_of(collection)
            found = {(file.path, file.digest): ids[file.path] for file in collection.files()}
            for (_, digest), (own,) in found.items():
                assert contents.setdefault(own, digest) == digest
            return found

        collection = writer
        for attempt in range(ATTEMPTS):
            collection.add(
                [entry(f"{name}.jpg", VECTORS[0], digest=f"{attempt} {name}") for name in random.choice(9, 4)]
            )
            files = {file.path: file for file in collection.files()}
            a, b, c = random.choice(sorted(files), 3, replace=False).tolist()
            collection.move([(("/photos", a), replace(files[a], path=b)), (("/photos", b), replace(files[b], path=a))])
            collection.remove([("/photos", c)])
            files = {file.path: file for file in collection.files()}
            old = learn(collection)
            new = next_generation(collection)
            for moment in ("resumed", "filled"):
                for key, ids in learn(new).items():
                    assert ids == old[key] if key in old else ids not in old.values(), moment
                chosen = random.permutation(sorted(files)).tolist()
                new.add([Entry(files[path], (Moment(NEW[1]),)) for path in chosen[:3]])
                new.add([entry(path, NEW[2], digest=f"{path} {attempt} {moment}") for path in chosen[3:5]])
                new.add([entry(f"{attempt}/{moment}.jpg", NEW[3], digest=f"{attempt} {moment}")])
            kept = learn(new)
            assert new.info().files == len(kept) == len(new.search(NEW[0], 1000).ids)
            new.close()
            collection.close()
            collection = backend.open(write=True)
        new = next_generation(collection)
        assert learn(new) == kept, "nothing has changed since"
        new.commit()
        collection.close()
        last = backend.open(write=False)
        assert learn(last) == kept
        last.close()
