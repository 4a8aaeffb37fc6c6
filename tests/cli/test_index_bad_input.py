"""``vse index`` on a folder with every kind of bad file.

Each bad file is named with a reason of one line, each good one is indexed, and the command succeeds.
"""

from __future__ import annotations

import io
import os
import socket
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pillow_heif
import pytest
from PIL import Image
from tests.cli.search_support import printed, reported, saved_folder
from tests.inputs.pictures import encoded, gradient
from tests.support_models import picture
from tests.support_rights import ordinary_rights

from vse.cli.main import main
from vse.index.open import open_collection

NOT_UTF8 = b"caf\xe9.jpg"
LINE = "two\nlines.jpg"
RED, BLUE = (np.full((30, 50, 3), colour, np.uint8) for colour in ((220, 30, 30), (20, 40, 200)))


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_bomb() -> bytes:
    """A header of 100,000 x 100,000 pixels without data."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def heif() -> bytes:
    stream = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(picture(1))).save(stream, quality=90)
    return stream.getvalue()


def animation() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(RED).save(stream, "GIF", save_all=True, append_images=[Image.fromarray(BLUE)])
    return stream.getvalue()


GOOD = {
    "photo.jpg": encoded(picture(2), "JPEG"),
    "a.webp": encoded(picture(3), "WEBP"),
    "a.tiff": encoded(picture(4), "TIFF"),
    "a.bmp": encoded(picture(5), "BMP"),
    "a.avif": encoded(picture(6), "AVIF"),
    "a.heic": heif(),
    "moving.gif": animation(),
    "panorama.jpg": encoded(gradient(200, 30_000), "JPEG"),
    "ünï/写真 \U0001f3d6.png": encoded(picture(7), "PNG"),
    "[bold]%s{0}.png": encoded(picture(8), "PNG"),
    LINE: encoded(picture(9), "JPEG"),
    "-k.png": encoded(picture(10), "PNG"),
}
BAD = {
    "bomb.png": (png_bomb(), "100000 x 100000 pixels"),
    "truncated.jpg": (encoded(gradient(200, 300), "JPEG")[:2000], "truncated"),
    "text.jpg": (b"only a note", "not an image"),
    "empty.jpg": (b"", "empty"),
    "zeros.png": (bytes(5000), "not an image"),
    "broken.heic": (heif()[:200], ""),
    "text.mp4": (b"only a note", "not a video"),
    "empty.mov": (b"", "empty"),
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The JSON of ``vse index`` for the folder, and the index."""
    home = tmp_path_factory.mktemp("bad")
    root = home / "photos"
    for name, content in {**GOOD, **{name: content for name, (content, _) in BAD.items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    Path(os.fsdecode(os.path.join(os.fsencode(root), NOT_UTF8))).write_bytes(GOOD["photo.jpg"])  # noqa: PTH118
    (root / "loop").symlink_to(root)
    (root / "self.jpg").symlink_to("self.jpg")
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    os.mkfifo(root / "pipe.jpg")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(root / "socket.jpg"))  # a whole path may be too long for a socket
    (root / "folder.jpg").mkdir()
    index = home / "photos.vse"
    output, code = printed("index", root, "--into", index, "--model", saved_folder())
    (report,) = output["folders"]
    problems = {problem["path"]: problem["reason"] for problem in report["problems"]}
    return SimpleNamespace(root=root, index=index, code=code, report=report, problems=problems)


def test_index_skips_bad_files(done):
    """The command succeeds, and exactly the good files are indexed."""
    assert done.code == 0
    with open_collection(done.index) as collection:
        assert {file.path for file in collection.files()} == set(GOOD)
        assert collection.info().items == len(GOOD)
    assert done.report["new"] == len(GOOD)


@pytest.mark.parametrize("name", BAD)
def test_index_names_bad_file_with_reason(done, name):
    """In one line."""
    assert BAD[name][1] in done.problems[name]
    assert done.problems[name]
    assert "\n" not in done.problems[name]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("caf\\udce9.jpg", "not UTF-8"),
        ("pipe.jpg", "not a regular file"),
        ("socket.jpg", "not a regular file"),
        ("self.jpg", "dangling symlink"),
        ("one", "dangling symlink"),
        ("two", "dangling symlink"),
    ],
)
def test_index_names_pipes_sockets_and_circular_links(done, path, reason):
    """Circular links, pipes, sockets and invalid names; nothing blocks."""
    assert reason in done.problems[path]


def test_index_ignores_folder_with_image_suffix_and_loops(done):
    """A folder named like an image and a link to the folder itself are not problems."""
    named = {*BAD, "caf\\udce9.jpg", "pipe.jpg", "socket.jpg", "self.jpg", "one", "two"}
    assert set(done.problems) == named


def test_index_names_unreadable_folder(tmp_path):
    """The rest is indexed, and known files below it are kept."""
    root, locked = tmp_path / "photos", tmp_path / "photos" / "locked"
    locked.mkdir(parents=True)
    for place in (root, locked):
        (place / "photo.jpg").write_bytes(GOOD["photo.jpg"])
    arguments = ("index", root, "--into", tmp_path / "photos.vse")
    assert reported(*arguments, "--model", saved_folder())["files"] == 2
    (root / "new.bmp").write_bytes(GOOD["a.bmp"])
    locked.chmod(0)
    try:
        with ordinary_rights():
            output, code = printed(*arguments)
    finally:
        locked.chmod(0o700)
    (report,) = output["folders"]
    assert (code, output["files"]) == (0, 3)
    assert (report["new"], report["kept"], report["removed"]) == (1, 1, 0)
    assert report["problems"] == [{"path": "locked", "reason": "the folder cannot be read (Permission denied)"}]


def test_index_names_path_that_is_too_long(tmp_path):
    """Nested folders whose path no system call accepts."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "photo.jpg").write_bytes(GOOD["photo.jpg"])
    at = os.open(tmp_path / "photos", os.O_RDONLY)
    for _ in range(20):
        os.mkdir("n" * 250, dir_fd=at)
        at, outer = os.open("n" * 250, os.O_RDONLY, dir_fd=at), at
        os.close(outer)
    os.close(at)
    output = reported("index", tmp_path / "photos", "--into", tmp_path / "photos.vse", "--model", saved_folder())
    assert output["files"] == 1
    assert "File name too long" in output["folders"][0]["problems"][0]["reason"]


def test_index_uses_first_frame_of_animation(done, tmp_path):
    """A search with that frame finds the animation first."""
    Image.fromarray(RED).save(tmp_path / "red.png")
    found = reported("search", done.index, "--image", tmp_path / "red.png", "-k", 1)
    assert found["results"][0]["path"] == str(done.root / "moving.gif")
    assert found["results"][0]["score"] == pytest.approx(1, abs=1e-4)


def test_second_index_run_reports_bad_files_again(done):
    """Bad files are retried; good ones are skipped."""
    (report,) = reported("index", done.root, "--into", done.index)["folders"]
    assert (report["new"], report["unchanged"], report["removed"]) == (0, len(GOOD), 0)
    assert {problem["path"]: problem["reason"] for problem in report["problems"]} == done.problems


def test_index_prints_one_line_per_problem(done, capsys):
    """Whatever the names contain."""
    assert main(["index", str(done.root), "--into", str(done.index)]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if "could not be used" in line)
    assert len([line for line in lines[start + 1 :] if line.startswith("  ")]) == len(done.problems)


def test_search_escapes_odd_names(done, capsys):
    """A name with a line end is one line of text and unchanged in JSON; markup and options in names have no effect."""
    assert main(["search", str(done.index), "snow", "-k", "50"]) == 0
    shown = capsys.readouterr().out
    assert "two\\nlines.jpg" in shown
    assert "[bold]%s{0}.png" in shown
    assert len(shown.splitlines()) == len(GOOD)
    found = reported("search", done.index, "snow", "-k", 50)
    assert {result["path"] for result in found["results"]} == {str(done.root / name) for name in GOOD}
