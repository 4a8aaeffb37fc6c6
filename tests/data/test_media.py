"""Which videos a folder stands for, and under which names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.clip_support import write_clips

from vse.data.media import find_videos, media_kinds
from vse.errors import InputError


def test_video_ids_are_paths_without_suffix(tmp_path):
    """Sorted; endings in any case, dots within a name, none at all; images, texts and hidden files skipped."""
    write_clips(tmp_path, "b.mp4", "x/a.b.MOV", "x/y/c.webm", ".hidden.mp4", ".cache/d.mp4")
    shutil.copy(tmp_path / "b.mp4", tmp_path / "x" / "bare")
    (tmp_path / "note.txt").write_text("x")
    (tmp_path / "page").write_text("x")
    (tmp_path / "photo.jpg").write_bytes(b"x")
    found = find_videos(tmp_path)
    assert found.ids == ("b", "x_a.b", "x_bare", "x_y_c")
    assert [path.relative_to(tmp_path).as_posix() for path in found.paths] == [
        "b.mp4",
        "x/a.b.MOV",
        "x/bare",
        "x/y/c.webm",
    ]
    assert found[2] == found.paths[2]
    assert len(found) == 4


@pytest.mark.parametrize("other", ["a_b.mp4", "a/b.webm"])
def test_find_videos_refuses_duplicate_id(tmp_path, other):
    """Both are named."""
    write_clips(tmp_path, "a/b.mp4", other)
    with pytest.raises(InputError, match="are both video 'a_b'") as caught:
        find_videos(tmp_path)
    assert "a/b.mp4" in str(caught.value)
    assert other in str(caught.value)


def test_video_files_follow_links_once(tmp_path):
    """Followed, each folder once, so that a loop ends."""
    write_clips(tmp_path / "clips", "x/a.mp4")
    write_clips(tmp_path / "elsewhere", "b.mp4")
    (tmp_path / "clips" / "x" / "up").symlink_to(tmp_path / "clips")
    (tmp_path / "clips" / "linked").symlink_to(tmp_path / "elsewhere")
    assert find_videos(tmp_path / "clips").ids == ("linked_b", "x_a")


def test_find_videos_reports_name_that_is_not_utf8(tmp_path):
    """Such a file has no id: it is reported, and the others are found."""
    write_clips(tmp_path, "a.mp4")
    try:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.mp4"))).write_bytes(b"x")
    except OSError:
        pytest.skip("the file system takes UTF-8 alone")
    found = find_videos(tmp_path)
    assert found.ids == ("a",)
    assert [problem.reason for problem in found.problems] == ["its name is not UTF-8: rename it"]


@pytest.mark.parametrize(("place", "said"), [("gone", "does not exist"), ("file", "not a folder"), (".", "no videos")])
def test_video_files_refuse_folder_without_videos(tmp_path, place, said):
    """One line each."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=said):
        find_videos(tmp_path / place)


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (["a.mp4", "b/c.webm"], {"video"}),
        (["a.jpg"], {"image"}),
        (["a.jpg", "b/c.mov"], {"image", "video"}),
        ([], set()),
    ],
)
def test_folder_kind_follows_file_names(tmp_path, names, kinds):
    """By the names; a file need not be read."""
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "note.txt").write_text("x")
    assert media_kinds(tmp_path) == kinds
