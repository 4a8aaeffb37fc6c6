"""Camera RAW and JPEG XL decode like other images; without their library the reason names what to install."""

from __future__ import annotations

import sys

import numpy as np
import pillow_jxl  # noqa: F401 - registers the writer of JPEG XL
import pytest
from PIL import Image
from tests.inputs.pictures import encoded, gradient, with_orientation
from tests.inputs.raw_files import dng

from vse.index.scan.metadata import picture_facts
from vse.inputs.images import BadImageError, ImageLimits, check_image, read_image
from vse.inputs.optional_formats import is_raw

HEIGHT, WIDTH = 96, 128
QUARTERS = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
QUARTERS[: HEIGHT // 2, : WIDTH // 2] = (200, 40, 40)
QUARTERS[: HEIGHT // 2, WIDTH // 2 :] = (40, 200, 40)
QUARTERS[HEIGHT // 2 :, : WIDTH // 2] = (40, 40, 200)
QUARTERS[HEIGHT // 2 :, WIDTH // 2 :] = (200, 200, 200)


def colours(image):
    """The strongest channel of the centre of each quarter, row by row; -1 where all are alike."""
    height, width = image.shape[:2]
    found = []
    for row in (height // 4, 3 * height // 4):
        for column in (width // 4, 3 * width // 4):
            values = image[row, column].astype(int)
            found.append(-1 if values.max() - values.min() < 60 else int(values.argmax()))
    return found


def test_raw_sensor_data_is_developed():
    """A DNG without a preview gives the colours that its sensor saw, at full size."""
    image = read_image(dng(QUARTERS))
    assert image.shape == (HEIGHT, WIDTH, 3)
    assert colours(image) == [0, 1, 2, -1]


@pytest.mark.parametrize(("orientation", "expected"), [(3, [-1, 2, 1, 0]), (6, [2, 0, -1, 1]), (8, [1, -1, 0, 2])])
def test_raw_orientation_is_applied_once(orientation, expected):
    """The sensor data and an embedded preview are turned upright; the recorded size is upright too."""
    for content in (dng(QUARTERS, orientation=orientation), dng(QUARTERS, preview=QUARTERS, orientation=orientation)):
        image = read_image(content)
        assert colours(image) == expected
        facts = picture_facts(content, "a.dng", ImageLimits())
        assert (facts.height, facts.width) == image.shape[:2]


def test_full_size_raw_preview_is_preferred():
    """A preview of the sensor's size is used; a smaller one only where the caller asks for no more."""
    white = np.full_like(QUARTERS, 255)
    assert read_image(dng(QUARTERS, preview=white)).min() > 250
    small = dng(QUARTERS, preview=white[::2, ::2])
    assert colours(read_image(small)) == [0, 1, 2, -1]
    assert read_image(small, at_least=(48, 64)).min() > 250
    assert colours(read_image(small, at_least=(49, 64))) == [0, 1, 2, -1]


def test_raw_is_halved_only_where_it_covers():
    """Half the sensor's size is enough for a small request, and never falls below it."""
    content = dng(QUARTERS)
    assert read_image(content, at_least=(48, 64)).shape == (48, 64, 3)
    assert read_image(content, at_least=(48, 65)).shape == (HEIGHT, WIDTH, 3)


def test_raw_facts_need_no_decoding():
    """Size and time come from the header."""
    facts = picture_facts(dng(QUARTERS, taken="2023:05:06 07:08:09"), "a.dng", ImageLimits())
    assert (facts.width, facts.height, facts.taken) == (WIDTH, HEIGHT, 1683356889.0)


def test_raw_size_is_checked_before_decoding():
    """The limit counts the pixels of the sensor, not of the preview."""
    content = dng(QUARTERS, preview=QUARTERS[::4, ::4])
    assert check_image(content, "a.dng", ImageLimits()) == HEIGHT * WIDTH
    with pytest.raises(BadImageError, match="128 x 96 pixels, at most 10,000"):
        read_image(content, limits=ImageLimits(max_pixels=10_000))


@pytest.mark.parametrize("length", [40, 400, 20_000])
def test_truncated_raw_is_refused(length):
    """A cut file is an error of one line, whatever LibRaw says."""
    with pytest.raises(BadImageError) as caught:
        read_image(dng(QUARTERS)[:length])
    assert "\n" not in str(caught.value)


def test_ordinary_tiff_is_not_raw():
    """Only sensor data, signatures and DNG tags make a TIFF a RAW file."""
    content = encoded(gradient(), "TIFF")
    assert not is_raw(memoryview(content), content[:16])
    content = dng(QUARTERS)
    assert is_raw(memoryview(content), content[:16])
    for start in (b"IIRO", b"FUJIFILMCCD-RAW ", b"\0\0\0\x18ftypcrx ", b"II*\0\x10\0\0\0CR\2\0"):
        assert is_raw(memoryview(start.ljust(16, b"\0")), start.ljust(16, b"\0")[:16])


@pytest.mark.parametrize("size", [(12, 20), (16, 16), (300, 200), (9, 3000), (90, 160)])
def test_jpeg_xl_decodes_closely(size):
    """Also sizes that its header stores as a ratio or in eighths; the size is known before decoding."""
    picture = gradient(*size)
    content = encoded(picture, "JXL", lossless=True)
    assert check_image(content, "a.jxl", ImageLimits()) == size[0] * size[1]
    assert np.array_equal(read_image(content), picture)
    with pytest.raises(BadImageError, match="at most 10: raise max_pixels"):
        read_image(content, limits=ImageLimits(max_pixels=10))


def test_jpeg_xl_transparency_and_exif():
    """Transparency is blended with white; EXIF of the container is read, without the orientation."""
    image = Image.fromarray(np.dstack([gradient(), np.zeros((12, 20), np.uint8)]), "RGBA")
    assert read_image(encoded(image, "JXL", lossless=True)).min() == 255
    exif = with_orientation(6)
    exif[0x0132] = "2023:05:06 07:08:09"
    content = encoded(gradient(), "JXL", exif=exif.tobytes())
    facts = picture_facts(content, "a.jxl", ImageLimits())
    assert (facts.width, facts.height, facts.taken) == (20, 12, 1683356889.0)
    assert read_image(content).shape == (12, 20, 3)


@pytest.mark.parametrize("content", [b"\xff\x0a", b"\xff\x0a" + b"\xff" * 40, b"\0\0\0\x0cJXL \r\n\x87\n" + b"\0" * 20])
def test_broken_jpeg_xl_is_refused(content):
    """Broken headers are an error of one line."""
    with pytest.raises(BadImageError):
        read_image(content)


@pytest.mark.parametrize(
    ("module", "content", "what", "extra"),
    [
        ("rawpy", dng(QUARTERS), "a camera RAW file", "raw"),
        ("pillow_jxl", encoded(gradient(), "JXL"), "JPEG XL", "jxl"),
    ],
)
def test_missing_format_library_is_named(monkeypatch, module, content, what, extra):
    """Without the extra, the reason of the file is the line that installs it."""
    real = __import__("importlib").import_module

    def absent(name, *arguments):
        if name == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments)

    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr("vse.errors.importlib.import_module", absent)
    with pytest.raises(BadImageError) as caught:
        read_image(content)
    install = f'pip install ".[{extra}]" (or make setup) in a clone'
    assert caught.value.reason == f"{what} needs {module}, which is not installed: {install}"
