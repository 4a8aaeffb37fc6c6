"""Conformance suite: browsing without a query."""

from __future__ import annotations

import pytest
from tests.index.examples import DIMENSIONS, VECTORS, entry, picture
from tests.index.histories import Backend

from vse.errors import InputError, VSEError
from vse.index.filters import Filter
from vse.index.types import Collection, Entry, Facets, FolderCount, Moment

SECOND = 10**9


class Browsing:
    """``recent`` and ``facets``; ``writer`` and ``backend`` are those of the suite."""

    def test_the_newest_come_first(self, writer: Collection) -> None:
        """Ordered by time taken, else modified, ties by id; pages are slices of the whole."""
        taken = {"old": 5.0, "new": 40.0, "tie": 20.0, "tie too": 20.0, "1970": 0.0, "1969": -7.5}
        changed = {"older": 3 * SECOND, "newer": 30 * SECOND, "tie as well": 20 * SECOND, "half": 20 * SECOND + 2**28}
        writer.add([entry(f"{name}.jpg", VECTORS[0], taken=at, modified=99 * SECOND) for name, at in taken.items()])
        writer.add([entry(f"{name}.jpg", VECTORS[1], modified=at) for name, at in changed.items()])
        whole = writer.recent(100)
        names = [item.file.path.removesuffix(".jpg") for item in whole]
        assert names[:3] + names[6:] == ["new", "newer", "half", "old", "older", "1970", "1969"]
        assert set(names[3:6]) == {"tie", "tie too", "tie as well"}
        assert [item.id for item in whole[3:6]] == sorted(item.id for item in whole[3:6])
        assert whole == writer.items([item.id for item in whole])
        for k in (1, 2, 4, 10, 2**70):
            for offset in (0, 1, 3, 9, 10, 50, 2**70):
                assert writer.recent(k, offset=offset) == whole[offset : offset + k]

    def test_a_file_comes_once_as_its_first_moment(self, writer: Collection) -> None:
        """A video has the start and end of its first moment and its captions, even after a move or replacement."""
        clip = picture("c.mp4", kind="video", taken=10.0, captions=("a dog",))
        moments = tuple(Moment(VECTORS[row], float(row), row + 1.5) for row in range(3))
        writer.add([entry("p.jpg", VECTORS[0], taken=5.0), Entry(clip, moments)])
        first, picture_item = writer.recent(10)
        assert (first.file, first.start, first.end) == (clip, 0.0, 1.5)
        assert (picture_item.file.path, picture_item.start, picture_item.end) == ("p.jpg", None, None)
        moved = picture("d/c.mp4", kind="video", taken=1.0)
        writer.move([(("/photos", "c.mp4"), moved)])
        assert [(item.id, item.file) for item in writer.recent(10)][1] == (first.id, moved)
        writer.add([Entry(moved, moments[1:])])
        (_, again) = writer.recent(10)
        assert (again.file, again.start) == (moved, 1.0)
        assert again.id != first.id

    def test_the_newest_that_pass(self, writer: Collection) -> None:
        """Filters apply before paging; each condition can be given."""
        for number in range(12):
            kind = "video" if number % 3 == 0 else "image"
            path = f"{'a' if number % 2 else 'ab'}/{number:02}.jpg"
            writer.add([entry(path, VECTORS[0], f"/root{number % 4}", kind=kind, taken=float(number))])

        def numbers(k: int, offset: int, **parts: object) -> list[int]:
            found = writer.recent(k, offset=offset, where=Filter(**parts))  # type: ignore[arg-type]
            return [int(item.file.path[-6:-4]) for item in found]

        assert numbers(3, 0) == [11, 10, 9]
        assert numbers(3, 1, folder="a") == [9, 7, 5]
        assert numbers(3, 1, kind="video") == [6, 3, 0]
        assert numbers(2, 2, root="/root1") == [1]
        assert numbers(9, 0, after=3.0, before=6.0) == [5, 4, 3]
        assert numbers(9, 0, folder="a", kind="video", after=4.0) == [9]
        assert numbers(9, 0, folder="b") == []

    def test_facets(self, writer: Collection) -> None:
        """Files, not items, of each kind; first and last time; folders of all roots, subfolders included."""
        moments = (Moment(VECTORS[0], 0.0, 1.0), Moment(VECTORS[1], 1.0, 2.0))
        writer.add(
            [
                entry("top.jpg", VECTORS[0]),
                entry("a/x.jpg", VECTORS[0], taken=30.0),
                entry("a/x.jpg", VECTORS[0], "/phones", taken=-2.5),
                entry("a/b/x.jpg", VECTORS[0], taken=20.0),
                Entry(picture("a b/c/x.mp4", kind="video"), moments),
                entry("bytes\udcff %/näme/x.jpg", VECTORS[0]),
            ]
        )
        counts = [("a", 3), ("a b", 1), ("a b/c", 1), ("a/b", 1), ("bytes\udcff %", 1), ("bytes\udcff %/näme", 1)]
        folders = tuple(FolderCount(path, files) for path, files in counts)
        assert writer.facets() == Facets(5, 1, -2.5, 30.0, folders)
        assert writer.facets(3).folders == folders[:3]
        assert writer.facets(0) == Facets(5, 1, -2.5, 30.0, ())
        for each in folders:
            assert len(writer.recent(100, where=Filter(folder=each.path))) == each.files
        writer.remove([("/photos", "a/x.jpg"), ("/phones", "a/x.jpg")])
        assert writer.facets() == Facets(3, 1, 20.0, 20.0, (FolderCount("a", 1), *folders[1:]))

    def test_an_empty_collection_has_nothing_to_browse(self, writer: Collection) -> None:
        """Even after all files were removed."""
        nothing = Facets(0, 0, None, None, ())
        assert (writer.recent(5), writer.recent(5, where=Filter(kind="image")), writer.facets()) == ([], [], nothing)
        writer.add([entry("a/b.jpg", VECTORS[0], taken=1.0)])
        writer.remove([("/photos", "a/b.jpg")])
        assert (writer.recent(5), writer.facets()) == ([], nothing)

    def test_browsing_sees_what_was_committed(self, writer: Collection, backend: Backend) -> None:
        """Readers follow each change, a closed one raises, and an unfinished generation shows its own files."""
        reader = backend.open(write=False)
        for row in range(3):
            writer.add([entry(f"a/{row}.jpg", VECTORS[row], taken=float(row))])
            for each in (writer, reader):
                assert [item.file.path for item in each.recent(2)] == [f"a/{row}.jpg", f"a/{row - 1}.jpg"][: row + 1]
                assert each.facets() == Facets(row + 1, 0, 0.0, float(row), (FolderCount("a", row + 1),))
        ids = [item.id for item in reader.recent(5)]
        new = writer.new_generation(model="new", model_source="s", dimensions=DIMENSIONS)
        new.add([entry(f"a/{row}.jpg", VECTORS[row], taken=7.0) for row in (2, 1)])
        assert [item.id for item in new.recent(5)] == sorted(ids[:2]), "equal times come by id, not as they were added"
        assert (new.facets().images, reader.facets().images) == (2, 3)
        new.close()
        reader.close()
        for ask in (lambda: reader.recent(5), reader.facets):
            with pytest.raises(VSEError, match="closed"):
                ask()

    def test_a_page_that_cannot_be_is_an_error(self, writer: Collection) -> None:
        """A one-line error that quotes the value."""
        for k, offset, words in ((0, 0, "k 0"), (-3, 0, "k -3"), (5, -1, "offset -1")):
            with pytest.raises(InputError, match=words) as caught:
                writer.recent(k, offset=offset)
            assert "\n" not in str(caught.value)
        with pytest.raises(InputError, match="folders -1"):
            writer.facets(-1)
