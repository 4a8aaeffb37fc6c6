"""Patterns and symlinks are remembered per folder; what they leave out is removed and counted."""

from __future__ import annotations

import sys

import pytest
from tests.index.pipeline.support import counts, model, new_collection, save_picture
from tests.inputs.raw_files import dng
from tests.inputs.test_optional_formats import QUARTERS

from vse.errors import InputError
from vse.index.pipeline import index_folder
from vse.index.watching import snapshot


@pytest.fixture
def root(tmp_path):
    for seed, path in enumerate(("a.png", "drafts/b.png", "trip/c.png")):
        save_picture(tmp_path / "photos", path, seed)
    return tmp_path / "photos"


@pytest.fixture
def collection(tmp_path):
    with new_collection(tmp_path / "index.vse") as made:
        yield made


def paths(collection):
    return [file.path for file in collection.files()]


def test_excluded_files_are_removed_and_remembered(collection, root):
    """The next runs need no pattern; an empty list forgets it, and the files are new again."""
    index_folder(collection, model(), root)
    report = index_folder(collection, model(), root, exclude=["drafts/"])
    assert counts(report) == {"excluded": 1, "unchanged": 2}
    assert report.to_json()["excluded"] == 1
    assert counts(index_folder(collection, model(), root)) == {"unchanged": 2}
    assert paths(collection) == ["a.png", "trip/c.png"]
    assert counts(index_folder(collection, model(), root, exclude=[""])) == {"new": 1, "unchanged": 2}
    assert collection.settings() == {"folders": {}}


def test_ignore_file_takes_effect_and_is_watched(collection, root):
    """Writing one changes the snapshot that a watch compares."""
    index_folder(collection, model(), root)
    before = snapshot(str(root))
    (root / ".vseignore").write_text("/trip\n")
    assert snapshot(str(root)) != before
    assert counts(index_folder(collection, model(), root)) == {"excluded": 1, "unchanged": 2}


def test_bad_pattern_changes_nothing(collection, root):
    """It is refused before anything is scanned, and the remembered ones stay."""
    index_folder(collection, model(), root, exclude=["drafts/"])
    with pytest.raises(InputError, match="is no pattern"):
        index_folder(collection, model(), root, exclude=["!"])
    assert counts(index_folder(collection, model(), root)) == {"unchanged": 2}


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights here")
def test_followed_links_are_remembered(collection, root, tmp_path):
    """The problem names the option; with it each file is found once, and later runs keep following."""
    save_picture(tmp_path / "other", "d.png", 7)
    (root / "link").symlink_to(tmp_path / "other")
    (root / "again").symlink_to(tmp_path / "other" / "d.png")
    report = index_folder(collection, model(), root)
    assert counts(report) == {"new": 3, "problems": 2}
    assert report.problems[1].reason.endswith("outside the folder: add --follow-links, or index that folder")
    assert counts(index_folder(collection, model(), root, follow_links=True)) == {"new": 1, "unchanged": 3}
    assert counts(index_folder(collection, model(), root)) == {"unchanged": 4}
    assert counts(index_folder(collection, model(), root, follow_links=False))["removed"] == 1


def test_settings_survive_upgrade(collection, root, tmp_path):
    """The next generation is scanned like the one before."""
    index_folder(collection, model(), root, exclude=["drafts/"])
    with collection.new_generation(model="other", model_source="elsewhere", dimensions=4) as new:
        new.commit()
    collection.close()
    with type(collection).open(tmp_path / "index.vse") as opened:
        assert opened.settings()["folders"][str(root)]["exclude"] == ["drafts/"]


def test_raw_files_are_indexed_like_images(collection, root):
    """A DNG is found by its name and decoded by its content."""
    (root / "camera.dng").write_bytes(dng(QUARTERS, taken="2023:05:06 07:08:09"))
    assert counts(index_folder(collection, model(), root)) == {"new": 4}
    (file,) = (file for file in collection.files() if file.path == "camera.dng")
    assert (file.width, file.height, file.kind, file.taken) == (128, 96, "image", 1683356889.0)
