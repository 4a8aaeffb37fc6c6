"""Images of every kind become the same upright RGB array."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.inputs import naive
from tests.inputs.pictures import encoded, gradient, with_orientation

from vse.errors import InputError
from vse.inputs import read_image

PICTURE = gradient()
LOSSLESS = ("PNG", "TIFF", "BMP", "PPM", "WEBP", "JPEG2000")


def stored(picture, orientation):
    """What a camera stores of an upright image, by where EXIF says that row 0 and column 0 of the file are seen."""
    row, column = {
        1: ("top", "left"),
        2: ("top", "right"),
        3: ("bottom", "right"),
        4: ("bottom", "left"),
        5: ("left", "top"),
        6: ("right", "top"),
        7: ("right", "bottom"),
        8: ("left", "bottom"),
    }[orientation]
    if "bottom" in (row, column):
        picture = picture[::-1]
    if "right" in (row, column):
        picture = picture[:, ::-1]
    if row in ("left", "right"):
        picture = picture.transpose(1, 0, 2)
    return np.ascontiguousarray(picture)


@pytest.mark.parametrize("file_format", LOSSLESS)
def test_lossless_images_decode_exactly(tmp_path, file_format):
    """A path as a string or an object, and the bytes, give the pixels that were saved."""
    options = {"WEBP": {"lossless": True}, "JPEG2000": {"irreversible": False}}.get(file_format, {})
    data = encoded(PICTURE, file_format, **options)
    path = tmp_path / "ein Bild ü.bin"  # the content says what it is, not the name
    path.write_bytes(data)
    for source in (path, str(path), data):
        found = read_image(source)
        assert np.array_equal(found, PICTURE)
        assert (found.dtype, found.flags.c_contiguous, found.flags.writeable) == (np.uint8, True, True)


@pytest.mark.parametrize("file_format", ["JPEG", "WEBP", "AVIF", "GIF"])
def test_lossy_images_decode_closely(file_format):
    """Lossy formats come close."""
    found = read_image(encoded(PICTURE, file_format))
    assert found.shape == PICTURE.shape
    assert np.abs(found.astype(int) - PICTURE).mean() < 6


@pytest.mark.parametrize("orientation", [1, 6])
def test_heic_images_decode_upright(tmp_path, orientation):
    """Images of phones are read, upright, without a global registration in Pillow."""
    heif = pytest.importorskip("pillow_heif")
    stream = io.BytesIO()
    pixels = stored(gradient(48, 64), orientation)
    exif = with_orientation(orientation).tobytes()
    try:
        heif.encode("RGB", (pixels.shape[1], pixels.shape[0]), pixels.tobytes(), stream, quality=95, exif=exif)
    except (RuntimeError, OSError) as error:
        pytest.skip(f"no HEIC encoder: {error}")
    (tmp_path / "IMG_1.HEIC").write_bytes(stream.getvalue())
    found = read_image(tmp_path / "IMG_1.HEIC")
    assert found.shape == (48, 64, 3)
    assert np.abs(found.astype(int) - gradient(48, 64)).mean() < 6
    assert "HEIF" not in Image.OPEN


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["PNG", "TIFF", "WEBP", "JPEG"])
def test_exif_orientation_is_applied(file_format, orientation):
    """All eight orientations come out upright, from the file and from a PIL image opened on it."""
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}.get(file_format, {})
    data = encoded(stored(PICTURE, orientation), file_format, exif=with_orientation(orientation), **options)
    tolerance = 4 if file_format == "JPEG" else 0
    with Image.open(io.BytesIO(data)) as image:
        for found in (read_image(data), read_image(image)):
            assert found.shape == PICTURE.shape
            assert np.abs(found.astype(int) - PICTURE).max() <= tolerance


@pytest.mark.parametrize("exif", [b"Exif\x00\x00garbage", b"Exif\x00\x00II*\x00\xff\xff\xff\xff", b"x"])
@pytest.mark.filterwarnings("ignore")
def test_broken_exif_is_no_reason_to_refuse(exif):
    """The image counts, as it is stored."""
    assert read_image(encoded(PICTURE, "JPEG", exif=exif)).shape == PICTURE.shape


def test_unknown_exif_orientation_is_ignored():
    """A number outside 1 to 8 changes nothing."""
    assert np.array_equal(read_image(encoded(PICTURE, "PNG", exif=with_orientation(77))), PICTURE)


GREY = PICTURE[:, :, 0]
ALPHA = PICTURE[:, :, 1]


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "CMYK", "YCbCr", "HSV", "RGBX"])
def test_opaque_pillow_modes_convert_to_rgb(mode):
    """Every mode looks as Pillow would show it."""
    image = Image.fromarray(PICTURE).convert(mode)
    assert np.array_equal(read_image(image), np.asarray(image.convert("RGB")))


def test_lab_images_convert_to_rgb():
    """LAB is shown in the RGB that stands for it: white, mid grey, black."""
    image = Image.frombytes("LAB", (3, 1), bytes([255, 0, 0, 137, 0, 0, 0, 0, 0]))
    found = read_image(image).astype(int)
    assert np.abs(found - np.array([[[255] * 3, [128] * 3, [0] * 3]])).max() <= 6


@pytest.mark.parametrize("mode", ["RGBA", "LA", "RGBa", "La", "PA"])
@pytest.mark.parametrize("alpha", [0, 1, 100, 254, 255])
def test_transparency_is_laid_over_white(mode, alpha):
    """A pixel of opacity a is a parts of its colour and the rest white, within the rounding of Pillow's modes."""
    colour = (200, 200, 200) if mode in ("LA", "La") else (200, 100, 0)
    image = Image.new("RGBA", (3, 2), (*colour, alpha))
    if mode == "PA":
        image = Image.merge("PA", (Image.new("P", (3, 2), 1), Image.new("L", (3, 2), alpha)))
        image.putpalette([0, 0, 0, *colour])
    elif mode in ("LA", "La"):
        image = Image.merge("LA", (Image.new("L", (3, 2), 200), Image.new("L", (3, 2), alpha)))
        image = image if mode == "LA" else image.convert("La")
    elif mode == "RGBa":
        image = image.convert("RGBa")
    tolerance = 1.6 if mode in ("RGBa", "La") else 1
    assert np.abs(read_image(image) - naive.over_white(colour, alpha)).max() <= tolerance


def test_transparent_palette_is_laid_over_white():
    """A palette with an opacity for each colour, as PNG and GIF have it, is laid over white too."""
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 0])
    image.putpixel((1, 0), 1)
    found = read_image(encoded(image, "PNG", transparency=bytes([0, 128])))
    assert np.abs(found[0] - [[255, 255, 255], naive.over_white((200, 100, 0), 128)]).max() <= 1
    assert read_image(encoded(image, "GIF", transparency=0))[0].tolist() == [[255, 255, 255], [200, 100, 0]]


@pytest.mark.parametrize(("mode", "colour"), [("RGB", (10, 20, 30)), ("L", 10)])
def test_transparent_colour_becomes_white(mode, colour):
    """A colour that PNG marks as transparent is white."""
    image = Image.new(mode, (2, 1), colour)
    image.putpixel((1, 0), (1, 2, 3) if mode == "RGB" else 99)
    found = read_image(encoded(image, "PNG", transparency=colour))
    assert found[0].tolist() == [[255] * 3, [1, 2, 3] if mode == "RGB" else [99] * 3]


@pytest.mark.parametrize(("mode", "dtype"), [("I;16", "<u2"), ("I;16L", "<u2"), ("I;16B", ">u2"), ("I", "<i4")])
def test_sixteen_bit_grey_is_scaled(mode, dtype):
    """Greys of 16 bits are divided by 257, whatever their byte order."""
    values = np.array([[0, 257, 128 * 257, 300, 65535]])
    image = Image.frombytes(mode, (5, 1), values.astype(dtype).tobytes())
    assert read_image(image)[0].tolist() == [[value] * 3 for value in (0, 1, 128, 1, 255)]


@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_sixteen_bit_files_keep_their_range(file_format):
    """A grey file of 16 bits keeps its range; Pillow's own conversion would turn it white."""
    grey = (GREY.astype(np.uint16) * 257).astype(np.uint16)
    assert np.array_equal(read_image(encoded(Image.fromarray(grey), file_format))[:, :, 1], GREY)


def test_mode_i_image_of_eight_bits():
    """Mode I without a value above 255 holds 8 bits; below 0 is black, above 16 bits white."""
    small = np.array([[-5, 0, 200, 255]], np.int32)
    assert read_image(Image.fromarray(small))[0, :, 0].tolist() == [0, 0, 200, 255]
    assert read_image(Image.fromarray(np.array([[-5, 1_000_000]], np.int32)))[0, :, 0].tolist() == [0, 255]


def test_float_images_are_scaled_or_clipped():
    """Mode F within 0 … 1 is scaled, otherwise clipped to 0 … 255; NaN is black."""
    unit = np.array([[0, 0.5, 1, np.nan]], np.float32)
    bytes_ = np.array([[-3, 1, 254.6, 1000, np.nan, np.inf]], np.float32)
    assert read_image(Image.fromarray(unit))[0, :, 0].tolist() == [0, 128, 255, 0]
    assert read_image(Image.fromarray(bytes_))[0, :, 0].tolist() == [0, 1, 255, 255, 0, 255]


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "TIFF", "PNG", "AVIF"])
def test_first_frame_of_animations_is_decoded(file_format):
    """Of an animation or a document with pages, the first."""
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue", "green")]
    data = encoded(frames[0], file_format, save_all=True, append_images=frames[1:])
    assert np.abs(read_image(data)[8, 8].astype(int) - [255, 0, 0]).max() < 8


def test_arrays_of_any_dtype_are_the_same_image():
    """Greys, RGB and RGBA of 8 or 16 bits, booleans and floats in 0 … 1 are the same image."""
    assert read_image(PICTURE) is PICTURE
    doubled = PICTURE.astype(np.uint16) * 257
    for same in (doubled, doubled.astype(">u2"), PICTURE / 255, (PICTURE / 255).astype(np.float32), PICTURE.copy("F")):
        assert np.array_equal(read_image(same), PICTURE)
        assert read_image(same).flags.c_contiguous
    opaque = np.concatenate([PICTURE, np.full_like(PICTURE[:, :, :1], 255)], axis=2)
    assert np.array_equal(read_image(opaque), PICTURE)
    grey = np.stack([GREY] * 3, axis=2)
    for same in (GREY, GREY[:, :, None], GREY / 255):
        assert np.array_equal(read_image(same), grey)
    assert read_image(np.array([[True, False]])).tolist() == [[[255] * 3, [0] * 3]]


def test_fourth_array_channel_is_opacity():
    """The fourth channel is the opacity, in the range of the others."""
    see_through = np.dstack([PICTURE, ALPHA])
    expected = naive.over_white(PICTURE, ALPHA[:, :, None])
    for same in (see_through, see_through / 255, see_through.astype(np.uint16) * 257):
        assert np.abs(read_image(same) - expected).max() <= 1


@given(scale=st.sampled_from([(1, 1), (50, 60), (99, 149), (100, 150), (101, 150), (400, 600), (1000, 10)]))
def test_reduced_decoding_never_falls_below(scale):
    """A JPEG may come smaller than stored, but not below what was asked for, nor above what is stored."""
    data = encoded(gradient(400, 600), "JPEG", quality=90)
    height, width = read_image(data, at_least=scale).shape[:2]
    assert min(scale[0], 400) <= height <= 400
    assert min(scale[1], 600) <= width <= 600
    assert abs(height / width - 400 / 600) < 0.02


@pytest.mark.parametrize("orientation", [1, 6])
def test_reduced_decoding_is_upright(orientation):
    """The size that is asked for is that of the upright image, and the colours stay."""
    data = encoded(stored(gradient(400, 800), orientation), "JPEG", exif=with_orientation(orientation), quality=95)
    found = read_image(data, at_least=(100, 150))
    assert found.shape == (100, 200, 3)
    assert np.abs(found.astype(int) - gradient(100, 200)).max() < 12


def test_reduced_size_is_checked():
    """A side below one is named."""
    with pytest.raises(InputError, match=r"at_least.*\(0, 5\)"):
        read_image(PICTURE, at_least=(0, 5))


def test_other_formats_are_not_reduced():
    """``at_least`` changes nothing where the decoder has no such shortcut."""
    assert np.array_equal(read_image(encoded(PICTURE, "PNG"), at_least=(1, 1)), PICTURE)


def test_read_image_leaves_pil_image_unchanged():
    """The caller's image is neither closed nor turned."""
    with Image.open(io.BytesIO(encoded(PICTURE, "PNG", exif=with_orientation(6)))) as image:
        read_image(image)
        assert image.size == (20, 12)
        assert image.getexif()[0x0112] == 6
        assert np.array_equal(np.asarray(image), PICTURE)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])
def test_read_image_closes_file(tmp_path, file_format):
    """Neither a good file nor a broken one leaves a handle behind, also with several frames."""
    frames = {"save_all": True, "append_images": [Image.fromarray(PICTURE)]} if file_format in ("GIF", "TIFF") else {}
    data = encoded(PICTURE, file_format, **frames)
    (tmp_path / "good").write_bytes(data)
    (tmp_path / "broken").write_bytes(data[: len(data) // 4])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        read_image(tmp_path / "good")
        with pytest.raises(ValueError, match="broken"):
            read_image(tmp_path / "broken")
        gc.collect()


def test_inputs_import_neither_torch_nor_nltk():
    """Preparing inputs works in the light install."""
    code = "import sys, vse.inputs; print(*({'torch', 'nltk', 'transformers', 'pillow_heif', 'av'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
