"""The conformance suite of every backend: subclass it and provide a backend.

::

    class TestEmbedded(Conformance):
        @staticmethod
        def backend_in(folder: Path) -> Backend: ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.index.conformance_browsing import Browsing
from tests.index.conformance_filters import Filters
from tests.index.conformance_generations import Generations
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, directions, entry, picture
from tests.index.histories import Backend, history
from tests.index.twin import Twin

from vse.errors import InputError, VSEError
from vse.index.types import Collection, Entry, Moment

HISTORIES = settings(max_examples=25, stateful_step_count=20, deadline=None)


class Conformance(Browsing, Filters, Generations):
    """The protocol of :mod:`vse.index.types`, sentence by sentence.

    ``hashed_ids`` says that ids are hashes of files: one that is added again has the id it had. ``histories`` are the
    settings of the random ones.
    """

    hashed_ids = False
    histories = HISTORIES

    @staticmethod
    def backend_in(folder: Path) -> Backend:
        """Return a backend for collections in ``folder``, which does not exist yet."""
        raise NotImplementedError

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Backend:
        return self.backend_in(tmp_path / "collection")

    @pytest.fixture
    def writer(self, backend: Backend) -> Iterator[Collection]:
        collection = backend.create(model="fingerprint", model_source="folder/of/model", dimensions=DIMENSIONS)
        yield collection
        collection.close()

    def test_random_histories(self) -> None:
        """After any sequence of operations, a writer and a concurrent reader agree with the twin."""
        run_state_machine_as_test(history(self.backend_in), settings=self.histories)

    def test_an_empty_collection_has_an_origin_and_no_hits(self, writer: Collection) -> None:
        """Counts are zero, searches find nothing, iterations end at once."""
        info = writer.info()
        assert (info.model, info.model_source, info.dimensions) == ("fingerprint", "folder/of/model", DIMENSIONS)
        assert (info.files, info.items, info.captions, info.roots, info.generation) == (0, 0, 0, (), 1)
        hits = writer.search(QUERIES[0], 5)
        assert hits.ids.dtype == np.int64
        assert hits.scores.dtype == np.float32
        assert len(hits.ids) == len(hits.scores) == 0
        assert writer.search_captions(QUERIES[0], 5) == []
        assert list(writer.files()) == list(writer.all_vectors()) == writer.items([]) == []
        assert writer.vectors([]).shape == (0, DIMENSIONS)

    @pytest.mark.parametrize(
        "bad",
        [
            entry("bad.jpg", VECTORS[0].astype(np.float64)),  # type: ignore[arg-type]
            entry("bad.jpg", VECTORS[0][:-1]),
            entry("bad.jpg", VECTORS[:1]),
            entry("bad.jpg", VECTORS[0] * np.float32(1.01)),
            entry("bad.jpg", np.full(DIMENSIONS, np.nan, np.float32)),
            entry("bad.jpg", np.full(DIMENSIONS, np.inf, np.float32)),
            Entry(picture("bad.jpg"), ()),
            Entry(picture("bad.jpg"), (Moment(VECTORS[0], 2.0, 1.0),)),
            Entry(picture("bad.jpg"), (Moment(VECTORS[0], 2.0, None),)),
            Entry(picture("bad.jpg", captions=("one", "two")), (Moment(VECTORS[0]),), VECTORS[:1]),
            entry("bad.jpg", VECTORS[0], latitude=float("nan")),
        ],
    )
    def test_a_bad_entry_is_named_and_none_is_added(self, writer: Collection, bad: Entry) -> None:
        """One invalid entry rejects its whole batch; a file it would have replaced stays."""
        writer.add([entry("good.jpg", VECTORS[1])])
        before = list(writer.files())
        with pytest.raises(InputError, match=r"bad\.jpg") as caught:
            writer.add([entry("good.jpg", VECTORS[2], digest="new"), entry("other.jpg", VECTORS[2]), bad])
        assert "\n" not in str(caught.value)
        assert list(writer.files()) == before
        assert writer.search(VECTORS[1], 5).scores == pytest.approx([1])

    def test_changes_are_counted(self, writer: Collection, backend: Backend) -> None:
        """Counted in items added and removed, for readers too: replacing counts twice, moving not at all."""
        reader = backend.open(write=False)
        begun = writer.info().changes
        plain = [entry(f"{row}.jpg", VECTORS[row]) for row in range(4)]
        clip = Entry(picture("c.mp4"), (Moment(VECTORS[4], 0.0, 1.0), Moment(VECTORS[5], 1.0, 2.0)))
        for change, count in (
            (lambda: writer.add([*plain, clip]), 6),
            (lambda: writer.move([(("/photos", "0.jpg"), picture("moved.jpg"))]), 0),
            (lambda: writer.add([entry("1.jpg", VECTORS[6]), entry("2.jpg", VECTORS[6])]), 4),
            (lambda: writer.remove([("/photos", "c.mp4"), ("/photos", "unknown.jpg")]), 2),
        ):
            change()
            assert writer.info().changes == reader.info().changes == begun + count
            begun += count
        reader.close()

    def test_replacing_purges_and_gives_new_ids(self, writer: Collection) -> None:
        """Replacing a known (root, path) removes its old items, whose ids are never reused."""
        writer.add([entry("a.jpg", VECTORS[0]), entry("a.jpg", VECTORS[1], root="/phones")])
        (first,) = writer.search(VECTORS[0], 1).ids
        writer.add([entry("a.jpg", VECTORS[2], digest="new")])
        hits = writer.search(VECTORS[0], 5)
        assert first not in hits.ids
        assert len(hits.ids) == 2
        assert hits.scores.max() < 0.999
        with pytest.raises(InputError, match=str(first)):
            writer.items([first])
        with pytest.raises(InputError, match=str(first)):
            writer.vectors([first])

    def test_of_a_file_named_twice_in_a_batch_the_last_counts(self, writer: Collection) -> None:
        """Entries are processed in order."""
        writer.add([entry("a.jpg", VECTORS[0]), entry("a.jpg", VECTORS[1], digest="last")])
        assert [file.digest for file in writer.files()] == ["last"]
        assert writer.search(VECTORS[1], 5).scores == pytest.approx([1])

    def test_removing_counts_and_ids_never_return(self, writer: Collection, backend: Backend) -> None:
        """Unknown files do not count; the highest id is not reused, even after reopening."""
        writer.add([entry("a.jpg", VECTORS[0], captions=("a", "b")), entry("b.jpg", VECTORS[1])])
        used = set(writer.search(VECTORS[0], 5).ids.tolist())
        assert writer.remove([("/photos", "b.jpg"), ("/photos", "unknown"), ("/phones", "a.jpg")]) == 1
        assert writer.remove([("/photos", "a.jpg"), ("/photos", "a.jpg")]) == 1
        info = writer.info()
        assert (info.files, info.items, info.captions, info.roots) == (0, 0, 0, ())
        writer.close()
        again = backend.open(write=True)
        again.add([entry("a.jpg", VECTORS[0], digest="d" if not self.hashed_ids else "other")])
        assert used.isdisjoint(again.search(VECTORS[0], 5).ids.tolist())
        again.close()

    def test_moving_keeps_ids(self, writer: Collection) -> None:
        """Files may swap places in one call, a file at a target is removed, and embeddings stay."""
        writer.add([entry(name, VECTORS[row]) for row, name in enumerate(("a.jpg", "b.jpg", "c.jpg"))])
        a, b, c = (int(writer.search(VECTORS[row], 1).ids[0]) for row in range(3))
        moved = picture("b.jpg", taken=5.0)
        writer.move([(("/photos", "a.jpg"), moved), (("/photos", "b.jpg"), picture("a.jpg"))])
        assert [item.file for item in writer.items([a, b])] == [moved, picture("a.jpg")]
        writer.move(
            [(("/photos", "b.jpg"), picture("c.jpg", root="/phones")), (("/photos", "a.jpg"), picture("c.jpg"))]
        )
        assert [(item.file.root, item.file.path) for item in writer.items([a, b])] == [
            ("/phones", "c.jpg"),
            ("/photos", "c.jpg"),
        ]
        np.testing.assert_array_equal(writer.vectors([b, a]), VECTORS[[1, 0]])
        with pytest.raises(InputError, match=str(c)):
            writer.items([c])

    def test_an_impossible_move_moves_nothing(self, writer: Collection) -> None:
        """An unknown file, a file moved twice and a target used twice are errors that move nothing."""
        writer.add([entry("a.jpg", VECTORS[0]), entry("b.jpg", VECTORS[1])])
        before = list(writer.files())
        a, b, unknown = ("/photos", "a.jpg"), ("/photos", "b.jpg"), ("/photos", "unknown.jpg")
        for impossible in (
            [(a, picture("c.jpg")), (unknown, picture("d.jpg"))],
            [(a, picture("c.jpg")), (a, picture("d.jpg"))],
            [(a, picture("c.jpg")), (b, picture("c.jpg"))],
        ):
            with pytest.raises(InputError, match="jpg"):
                writer.move(impossible)
            assert list(writer.files()) == before

    def test_equal_scores_come_in_the_order_of_ids(self, writer: Collection) -> None:
        """Best first, ties by id; the best k are a prefix of the best of any larger k."""
        pool = directions(3, seed=5)
        writer.add([entry(f"{number:03}.jpg", pool[number % 3]) for number in range(60)])
        writer.add([entry(f"{number:03}.jpg", pool[number % 3], digest="new") for number in range(0, 60, 7)])
        whole = writer.search(QUERIES[0], 100)
        assert len(whole.ids) == 60
        assert whole.exact
        pairs = [(-round(float(score), 5), each) for score, each in zip(whole.scores, whole.ids, strict=True)]
        assert pairs == sorted(pairs)
        for k in (1, 5, 15, 19, 20, 21, 40, 59, 60, 61):
            hits = writer.search(QUERIES[0], k)
            np.testing.assert_array_equal(hits.ids, whole.ids[:k])
            np.testing.assert_array_equal(hits.scores, whole.scores[:k])

    def test_a_query_that_is_no_unit_vector_or_asks_for_nothing_is_an_error(self, writer: Collection) -> None:
        """The error is about the query or k."""
        for vector, k in (
            (VECTORS[0] * 2, 5),
            (VECTORS[0][:3], 5),
            (VECTORS[0] * np.float32("nan"), 5),
            (VECTORS[0], 0),
        ):
            with pytest.raises(InputError, match=r"query|k 0"):
                writer.search(vector, k)
            with pytest.raises(InputError, match=r"query|k 0"):
                writer.search_captions(vector, k)

    def test_captions(self, writer: Collection) -> None:
        """The best captions lead to the first item of their file; those without embeddings are kept but not found."""
        clip = picture("clip.mp4", captions=("a dog", "a wolf"))
        writer.add(
            [
                Entry(clip, (Moment(VECTORS[5], 0.0, 1.0), Moment(VECTORS[6], 1.0, 2.0)), VECTORS[:2]),
                Entry(picture("b.jpg", captions=("a cat",)), (Moment(VECTORS[4]),), VECTORS[2:3]),
                Entry(picture("c.jpg", captions=("not encoded",)), (Moment(VECTORS[4]),)),
            ]
        )
        for row, text, path in ((0, "a dog", "clip.mp4"), (1, "a wolf", "clip.mp4"), (2, "a cat", "b.jpg")):
            (best, *others) = writer.search_captions(VECTORS[row], 10)
            assert best[0] == text
            assert best[2] == pytest.approx(1, abs=1e-5)
            (item,) = writer.items([best[1]])
            assert (item.file.path, item.start) == (path, 0.0 if path == "clip.mp4" else None)
            assert len(others) == 2
        assert writer.info().captions == 4
        writer.remove([("/photos", "clip.mp4")])
        assert [hit[0] for hit in writer.search_captions(VECTORS[0], 10)] == ["a cat"]

    def test_items_and_vectors_come_in_the_order_that_is_asked_for(self, writer: Collection) -> None:
        """Even repeated ones, and many of them."""
        many = directions(1200, seed=3)
        writer.add([entry(f"{row:04}.jpg", vector) for row, vector in enumerate(many)])
        ids = np.concatenate([block for block, _ in writer.all_vectors(block=500)])
        ids = ids[np.argsort([item.file.path for item in writer.items(ids.tolist())])]
        order = np.random.default_rng(0).integers(0, 1200, 2500)
        np.testing.assert_array_equal(writer.vectors(ids[order].tolist()), many[order])
        paths = [item.file.path for item in writer.items(ids[order].tolist())]
        assert paths == [f"{row:04}.jpg" for row in order]

    def test_files_come_by_root_and_path(self, writer: Collection) -> None:
        """All files or those of one root, as added, even if the collection changes during iteration."""
        files = [picture(f"{row % 7}/{row}.jpg", root=f"/root{row % 3}", size=row) for row in range(1100)]
        writer.add([Entry(file, (Moment(VECTORS[0]),)) for file in files])
        by_place = sorted(files, key=lambda file: (file.root, file.path))
        assert list(writer.files()) == by_place
        assert list(writer.files("/root1")) == [file for file in by_place if file.root == "/root1"]
        assert list(writer.files("/root")) == []
        for file in writer.files("/root0"):
            writer.remove([(file.root, file.path)])
        assert writer.info().roots == ("/root1", "/root2")

    @pytest.mark.parametrize(
        "name", ["näme.jpg", "名前/🐕.jpg", 'it\'s "q" %_*?.jpg', "new\nline.jpg", "bytes\udcff.jpg", "nul\0.jpg"]
    )
    def test_any_name_of_a_file_survives(self, writer: Collection, backend: Backend, name: str) -> None:
        """Names may hold anything the system allows, even bytes that are not UTF-8."""
        file = picture(name, root=f"/root {name}", captions=(f"about {name}",))
        writer.add([Entry(file, (Moment(VECTORS[0]),), VECTORS[:1])])
        writer.close()
        reader = backend.open(write=False)
        assert list(reader.files()) == list(reader.files(file.root)) == [file]
        assert reader.search_captions(VECTORS[0], 1)[0][0] == f"about {name}"
        reader.close()
        again = backend.open(write=True)
        assert again.remove([(file.root, file.path)]) == 1
        again.close()

    def test_closing_keeps_everything_and_may_be_repeated(self, writer: Collection, backend: Backend) -> None:
        """Closing keeps all data and is idempotent; using a closed collection is an error."""
        twin = Twin()
        batch = [
            entry("a.jpg", VECTORS[0], captions=("a", "b")),
            entry("b.mp4", VECTORS[1], kind="video", duration=2.0),
        ]
        writer.add(batch)
        twin.add(batch)
        twin.learn(writer)
        writer.close()
        writer.close()
        with pytest.raises(VSEError, match="closed"):
            writer.search(QUERIES[0], 1)
        for write in (False, True):
            again = backend.open(write=write)
            twin.learn(again)
            again.close()

    def test_one_writer_and_any_number_of_readers(self, writer: Collection, backend: Backend) -> None:
        """A second writer gets a one-line error; readers see each change at their next search."""
        with pytest.raises(VSEError) as caught:
            backend.open(write=True)
        assert "\n" not in str(caught.value)
        readers = [backend.open(write=False) for _ in range(3)]
        for row in range(5):
            writer.add([entry(f"{row}.jpg", VECTORS[row])])
            for reader in readers:
                assert len(reader.search(VECTORS[row], 10).ids) == row + 1
        assert writer.remove([("/photos", "0.jpg")]) == 1
        for reader in readers:
            assert reader.search(VECTORS[0], 10).scores.max() < 0.999
            with pytest.raises(VSEError, match="read"):
                reader.add([entry("x.jpg", VECTORS[0])])
            reader.close()

    def test_exact_is_exact(self, writer: Collection) -> None:
        """``exact=True`` compares every embedding and reports it."""
        many = directions(300, seed=9)
        writer.add([entry(f"{row}.jpg", vector) for row, vector in enumerate(many)])
        hits = writer.search(QUERIES[0], 10, exact=True)
        best = np.sort(many.astype(np.float64) @ QUERIES[0].astype(np.float64))[::-1][:10]
        assert hits.exact
        np.testing.assert_allclose(hits.scores, best, atol=2e-6)

    def test_a_sample_has_the_smallest_hashes(self, writer: Collection) -> None:
        """The sample holds the items with the smallest hashes, or all if there are no more."""
        assert writer.sample(5).shape == (0, DIMENSIONS)
        many = directions(200, seed=9)
        writer.add([entry(f"{row}.jpg", vector) for row, vector in enumerate(many)])
        writer.remove([("/photos", f"{row}.jpg") for row in range(20, 60)])
        writer.add([entry(f"{row}.jpg", many[row], digest="new") for row in range(100, 120)])
        ids = np.concatenate([some for some, _ in writer.all_vectors()]).tolist()
        for count in (1, 50, 159, 160, 1000):
            chosen = sorted(sorted(ids, key=scrambled)[:count])
            np.testing.assert_array_equal(writer.sample(count), writer.vectors(chosen))

    def test_a_moved_file_keeps_the_vectors_of_captions_that_stay(self, writer: Collection) -> None:
        """A caption that remains is found as before; a new one has no embedding."""
        old = picture("a.jpg", captions=("stays", "goes"))
        writer.add([Entry(old, (Moment(VECTORS[6]),), VECTORS[:2])])
        new = replace(old, path="b.jpg", captions=("comes", "stays"))
        writer.move([(("/photos", "a.jpg"), new)])
        assert [hit[0] for hit in writer.search_captions(VECTORS[1], 10)] == ["stays"]
        assert list(writer.files()) == [new]

    def test_moved_file_takes_vectors_of_new_captions(self, writer: Collection) -> None:
        """A new caption is found by its embedding, one that stays by its old one, and the item keeps its id."""
        old = picture("a.jpg", captions=("stays",))
        writer.add([Entry(old, (Moment(VECTORS[6]),), VECTORS[:1])])
        before = writer.search(VECTORS[6], 1).ids.tolist()
        new = replace(old, captions=("stays", "comes"))
        writer.move([(("/photos", "a.jpg"), new)], captions={"comes": VECTORS[1], "stays": VECTORS[2]})
        assert writer.search_captions(VECTORS[1], 1)[0][0] == "comes"
        assert writer.search_captions(VECTORS[0], 1)[0] == ("stays", before[0], pytest.approx(1, abs=1e-5))
        assert writer.search(VECTORS[6], 1).ids.tolist() == before
        with pytest.raises(InputError, match="caption 'bad'"):
            writer.move([(("/photos", "a.jpg"), new)], captions={"bad": VECTORS[1][:1]})


def scrambled(number: int) -> int:
    for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
        number = number * factor % 2**64
        number ^= number >> 32
    return number
