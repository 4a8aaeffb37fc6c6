"""A found file becomes a described file, or one problem."""

from __future__ import annotations

import calendar
import io
import os
import struct
import sys
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.index.scan.support import exif_of, gps_of
from tests.inputs.pictures import encoded, gradient, with_orientation
from tests.inputs.video.clips import write_clip

from vse.index.scan import Found, Problem, ScanLimits, describe, digest, walk
from vse.index.scan.metadata import METADATA_VERSION
from vse.index.types import MediaFile
from vse.inputs import ImageLimits, read_image

PICTURE = gradient(12, 20)


def heif(picture, **options):
    stream = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(picture)).save(stream, quality=90, **options)
    return stream.getvalue()


def describe_all(root, **options):
    scan = walk(root)
    found = [describe(file, root, **options) for file in scan]
    assert scan.problems == []
    return found


def described(root, name, content, **options):
    (root / name).write_bytes(content)
    return describe(Found(name, len(content), (root / name).stat().st_mtime_ns, "image"), root, **options)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "HEIF"])
def test_describe_every_image_format(tmp_path, file_format):
    """Size, digest, modification time and path below the root."""
    content = heif(PICTURE) if file_format == "HEIF" else encoded(PICTURE, file_format)
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / f"é.{file_format.lower().replace('jpeg', 'jpg')}"
    path.write_bytes(content)
    (file,) = describe_all(tmp_path)
    assert file == MediaFile(
        root=str(tmp_path),
        path=f"sub/{path.name}",
        kind="image",
        size=len(content),
        modified=path.stat().st_mtime_ns,
        digest=digest(path),
        width=20,
        height=12,
        metadata_version=METADATA_VERSION,
    )


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_described_size_is_upright(tmp_path, file_format, orientation):
    """The size is that of the upright image, as decoded later."""
    content = encoded(PICTURE, file_format, exif=with_orientation(orientation))
    file = described(tmp_path, "a.jpg", content)
    assert (file.height, file.width) == read_image(content).shape[:2]
    assert (file.width, file.height) == ((12, 20) if orientation >= 5 else (20, 12))


def test_described_heif_size_is_upright(tmp_path):
    """The HEIF decoder rotates images by itself."""
    content = heif(PICTURE, exif=with_orientation(6).tobytes())
    file = described(tmp_path, "a.heic", content)
    assert (file.height, file.width) == read_image(content).shape[:2]


@pytest.mark.parametrize("behind", [False, True])
def test_describe_reads_png_exif(tmp_path, behind):
    """EXIF of a PNG is read before and after the pixels."""
    content = encoded(PICTURE, "PNG", exif=with_orientation(6))
    start = content.index(b"eXIf") - 4
    length = struct.unpack_from(">I", content, start)[0] + 12
    chunk, rest = content[start : start + length], content[:start] + content[start + length :]
    end = len(rest) - 12 if behind else rest.index(b"IDAT") - 4
    content = rest[:end] + chunk + rest[end:]
    file = described(tmp_path, "a.png", content)
    assert (file.width, file.height) == (12, 20)
    assert read_image(content).shape[:2] == (20, 12)


def test_describe_reads_time_and_place(tmp_path):
    """From the EXIF of every format that has it."""
    gps = gps_of((48, 30, 0), (9, 15, 36), ("S", "W"))
    exif = exif_of(camera={0x9003: "2021:05:06 07:08:09", 0x9291: "5"}, gps=gps).tobytes()
    contents = [encoded(PICTURE, name, exif=exif) for name in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF")]
    for content in [*contents, heif(PICTURE, exif=exif)]:
        file = described(tmp_path, "a.jpg", content)
        assert file.taken == calendar.timegm((2021, 5, 6, 7, 8, 9)) + 0.5
        assert (file.latitude, file.longitude) == pytest.approx((-48.5, -9.26))
        assert file.duration is None


def test_describe_keeps_captions(tmp_path):
    assert described(tmp_path, "a.png", encoded(PICTURE, "PNG"), captions=("a", "b")).captions == ("a", "b")


def test_describe_animation(tmp_path):
    """An animated GIF is an image with the size of its first frame."""
    more = [Image.fromarray(PICTURE[::-1]), Image.fromarray(PICTURE)]
    file = described(tmp_path, "a.gif", encoded(PICTURE, "GIF", save_all=True, append_images=more))
    assert (file.kind, file.width, file.height, file.duration) == ("image", 20, 12, None)


def test_describe_panorama_without_decoding(tmp_path):
    """An image 30,000 pixels wide is accepted without decoding it."""
    file = described(tmp_path, "a.png", encoded(np.zeros((500, 30_000), np.uint8), "PNG"))
    assert (file.width, file.height) == (30_000, 500)


def test_describe_refuses_decompression_bombs(tmp_path):
    """A tiny file that declares a huge image is rejected by its header, and so is a file above the limits."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    assert "100000 x 100000 pixels" in described(tmp_path, "a.png", bomb).reason
    content = encoded(PICTURE, "BMP")
    for limits in (ImageLimits(max_bytes=len(content) - 1), ImageLimits(max_pixels=239)):
        assert "at most" in described(tmp_path, "a.bmp", content, limits=ScanLimits(image=limits)).reason
    limits = ScanLimits(image=ImageLimits(max_bytes=len(content), max_pixels=240))
    assert isinstance(described(tmp_path, "a.bmp", content, limits=limits), MediaFile)


def test_describe_refuses_other_content(tmp_path):
    """An empty file, text, a folder, a missing file, a pipe and an impossible name are problems."""
    assert described(tmp_path, "empty.jpg", b"") == Problem("empty.jpg", "empty")
    assert "not an image" in described(tmp_path, "text.jpg", b"hello").reason
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    for kind in ("image", "video"):
        names = ("folder.jpg", "pipe.jpg", "gone.jpg", "a\0.jpg")
        problems = [describe(Found(name, 1, 1, kind), tmp_path) for name in names]
        assert [problem.path for problem in problems] == list(names)
        assert problems[0].reason in ("a folder", "not a regular file")
        assert [problem.reason for problem in problems[1:3]] == ["not a regular file", "no such file"]
        assert "null character" in problems[3].reason


def test_describe_accepts_truncated_image(tmp_path):
    """The header is intact, so the file is described; decoding it fails later."""
    content = encoded(gradient(200, 300), "JPEG")
    file = described(tmp_path, "a.jpg", content[: len(content) // 2])
    assert (file.width, file.height) == (300, 200)


def test_describe_reports_file_that_changes_while_read(tmp_path, monkeypatch):
    """A file that changes during the read is a problem, so that metadata and digest never disagree."""
    module = sys.modules["vse.index.scan.describe"]
    reading = module.file_content

    def slow(path, *rest):
        content = reading(path, *rest)
        path.write_bytes(content + b"more")
        return content

    monkeypatch.setattr(module, "file_content", slow)
    assert "changed while it was read" in described(tmp_path, "a.png", encoded(PICTURE, "PNG")).reason


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mov", "clip.mkv", "clip.webm", "clip.avi"])
def test_describe_video(tmp_path, name):
    """Duration and size; the digest covers the whole file."""
    codec = {"clip.webm": "libvpx-vp9", "clip.avi": "mpeg4"}.get(name, "libx264")
    write_clip(tmp_path / name, seconds=3, codec=codec)
    (file,) = describe_all(tmp_path)
    assert (file.kind, file.width, file.height) == ("video", 64, 48)
    assert file.duration == pytest.approx(3, abs=0.01)
    assert file.digest == digest(tmp_path / name)
    assert file.taken is None


@pytest.mark.parametrize(("angle", "size"), [(0, (64, 48)), (90, (48, 64)), (-90, (48, 64)), (180, (64, 48))])
def test_describe_rotated_video(tmp_path, angle, size):
    """The size is that of the displayed video."""
    write_clip(tmp_path / "a.mp4", seconds=1, turn=lambda stream: stream.set_display_rotation(angle))
    assert [(file.width, file.height) for file in describe_all(tmp_path)] == [size]


def test_describe_video_with_wide_pixels(tmp_path):
    """The size is in square pixels."""
    write_clip(tmp_path / "a.mp4", seconds=1, aspect=Fraction(4, 3))
    assert [(file.width, file.height) for file in describe_all(tmp_path)] == [(85, 48)]


UTC = "2021-05-06T07:08:09.250000Z"
KEEP_TAGS = {"movflags": "use_metadata_tags"}
LOCAL = "2021-05-06T09:08:09+0200"


@pytest.mark.parametrize(
    ("name", "metadata", "hour"),
    [
        ("a.mp4", {"creation_time": UTC}, 7),
        ("a.mkv", {"creation_time": UTC}, 7),
        ("a.mov", {"creation_time": UTC, "com.apple.quicktime.creationdate": LOCAL}, 9),
        ("a.mp4", {"creation_time": "1904-01-01T00:00:00Z"}, None),
        ("a.mkv", {"date": "last summer"}, None),
        ("a.mkv", {"title": "caf\xe9"}, None),
    ],
)
def test_describe_reads_video_time(tmp_path, name, metadata, hour):
    """Local time if the file has it; container epochs and plain words are ignored."""
    write_clip(tmp_path / name, seconds=1, metadata=metadata, options=KEEP_TAGS if name == "a.mov" else {})
    (file,) = describe_all(tmp_path)
    if hour is None:
        assert file.taken is None
    else:
        assert int(file.taken) == calendar.timegm((2021, 5, 6, hour, 8, 9))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("+48.8577+002.2950+035.1/", (48.8577, 2.295)),
        ("-33.5-070.25/", (-33.5, -70.25)),
        ("+00.0+000.0/", (None, None)),
        ("+95.0+002.0/", (None, None)),
        ("Paris", (None, None)),
    ],
)
def test_describe_reads_video_place(tmp_path, text, place):
    """In the format that phones write."""
    metadata = {"com.apple.quicktime.location.ISO6709": text}
    write_clip(tmp_path / "a.mov", seconds=1, metadata=metadata, options=KEEP_TAGS)
    assert [(file.latitude, file.longitude) for file in describe_all(tmp_path)] == [place]


NOTES = exif_of(camera={0x9003: "2021:05:06 07:08:09"})
CONTENTS = {name: encoded(PICTURE, name, exif=NOTES) for name in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF")}
CONTENTS |= {"GIF": encoded(PICTURE, "GIF"), "BMP": encoded(PICTURE, "BMP"), "HEIF": heif(PICTURE)}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.filterwarnings("ignore")
@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_describe_corrupt_image_gives_file_or_problem(tmp_path, name, data):
    """Flipped, cut or inserted bytes give a file or a problem, and nothing else."""
    content = bytearray(CONTENTS[name])
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, max(len(content) - 1, 0)))
        change = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if change == "flip" and content:
            content[position] ^= data.draw(st.integers(1, 255))
        elif change == "cut":
            del content[position:]
        else:
            content[position:position] = data.draw(st.binary(max_size=8))
    found = described(tmp_path, "a.jpg", bytes(content), limits=ScanLimits(image=ImageLimits(max_pixels=4_000_000)))
    assert isinstance(found, MediaFile | Problem)
    assert isinstance(found, Problem) or min(found.width, found.height) >= 1


def test_described_size_matches_decoded_size(shared_data):
    """Every image of a real folder has the size it is decoded with."""
    folders = {path.parent for path in Path(shared_data).rglob("*.jpg")}
    if not folders:
        pytest.skip("no photographs in the data")
    root = min(folders)
    for found, _ in zip(walk(root), range(20), strict=False):
        file = describe(found, root)
        assert isinstance(file, MediaFile)
        assert (file.height, file.width) == read_image(root / found.path).shape[:2]
