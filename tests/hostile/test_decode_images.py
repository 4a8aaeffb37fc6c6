"""Images that are small and cost much: refused or decoded within limits of time and memory, beside ordinary ones."""

from __future__ import annotations

import importlib.util
import time

import numpy as np
import pytest
from PIL import Image
from tests.hostile import images as hostile
from tests.hostile.bounds import measured
from tests.index.pipeline.support import model, new_collection

from vse._util.workers import WorkerBusyError
from vse.index.pipeline import index_folder
from vse.index.scan import ScanLimits
from vse.inputs import BadImageError, ImageLimits, imagenet, load_pixels, read_image
from vse.inputs.cost import MAX_SCANS, count_scans, too_many_embedded_scans
from vse.inputs.decoding import decode_image, decode_pixels, decoding_deadline, image_thumbnail
from vse.inputs.preprocessing import ImagePreprocessing

HOW = imagenet(64)
SMOOTH = ImagePreprocessing((64, 64), mean=(0, 0, 0), std=(1, 1, 1), resize="bicubic")
PLENTY = 120.0
"""Seconds: a safety limit, since the product itself ends everything here."""


def test_repeated_scans_are_refused_before_decoding():
    """A JPEG with thousands of scans is refused by counting them, also where it is decoded in this process."""
    content = hostile.repeated_scans(3000, side=512)
    assert count_scans(content) > 3000
    for decode in (lambda: read_image(content), lambda: decode_pixels(content, HOW)):
        with pytest.raises(BadImageError, match=rf"scans, at most {MAX_SCANS}"):
            decode()


@pytest.mark.parametrize("many", [True, False])
def test_scans_are_limited_wherever_a_jpeg_is_decoded(many):
    """Behind an end that has no image, in a TIFF and in a lossy DNG."""
    jpeg = hostile.repeated_scans(300 if many else 5, side=64)
    contents = [b"\xff\xd8\xff\xd9" + jpeg, hostile.jpeg_in_tiff(jpeg, 64)]
    if importlib.util.find_spec("rawpy"):
        contents.append(hostile.jpeg_in_tiff(jpeg, 64, raw=True))
    for content in contents:
        if many:
            with pytest.raises(BadImageError, match=r"scans, at most|decoder error"):
                read_image(content)
        else:
            assert read_image(content).shape == (64, 64, 3)


def test_jpegs_within_each_other_take_no_quadratic_time():
    """A RAW file that begins an image at every second byte is refused."""
    content = b"\xff\xd8" * 20_000 + b"\xff\xe5" + (2 + 2 * 300).to_bytes(2, "big") + b"\xff\xda" * 300
    began = time.monotonic()
    assert "within each other" in str(too_many_embedded_scans(content))
    assert time.monotonic() - began < 2


def test_ordinary_progressive_jpeg_passes_scan_limit():
    """A progressive JPEG has about ten scans; images in its metadata or behind it do not count."""
    whole = hostile.repeated_scans(5, side=64)
    assert count_scans(whole) == 15
    segment = b"\xff\xe5" + (2 + 2 * 300).to_bytes(2, "big") + b"\xff\xda" * 300
    content = whole[:2] + segment + whole[2:] + whole * 20
    assert count_scans(content) == 15
    assert read_image(content).shape == (64, 64, 3)


def test_slow_image_is_killed_at_its_deadline():
    """A file that takes too long ends at the limit, and the next one is decoded."""
    content, began = hostile.many_chunks(600_000), time.monotonic()
    with pytest.raises(BadImageError, match=r"took longer than 0\.2 s"):
        decode_pixels(content, HOW, limits=ImageLimits(max_seconds=0.2))
    assert time.monotonic() - began < PLENTY
    assert decode_pixels(hostile.photograph(1), HOW).shape == (3, 64, 64)


def test_context_deadline_is_over_for_waiting_images():
    """Within a request whose time is over nothing is decoded, and the error is not the image's."""
    with decoding_deadline(0.0), pytest.raises(WorkerBusyError):
        decode_pixels(hostile.photograph(1), HOW)


@pytest.mark.parametrize(
    ("make", "sides", "reason"),
    [
        (hostile.flat_png, (20_000, 14_000), "pixels, at most"),
        (hostile.tiff_bomb, (13_000, 13_000), "memory|MB"),
        (hostile.gif_bomb, (60_000, 60_000), "pixels, at most|MB"),
    ],
)
def test_image_bombs_are_refused_with_the_reason(make, sides, reason):
    """Small files of hundreds of megapixels are refused, and no worker grows beyond the budget."""
    content = make(*sides)
    assert len(content) < 2_000_000
    with measured() as found:
        for decode in (lambda: decode_pixels(content, HOW), lambda: image_thumbnail(content, 320, 80)):
            with pytest.raises(BadImageError, match=reason):
                decode()
    found.check(parent=100_000_000)


def test_large_image_is_reduced_while_it_is_converted():
    """100 megapixels of grey take about one byte each, not seventeen, and give the same pixels as a small image."""
    content = hostile.flat_png(10_000, 10_000, colour_type=0)
    np.testing.assert_array_equal(decode_pixels(content, SMOOTH), 0)
    assert decode_image(content, longest=500).shape == (500, 500, 3)
    with pytest.raises(BadImageError, match=r"needs about .* MB to decode, at most 768"):
        decode_image(hostile.flat_png(13_300, 13_300), longest=13_300)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "I;16", "I", "F"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_strips_equal_the_whole_image(mode, orientation, monkeypatch, tmp_path):
    """Converted in strips an image has the same pixels, whatever its mode and orientation."""
    values = np.random.default_rng(0).integers(0, 200, (90, 70), dtype=np.uint8)
    if mode in ("I;16", "I", "F"):
        factor, kind = {"I;16": (300, np.uint16), "I": (200, np.int32), "F": (1 / 255, np.float32)}[mode]
        image = Image.fromarray((values * np.float64(factor)).astype(kind))
    else:
        image = Image.fromarray(values).convert(mode)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / ("a.tif" if mode in ("I", "F") else "a.png")
    image.save(path, exif=exif)
    whole = read_image(path)
    monkeypatch.setattr("vse.inputs.images.LARGE", 800)
    monkeypatch.setattr("vse.inputs.cost.LARGE", 800)
    np.testing.assert_array_equal(read_image(path), whole)
    reduced = read_image(path, at_least=(20, 20))
    assert reduced.shape == (-(-whole.shape[0] // 3), -(-whole.shape[1] // 3), 3)
    box = whole[:3, :3].astype(float).mean(axis=(0, 1))
    if orientation == 1:
        np.testing.assert_allclose(reduced[0, 0], box, atol=2)


def test_worker_pixels_equal_those_of_this_process(tmp_path):
    """Paths and bytes give the pixels of ``load_pixels``; arrays need no worker."""
    path = tmp_path / "a.jpg"
    path.write_bytes(hostile.photograph(3))
    expected = load_pixels(path, SMOOTH)
    np.testing.assert_array_equal(decode_pixels(path, SMOOTH), expected)
    np.testing.assert_array_equal(decode_pixels(path.read_bytes(), SMOOTH), expected)
    np.testing.assert_array_equal(decode_pixels(read_image(path), SMOOTH), expected)


def test_hostile_file_does_not_stop_indexing(tmp_path):
    """Of 41 files the hostile ones are listed with their reasons, and all photographs are indexed."""
    root = tmp_path / "photos"
    root.mkdir()
    (root / "000 first.jpg").write_bytes(hostile.repeated_scans(3000, side=512))
    (root / "001 slow.png").write_bytes(hostile.many_chunks(1_000_000))
    (root / "002 large.png").write_bytes(hostile.flat_png(20_000, 14_000))
    for number in range(40):
        (root / f"{number + 100}.jpg").write_bytes(hostile.photograph(number))
    limits = ScanLimits(image=ImageLimits(max_seconds=1.0))
    with new_collection(tmp_path / "index.vse") as collection:
        report = index_folder(collection, model(), root, limits=limits, commit_seconds=0.2)
        assert report.new == 40
        assert len(list(collection.files(str(root)))) == 40
    reasons = {problem.path: problem.reason for problem in report.problems}
    assert sorted(reasons) == ["000 first.jpg", "001 slow.png", "002 large.png"]
    assert "scans" in reasons["000 first.jpg"]
    assert "took longer than 1 s" in reasons["001 slow.png"] or "memory" in reasons["001 slow.png"]
    assert "pixels" in reasons["002 large.png"]
