"""What differs on Windows and macOS: each case with the platform that it is about put in place of this one."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.index.examples import picture

from vse._util import atomic, prefetch
from vse._util.walk import walk_files
from vse.errors import InputError
from vse.index.milvus import connection
from vse.index.scan import walk
from vse.service import media, server
from vse.service.problems import ProblemError
from vse.service.settings import ServiceSettings


def test_drive_without_inodes_is_walked(tmp_path, monkeypatch):
    """All folders of some network drives have inode 0 on Windows: none is mistaken for another."""
    for name in ("a/b/x.jpg", "c/y.jpg", "z.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    real = Path.stat

    def without_inodes(self, **options):
        status = real(self, **options)
        return SimpleNamespace(st_dev=1, st_ino=0, st_mode=status.st_mode)

    monkeypatch.setattr(Path, "stat", without_inodes)
    assert list(walk_files(tmp_path, lambda *_: None)) == ["a/b/x.jpg", "c/y.jpg", "z.jpg"]
    scan = walk(tmp_path)
    assert [found.path for found in scan] == ["a/b/x.jpg", "c/y.jpg", "z.jpg"]
    assert scan.problems == []


@pytest.mark.parametrize("refusals", [0, 3, 10**6])
def test_replacing_waits_for_readers_on_windows(tmp_path, monkeypatch, refusals):
    """A file that a reader has open cannot be replaced there for a moment; elsewhere there is no waiting."""
    attempts = []
    real = Path.replace

    def refused(self, target):
        attempts.append(self)
        if len(attempts) <= refusals:
            raise PermissionError(13, "in use")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", refused)
    monkeypatch.setattr(atomic, "REPLACE_PAUSE", 0)
    monkeypatch.setattr(atomic, "os", SimpleNamespace(**{**vars(os), "name": "nt"}))
    if refusals < atomic.REPLACE_ATTEMPTS:
        atomic.write_text(tmp_path / "a.txt", "new")
        assert (tmp_path / "a.txt").read_text() == "new"
    else:
        with pytest.raises(PermissionError):
            atomic.write_text(tmp_path / "a.txt", "new")
        assert list(tmp_path.iterdir()) == []


def test_port_is_exclusive_on_windows(monkeypatch):
    """SO_REUSEADDR means something else there."""
    asked = []

    class Listener(socket.socket):
        def setsockopt(self, level, option, value):
            asked.append(option)

    monkeypatch.setattr(server.socket, "socket", Listener)
    monkeypatch.setattr(server.socket, "SO_EXCLUSIVEADDRUSE", -5, raising=False)
    server.listen(ServiceSettings(port=0)).close()
    assert asked == [-5]


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_memory_arenas_are_left_alone_elsewhere(monkeypatch, platform):
    """CDLL(None) is a TypeError on Windows."""

    def fails(*_):
        raise TypeError("LoadLibrary() argument 1 must be str, not None")

    monkeypatch.setattr(server.ctypes, "CDLL", fails)
    monkeypatch.setattr(server.sys, "platform", platform)
    server._limit_arenas()


@pytest.mark.parametrize("path", ["C:\\x.jpg", "in/C:", "in/..\\..\\x.jpg", "in\\a.jpg", "a.jpg:stream", "\\\\host\\x"])
def test_windows_paths_stay_below_their_root(tmp_path, monkeypatch, path):
    """A drive, a stream or a backslash within a part would leave the folder."""
    monkeypatch.setattr(media, "BY_DESCRIPTOR", False)
    monkeypatch.setattr(media, "_served", [media.ServedRoots("", [str(tmp_path)])])
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"x")
    with pytest.raises(ProblemError, match="file not found"):
        media.open_media(picture(path, root=str(tmp_path)))
    assert media.is_missing(picture(path, root=str(tmp_path)))


@pytest.mark.parametrize(("tag", "shown"), [(0, True), (0x9000601A, True), (0xA000000C, False), (0xA0000003, False)])
def test_cloud_files_are_shown_and_junctions_not(tmp_path, monkeypatch, tag, shown):
    """Files in OneDrive have a reparse tag, as links and junctions do."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(b"content")
    real = os.lstat

    def tagged(path):
        status = real(path)
        names = ("st_mode", "st_dev", "st_ino", "st_size")
        return SimpleNamespace(**{name: getattr(status, name) for name in names}, st_reparse_tag=tag)

    monkeypatch.setattr(media, "BY_DESCRIPTOR", False)
    monkeypatch.setattr(media, "_served", [media.ServedRoots("", [str(tmp_path)])])
    monkeypatch.setattr(media.os, "lstat", tagged)
    assert media.is_available(replace(picture("in/a.jpg"), root=str(tmp_path))) is shown


def test_milvus_lite_is_refused_on_windows(tmp_path, monkeypatch):
    """One line that says what works instead."""
    monkeypatch.setattr(connection.sys, "platform", "win32")
    with pytest.raises(InputError, match="does not run on Windows: use a Milvus server"):
        connection.start(tmp_path / "a.db")


def test_cores_are_counted_without_affinity(monkeypatch):
    """Neither Windows nor macOS has sched_getaffinity."""
    monkeypatch.delattr(prefetch.os, "sched_getaffinity", raising=False)
    assert prefetch.available_cores() >= 1
