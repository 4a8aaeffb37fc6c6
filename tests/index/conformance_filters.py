"""Conformance suite: filters."""

from __future__ import annotations

from tests.index.examples import QUERIES, VECTORS, entry, picture

from vse.index.filters import Box, Filter
from vse.index.types import Collection, Entry, Moment


class Filters:
    """Each condition of :class:`vse.index.filters.Filter`."""

    def test_filters(self, writer: Collection) -> None:
        """Each condition alone; ``after`` is inclusive, ``before`` exclusive, and a box includes its edges."""
        files = {
            "plain": picture("a/plain.jpg"),
            "clip": picture("a/b/clip.mp4", kind="video"),
            "early": picture("ab/early.jpg", taken=100.0),
            "late": picture("late.jpg", taken=200.0),
            "fiji": picture("fiji.jpg", latitude=-17.0, longitude=178.0),
            "samoa": picture("samoa.jpg", latitude=-14.0, longitude=-172.0),
        }
        writer.add([Entry(file, (Moment(VECTORS[0]),)) for file in files.values()])

        def found(**parts: object) -> set[str]:
            hits = writer.search(QUERIES[0], 50, where=Filter(**parts))  # type: ignore[arg-type]
            names = {file.path: name for name, file in files.items()}
            return {names[item.file.path] for item in writer.items(hits.ids.tolist())}

        assert found() == set(files)
        assert found(folder="a") == {"plain", "clip"}
        assert found(folder="a/b") == {"clip"}
        assert found(folder="fiji.jpg") == found(folder="A") == set()
        assert found(kind="video") == {"clip"}
        assert found(after=100.0) == {"early", "late"}
        assert found(before=200.0) == {"early"}
        assert found(after=100.5, before=200.5) == {"late"}
        assert found(within=Box(-17, 178, -14, -172)) == {"fiji", "samoa"}
        assert found(within=Box(-17, -172, -14, 178)) == {"fiji", "samoa"}
        assert found(within=Box(-16, -180, 0, 180)) == {"samoa"}
        assert found(within=Box(-17, 178, -14, 179), kind="video") == set()

    def test_a_folder_of_one_root(self, writer: Collection) -> None:
        """A root excludes equally named folders of other roots; alone, it matches all of its files."""
        places = [
            (root, path) for root in ("/photos", "/phones", "/ph\"o%'s") for path in ("a/x.jpg", "b/x.jpg", "y.jpg")
        ]
        writer.add([entry(path, VECTORS[0], root) for root, path in places])

        def found(**parts: str | None) -> list[tuple[str, str]]:
            hits = writer.search(QUERIES[0], 50, where=Filter(**parts))  # type: ignore[arg-type]
            found = [(item.file.root, item.file.path) for item in writer.items(hits.ids.tolist())]
            assert hits.ids.tolist() == sorted(hits.ids.tolist()), "equal scores come by id"
            return sorted(found, key=places.index)

        for root in ("/photos", "/phones", "/ph\"o%'s"):
            assert found(root=root) == [place for place in places if place[0] == root]
            assert found(root=root, folder="a") == [(root, "a/x.jpg")]
        assert found(folder="a") == [place for place in places if place[1] == "a/x.jpg"]
        assert found(folder="") == found(folder=".") == found(folder="/") == found(folder="a/..") == places
        assert found(folder="./a//") == found(folder="/a") == found(folder="a")
        assert found(root="/phot") == found(root="") == found(root="/photos", folder="x.jpg") == []
