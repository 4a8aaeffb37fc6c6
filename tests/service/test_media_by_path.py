"""Files are opened safely on systems without ``dir_fd`` and ``O_DIRECTORY``, such as Windows."""

from __future__ import annotations

import sys

import pytest
from tests.index.examples import picture

from vse.service import media
from vse.service.problems import ProblemError


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(b"content")
    monkeypatch.setattr(media, "BY_DESCRIPTOR", False)
    monkeypatch.setattr(media, "_served", [media.ServedRoots("", [str(tmp_path)])])
    for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"):
        monkeypatch.delattr(media.os, name, raising=False)
    return tmp_path


def test_file_is_opened_by_path(root):
    """Size and content are those of the file."""
    opened = media.open_media(picture("in/a.jpg", root=str(root)))
    assert (opened.size, opened.read(100)) == (7, b"content")
    opened.stream.close()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights here")
@pytest.mark.parametrize("path", ["link/a.jpg", "in/secret.jpg", "in/none.jpg", "in", "../x.jpg"])
def test_links_are_refused_by_path(root, path):
    """Links on the way and at the end, folders and missing files are not found."""
    (root / "link").symlink_to(root / "in")
    (root / "in" / "secret.jpg").symlink_to("/etc/hostname")
    with pytest.raises(ProblemError, match="file not found"):
        media.open_media(picture(path, root=str(root)))
