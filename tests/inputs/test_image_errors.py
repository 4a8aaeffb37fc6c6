"""What cannot be read as an image is one kind of error, in one line, whatever the decoder thought of it."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import threading
import tracemalloc
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile
from tests.inputs.pictures import encoded, gradient, with_orientation

from vse.errors import InputError
from vse.inputs import BadImageError, ImageLimits, read_image
from vse.inputs.images import file_content

PICTURE = gradient(24, 40)
FILES = {
    "PNG": encoded(PICTURE, "PNG"),
    "PNG-palette": encoded(Image.fromarray(PICTURE).convert("P"), "PNG", transparency=0),
    "JPEG": encoded(PICTURE, "JPEG", exif=with_orientation(6)),
    "JPEG-progressive": encoded(PICTURE, "JPEG", progressive=True),
    "GIF": encoded(PICTURE, "GIF", save_all=True, append_images=[Image.fromarray(PICTURE[::-1])]),
    "WEBP": encoded(PICTURE, "WEBP"),
    "TIFF": encoded(PICTURE, "TIFF", compression="tiff_lzw"),
    "BMP": encoded(PICTURE, "BMP"),
    "AVIF": encoded(PICTURE, "AVIF"),
    "JPEG2000": encoded(PICTURE, "JPEG2000"),
    "ICO": encoded(PICTURE, "ICO"),
    "PPM": encoded(PICTURE, "PPM"),
}


def refused(source, **options):
    with pytest.raises(BadImageError) as caught:
        read_image(source, **options)
    error = caught.value
    assert isinstance(error, InputError)
    assert "\n" not in str(error)
    assert str(error) == f"{error.name}: not an image that can be read ({error.reason})"
    return error


def png_header(width, height):
    """The beginning of a PNG that announces a size and never delivers."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore")
@given(data=st.data())
@settings(max_examples=40)
def test_corrupt_image_files_give_pixels_or_bad_image_error(name, data):
    """Flipped, cut, repeated or foreign bytes give an image or BadImageError, and nothing else."""
    content = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, max(len(content) - 1, 0)))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "remove"]))
        if kind == "flip" and content:
            content[position] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del content[position:]
        elif kind == "insert":
            content[position:position] = data.draw(st.binary(max_size=8))
        else:
            del content[position : position + data.draw(st.integers(1, 8))]
    with contextlib.suppress(BadImageError):
        found = read_image(bytes(content), limits=ImageLimits(max_pixels=4_000_000))
        assert found.dtype == np.uint8
        assert found.ndim == 3
        assert found.shape[2] == 3


@pytest.mark.filterwarnings("ignore")
@given(head=st.sampled_from(list(FILES.values())), tail=st.binary(max_size=200), keep=st.integers(0, 40))
def test_image_header_followed_by_noise(head, tail, keep):
    """A file that begins like an image and goes on as noise is refused or read, never a crash."""
    with contextlib.suppress(BadImageError):
        read_image(head[:keep] + tail, limits=ImageLimits(max_pixels=4_000_000))


@pytest.mark.parametrize("name", ["PNG", "JPEG", "GIF", "TIFF", "BMP", "PPM"])
@pytest.mark.filterwarnings("ignore")
def test_truncated_image_file_is_refused_by_name(tmp_path, name):
    """Half a file is not half an image; the file is named."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(FILES[name][: len(FILES[name]) * 45 // 100])
    assert "photo.jpg: not an image that can be read (" in str(refused(path))
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_truncated_jpeg_is_reported():
    """The commonest damage has a plain reason."""
    assert refused(FILES["JPEG"][:-40]).reason == "truncated"


def test_missing_image_file_is_refused(tmp_path):
    """As a string and as a path."""
    assert refused(str(tmp_path / "none.jpg")).reason == "no such file"
    assert refused(tmp_path / "none.jpg").name.endswith("none.jpg")


def test_folder_is_not_read_as_image(tmp_path):
    """A folder is called so."""
    assert refused(tmp_path).reason == "a folder"


def test_empty_image_is_refused(tmp_path):
    """No bytes, in a file or in memory."""
    (tmp_path / "empty.png").touch()
    assert refused(tmp_path / "empty.png").reason == "empty"
    assert refused(b"").reason == "empty"


@pytest.mark.parametrize("content", [b"hello, this is text", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"\x00" * 100, b"\x01"])
def test_other_content_is_not_read_as_image(tmp_path, content):
    """Text, PostScript, which would start another program, and zeros: the message lists what is known."""
    (tmp_path / "photo.png").write_bytes(content)
    assert "no known format; known are JPEG" in refused(tmp_path / "photo.png").reason


@pytest.mark.parametrize("name", ["PNG", "GIF", "TIFF"])
@pytest.mark.filterwarnings("ignore")
def test_broken_image_header_names_its_format(name):
    """A file that begins like a format but cannot be opened is a broken one of that format."""
    assert name in refused(FILES[name][:10]).reason or "truncated" in refused(FILES[name][:10]).reason


def test_unreadable_image_file_is_refused(tmp_path, monkeypatch):
    """An unreadable file is called so; simulated, since the superuser may read everything."""
    path = tmp_path / "secret.png"
    path.write_bytes(FILES["PNG"])

    def forbidden(*_args):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", forbidden)
    assert refused(path).reason == "no permission to read it"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_reading_a_pipe_does_not_block(tmp_path):
    """Opening it would block until somebody writes."""
    os.mkfifo(tmp_path / "pipe.png")
    assert refused(tmp_path / "pipe.png").reason == "not a regular file"


def test_odd_image_file_names_give_one_line_errors(tmp_path):
    """A null character, a line break and an overlong name are errors of one line too."""
    assert "null" in refused("photo\0.png").reason
    assert "\\n" in refused(tmp_path / "two\nlines.png").name
    assert refused(tmp_path / ("x" * 5000)).reason


@pytest.mark.parametrize("source", [None, 5, 1.5, ["photo.png"], object()])
def test_unsupported_image_source_is_refused(source):
    """The message says what is accepted."""
    assert "expected a path, bytes, a PIL image or a numpy array" in refused(source).reason


def test_image_byte_limit(tmp_path):
    """A file over the limit is refused before it is read, one at the limit is not."""
    path, size = tmp_path / "photo.png", len(FILES["PNG"])
    path.write_bytes(FILES["PNG"])
    for source in (path, FILES["PNG"]):
        assert read_image(source, limits=ImageLimits(max_bytes=size)).shape == PICTURE.shape
        assert f"{size} bytes, at most {size - 1}" in refused(source, limits=ImageLimits(max_bytes=size - 1)).reason


@pytest.mark.parametrize("name", FILES)
def test_image_pixel_limit(name):
    """The announced size decides, in every format and for images that are open already."""
    pixels = read_image(FILES[name]).size // 3
    assert "pixels, at most" in refused(FILES[name], limits=ImageLimits(max_pixels=pixels - 1)).reason
    assert "pixels, at most" in refused(Image.fromarray(PICTURE), limits=ImageLimits(max_pixels=50)).reason


@pytest.mark.parametrize("size", [(20_000, 20_000), (2**31 - 1, 1), (100_000, 100_000)])
def test_decompression_bombs_are_not_decoded(size):
    """A few bytes that announce a huge image are refused by the header, without a warning or a change of Pillow's."""
    before = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert refused(png_header(*size)).reason
    assert before == Image.MAX_IMAGE_PIXELS


def test_large_images_do_not_warn():
    """Between Pillow's warning and our limit an image is read in silence; here it only fails for want of data."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "pixels" not in refused(png_header(10_000, 9_500)).reason


def test_pillow_limits_raise_bad_image_error(monkeypatch):
    """Where Pillow itself refuses a large image, its error is BadImageError."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert "decompression bomb" in refused(FILES["ICO"]).reason


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (0, 0)])
def test_image_with_zero_side_is_refused(size):
    """A side of zero is refused."""
    refused(png_header(*size))
    refused(Image.new("RGB", size))
    refused(np.zeros((*size, 3), np.uint8))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(5, np.uint8),
        np.zeros((3, 8, 8), np.uint8),
        np.zeros((8, 8, 2), np.uint8),
        np.zeros((1, 8, 8, 3), np.uint8),
        np.zeros((8, 8, 3), np.int64),
        np.zeros((8, 8, 3), np.complex64),
        np.zeros((8, 8, 3), object),
    ],
)
def test_image_arrays_of_invalid_shape_or_type(array):
    """The message names both and says what is accepted."""
    reason = refused(array).reason
    assert str(array.shape) in reason
    assert str(array.dtype) in reason
    assert "(H, W, 3)" in reason
    assert "uint8" in reason


@pytest.mark.parametrize("value", [255.0, -0.1, np.nan, np.inf])
def test_float_arrays_outside_unit_range(value):
    """Floats of 0 … 255 are a likely mistake; guessing would hide it."""
    assert "0 … 1" in refused(np.full((4, 4, 3), value)).reason


def test_corrupt_open_image_is_refused():
    """Pillow decodes late; what it then raises is BadImageError too."""
    with Image.open(io.BytesIO(FILES["JPEG"][:-40])) as image:
        assert refused(image).reason == "truncated"


@pytest.mark.parametrize(
    "raised", [MemoryError(), RecursionError("deep"), ZeroDivisionError("x"), OverflowError("big")]
)
def test_decoder_exceptions_become_bad_image_error(monkeypatch, raised):
    """Whatever a decoder raises, also without a message, has a reason."""

    def fail(*_args):
        raise raised

    monkeypatch.setattr(Image.Image, "load", fail)
    assert refused(FILES["PNG"]).reason


def test_bad_image_error_pickles():
    """Workers hand errors over by pickle, with name and reason."""
    error = pickle.loads(pickle.dumps(BadImageError("a.jpg", "truncated")))
    assert (error.name, error.reason, str(error)) == ("a.jpg", "truncated", str(BadImageError("a.jpg", "truncated")))


def test_images_are_read_concurrently():
    """Good and broken files in many threads each give their own result."""
    results = []

    def work(data, good):
        for _ in range(20):
            try:
                results.append(np.array_equal(read_image(data), PICTURE) == good)
            except BadImageError:
                results.append(not good)

    jobs = [(FILES["PNG"], True), (FILES["PNG"][:100], False), (FILES["BMP"], True), (b"nothing", False)]
    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_pipe_that_takes_the_place_of_an_image_does_not_block(tmp_path, monkeypatch):
    """Between looking at a file and opening it, another program may replace it."""
    path = tmp_path / "image.png"
    path.write_bytes(FILES["PNG"])
    before = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(Path, "stat", lambda self, **options: before)
    with pytest.raises(BadImageError, match="not a regular file"):
        file_content(path, "image.png", ImageLimits())


def test_reading_a_small_file_allocates_no_more_than_it_needs(tmp_path):
    """The limit is 200 MB; the memory follows the file. One that has grown is read to the limit."""
    path = tmp_path / "image.bin"
    path.write_bytes(b"x" * 10_000)
    tracemalloc.start()
    try:
        assert len(file_content(path, "image.bin", ImageLimits())) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
