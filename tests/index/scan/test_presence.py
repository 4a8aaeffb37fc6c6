"""An unmounted disk is not an empty folder."""

from __future__ import annotations

import os

import pytest

from vse.index.scan import why_absent


def test_a_folder_is_there(tmp_path):
    """With files, whatever was known; empty, if nothing was known."""
    assert why_absent(tmp_path) is None
    (tmp_path / "a.jpg").touch()
    assert why_absent(tmp_path, known=1000) is None
    assert why_absent(str(tmp_path)) is None


def test_empty_mount_point_counts_as_absent(tmp_path):
    """A folder that held files and is now empty, except for hidden entries, counts as unmounted."""
    assert why_absent(tmp_path, known=3) is not None
    (tmp_path / ".Trash").mkdir()
    assert "held 3 files" in why_absent(tmp_path, known=3)


def test_missing_folder_counts_as_absent(tmp_path):
    """A missing path, a file, an impossible name."""
    (tmp_path / "file").touch()
    assert why_absent(tmp_path / "none") == "no such folder"
    assert why_absent(tmp_path / "file") == "not a folder"
    assert why_absent(tmp_path / "file" / "below") is not None
    assert why_absent("null\0") is not None


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(107, "not connected")])
def test_unreadable_folder_counts_as_absent(tmp_path, monkeypatch, error):
    """Lost connections and missing permissions, simulated because root can read everything."""

    def scandir(_place):
        raise error

    monkeypatch.setattr(os, "scandir", scandir)
    assert why_absent(tmp_path) == f"cannot be read ({error.strerror})"
