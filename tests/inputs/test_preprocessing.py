"""Preprocessing: normalised by its formula, cropped as documented, augmented by its generator alone."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.inputs import naive
from tests.inputs.pictures import encoded, gradient

from vse.errors import InputError
from vse.inputs import (
    BadImageError,
    ImageLimits,
    ImagePreprocessing,
    butd,
    efficientnet_lite,
    imagenet,
    load_pixels,
    prepare,
    resize,
)

RAW = ImagePreprocessing((6, 8), mean=(0, 0, 0), std=(1, 1, 1))  # shows the pixels that the resize gave


def test_imagenet_preprocessing_by_hand():
    """Scaled to 0 … 1, minus the mean, over the deviation that everybody quotes."""
    found = prepare(gradient(), imagenet((6, 8)))
    pixels = naive.plain_bilinear(gradient(), (6, 8)) / 255
    expected = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(found, expected.transpose(2, 0, 1), atol=1e-4)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous


def test_butd_is_blue_first():
    """Blue, green, red, minus the means of Caffe in that order, not divided."""
    picture = np.zeros((4, 4, 3), np.uint8)
    picture[:] = (10, 20, 30)
    found = prepare(picture, butd(4))
    np.testing.assert_allclose(found[:, 0, 0], [30 - 102.9801, 20 - 115.9465, 10 - 122.7717], rtol=1e-6)


def test_efficientnet_lite_preprocessing_by_hand():
    """Byte 127 is zero and 255 is one."""
    picture = np.array([[[127, 255, 0]]], np.uint8)
    assert prepare(picture, efficientnet_lite(1)).ravel().tolist() == [0, 1, -127 / 128]


@pytest.mark.parametrize("method", ["plain-bilinear", "bilinear", "bicubic"])
def test_stretching_ignores_the_aspect_ratio(method):
    """The whole image is resized to the size."""
    found = prepare(gradient(), replace(RAW, resize=method))
    assert np.array_equal(found, resize(gradient(), (6, 8), method).transpose(2, 0, 1))


@given(
    height=st.integers(1, 60),
    width=st.integers(1, 60),
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    ratio=st.sampled_from([1.0, 0.875, 0.9, 0.5]),
)
def test_cropping_keeps_the_aspect_ratio(height, width, size, ratio):
    """The image is resized until it just covers size / crop_ratio, and the middle is cut out."""
    how = ImagePreprocessing(size, mean=(0, 0, 0), std=(1, 1, 1), fit="crop", crop_ratio=ratio)
    target = [math.floor(side / ratio + 1e-6) for side in size]
    scale = max(target[0] / height, target[1] / width)
    resized = [max(side, math.floor(long * scale + 1e-9)) for side, long in zip(target, (height, width), strict=True)]
    expected = resize(gradient(height, width), tuple(resized), "plain-bilinear")
    top, left = (round((have - want) / 2) for have, want in zip(resized, size, strict=True))
    expected = expected[top : top + size[0], left : left + size[1]]
    assert np.array_equal(prepare(gradient(height, width), how), expected.transpose(2, 0, 1))


def test_cropping_of_a_known_case():
    """An image of 4:3 for 224 out of 256: 256 x 341, then the middle."""
    how = ImagePreprocessing((224, 224), mean=(0, 0, 0), std=(1, 1, 1), resize="bicubic", fit="crop", crop_ratio=0.875)
    picture = gradient(300, 400)
    resized = np.asarray(Image.fromarray(picture).resize((341, 256), Image.Resampling.BICUBIC))
    assert np.array_equal(prepare(picture, how), resized[16:240, 58:282].transpose(2, 0, 1))


@pytest.mark.parametrize("method", ["plain-bilinear", "bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(1, 30_000), (30_000, 1), (200, 30_000)])
def test_cropping_a_narrow_image_needs_little_memory(method, shape):
    """Covering 256 x 256 with a single row of 30,000 pixels would take gigabytes; the middle of it does not.

    Measured as the peak of the whole process, since Pillow's memory is not Python's.
    """
    code = f"""
import resource, sys
import numpy as np
from vse.inputs import ImagePreprocessing, prepare
how = ImagePreprocessing((224, 224), mean=(0, 0, 0), std=(1, 1, 1), resize={method!r}, fit="crop", crop_ratio=0.875)
prepare(np.zeros((300, 400, 3), np.uint8), how)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
image = np.zeros((*{shape}, 3), np.uint8)
image[{shape[0] // 2}:, {shape[1] // 2}:] = 255
found = prepare(image, how)
more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
print(found.shape == (3, 224, 224), found[0, 0, 0] < found[0, -1, -1], more < 100_000_000, more)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:3] == ["True"] * 3, done.stdout


@given(seed=st.integers(0, 2**32 - 1), height=st.integers(1, 50), width=st.integers(1, 50))
def test_augmented_images_are_crops(seed, height, width):
    """What comes out is one crop of 0.6 to 1 of both sides, perhaps mirrored, stretched to the size."""
    picture = gradient(height, width)
    found = prepare(picture, RAW, np.random.default_rng(seed))
    ratio, down, right, mirror = np.random.default_rng(seed).random(4)
    rows, columns = (max(1, round(side * (0.6 + 0.4 * ratio))) for side in (height, width))
    top, left = int(down * (height - rows + 1)), int(right * (width - columns + 1))
    crop = picture[top : top + rows, left : left + columns]
    assert crop.shape[:2] == (rows, columns)
    expected = naive.plain_bilinear(np.fliplr(crop) if mirror < 0.5 else crop, (6, 8))
    np.testing.assert_allclose(found, expected.transpose(2, 0, 1), atol=1e-3)


def test_augmentation_reaches_its_bounds():
    """Over many draws: sides from 0.6 to 1, every position, half of them mirrored."""
    rng = np.random.default_rng(0)
    how = ImagePreprocessing((100, 100), mean=(0, 0, 0), std=(1, 1, 1))
    picture = np.zeros((100, 100, 3), np.uint8)
    picture[:, :, 0] = np.arange(100)[:, None]  # red tells the row, green the column
    picture[:, :, 1] = np.arange(100)
    spans, tops, lefts, mirrored = [], [], [], 0
    for _ in range(400):
        found = prepare(picture, how, rng)
        across, along = sorted(found[1, 0, [0, -1]]), found[0, [0, -1], 0]
        spans.append((along[1] - along[0] + 1, across[1] - across[0] + 1))
        tops.append(along[0])
        lefts.append(across[0])
        mirrored += found[1, 0, 0] > found[1, 0, -1]
    spans = np.array(spans)
    assert np.abs(spans[:, 0] - spans[:, 1]).max() < 1e-3  # one ratio for both sides
    assert 59.9 < spans.min() < 61.5
    assert 98.5 < spans.max() < 100.1
    assert max(tops) > 35
    assert max(lefts) > 35
    assert min(tops) == min(lefts) == 0
    assert 160 < mirrored < 240


def test_augmentation_depends_on_the_generator_alone():
    """The same generator gives the same array, whatever was drawn globally, and always takes four numbers."""
    how = imagenet(8)
    first = prepare(gradient(), how, np.random.default_rng(5))
    np.random.default_rng().random(3)
    rng = np.random.default_rng(5)
    assert np.array_equal(prepare(gradient(), how, rng), first)
    other = np.random.default_rng(5)
    other.random(4)
    assert rng.random() == other.random()


def test_prepare_does_not_change_the_image():
    """Neither with augmentation nor without."""
    picture = gradient(8, 8)
    prepare(picture, imagenet(8))
    prepare(picture, imagenet(8), np.random.default_rng(0))
    assert np.array_equal(picture, gradient(8, 8))


@pytest.mark.parametrize("picture", [gradient().astype(np.float32), gradient()[:, :, :2], gradient()[0], [[1]], None])
def test_prepare_takes_decoded_images(picture):
    """The message says what was given and what makes the right thing."""
    with pytest.raises(InputError, match=r"uint8 array.*read_image"):
        prepare(picture, imagenet(8))


def test_load_pixels_is_read_and_prepare(tmp_path):
    """From a file to the array in one call; the exact method decodes at full scale."""
    data = encoded(gradient(200, 300), "JPEG")
    (tmp_path / "photo.jpg").write_bytes(data)
    decoded = np.asarray(Image.open(tmp_path / "photo.jpg"))
    assert np.array_equal(load_pixels(tmp_path / "photo.jpg", imagenet(8)), prepare(decoded, imagenet(8)))
    augmented = load_pixels(data, imagenet(8), augment=np.random.default_rng(1))
    assert np.array_equal(augmented, prepare(decoded, imagenet(8), np.random.default_rng(1)))


@pytest.mark.parametrize("fit", ["stretch", "crop"])
@pytest.mark.parametrize("augment", [None, 3])
def test_reduced_decoding_looks_the_same(fit, augment):
    """With antialiasing a large image is decoded smaller, and the result is within a grey level or two.

    A random crop begins and ends at whole pixels of the smaller image, hence the image without fine detail.
    """
    noise = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    picture = np.asarray(Image.fromarray(noise).resize((1800, 1200), Image.Resampling.BICUBIC))
    how = ImagePreprocessing((64, 64), mean=(0, 0, 0), std=(1, 1, 1), resize="bilinear", fit=fit)
    data = encoded(picture, "JPEG", quality=95)
    generators = [None if augment is None else np.random.default_rng(augment) for _ in range(2)]
    whole = prepare(np.asarray(Image.open(io.BytesIO(data))), how, generators[0])
    reduced = load_pixels(data, how, augment=generators[1])
    assert 0 < np.abs(whole - reduced).mean() < 2.5


def test_load_pixels_passes_limits():
    """The limits are those of read_image."""
    with pytest.raises(BadImageError, match="max_pixels"):
        load_pixels(encoded(gradient(), "PNG"), imagenet(8), limits=ImageLimits(max_pixels=10))


@pytest.mark.parametrize(
    "how",
    [
        imagenet(512),
        butd((256, 512)),
        efficientnet_lite(224),
        ImagePreprocessing((224, 224), mean=(1, 2, 3), std=(4, 5, 6), resize="bicubic", fit="crop", crop_ratio=0.875),
        ImagePreprocessing((224, 224), mean=(1, 2, 3), std=(4, 5, 6), resize="bicubic", fit="crop", rounding="down"),
    ],
)
def test_preprocessing_json_round_trip(how):
    """Through the text of a JSON file and back it is equal; the usual rounding is not written."""
    assert ImagePreprocessing.from_json(json.loads(json.dumps(how.to_json()))) == how
    usual = {"rounding"} if how.rounding == "even" else set()
    assert set(how.to_json()) == set(asdict(how)) - usual


def test_preprocessing_json_defaults():
    """Size, mean and deviation are needed; the rest has defaults."""
    found = ImagePreprocessing.from_json({"size": [4, 5], "mean": [0, 0, 0], "std": [1, 1, 1]})
    assert found == ImagePreprocessing((4, 5), mean=(0, 0, 0), std=(1, 1, 1))
    assert (found.resize, found.fit, found.channels, found.crop_ratio) == ("plain-bilinear", "stretch", "rgb", 1.0)


def test_preprocessing_is_hashable_value():
    """Equal by content, usable as a key, not to be changed."""
    assert imagenet(5) == imagenet((5, 5))
    assert len({imagenet(5), imagenet(5), butd(5)}) == 2
    with pytest.raises(FrozenInstanceError):
        imagenet(5).size = (6, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sise": 5}, "unknown key of the image preprocessing 'sise'.*did you mean 'size'"),
        ({"size": None}, "size must be two whole numbers.*None"),
        ({"size": [224]}, r"size.*\[224\]"),
        ({"size": [224, 0]}, "size"),
        ({"size": [224, 2.5]}, "size"),
        ({"size": [True, True]}, "size"),
        ({"resize": "nearest"}, "unknown resize of the preprocessing 'nearest'"),
        ({"resize": []}, "unknown resize"),
        ({"fit": "pad"}, "unknown fit.*'pad'"),
        ({"channels": "RGB"}, "unknown channels.*'RGB'.*'rgb'"),
        ({"mean": [1, 2]}, r"mean must be three.*\[1, 2\]"),
        ({"mean": [1, 2, "3"]}, "mean"),
        ({"mean": [1, 2, float("nan")]}, "mean"),
        ({"std": [1, 0, 1]}, "std must be above 0"),
        ({"std": 1}, "std must be three"),
        ({"crop_ratio": 0}, "crop_ratio"),
        ({"crop_ratio": 1.1, "fit": "crop"}, "crop_ratio.*1.1"),
        ({"crop_ratio": "1"}, "crop_ratio"),
        ({"crop_ratio": 0.9}, "goes with fit 'crop'"),
    ],
)
def test_preprocessing_json_refuses_unknown_keys(change, message):
    """An unknown key or a value outside its range is named."""
    with pytest.raises(InputError, match=message) as caught:
        ImagePreprocessing.from_json({**imagenet(8).to_json(), **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["size", "mean", "std"])
def test_preprocessing_json_names_missing_keys(missing):
    """What has no default is asked for by name."""
    values = imagenet(8).to_json()
    del values[missing]
    with pytest.raises(InputError, match=f"without '{missing}'"):
        ImagePreprocessing.from_json(values)


@pytest.mark.parametrize("values", [None, [], "text"])
def test_preprocessing_json_must_be_an_object(values):
    """Another kind of JSON is refused."""
    with pytest.raises(InputError, match="must be a JSON object"):
        ImagePreprocessing.from_json(values)
