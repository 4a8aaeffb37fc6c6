"""Convert a decoded image to the array that a network takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from PIL import Image

from vse.errors import InputError, unknown_choice
from vse.inputs.images import ImageLimits, ImageSource, read_image, read_rgb
from vse.inputs.resizing import Method, resize

Fit = Literal["stretch", "crop"]
Channels = Literal["rgb", "bgr"]
Rounding = Literal["even", "down"]
Triple = tuple[float, float, float]

# A training crop keeps at least this share of either side.
SMALLEST_CROP = 0.6
MAX_PIXELS = 4096 * 4096
"""Largest image that a model may ask for, before and after the crop: 200 MB as float32."""
# A JPEG may be decoded at a reduced scale if it is then downsampled by at least this factor with antialiasing:
# the decoder's cheaper reduction no longer shows.
DECODE_MARGIN = 2


@dataclass(frozen=True)
class ImagePreprocessing:
    """How a model's images are prepared; saved with the model.

    ``size`` is (h, w). ``fit`` "stretch" resizes to it, ignoring the aspect ratio; "crop" resizes so that the image
    just covers ``floor(size / crop_ratio)`` and crops the centre. ``rounding`` says where a centre between two pixels
    is: "even" as in torchvision and open_clip, "down" as in Hugging Face's processors. Then, per channel in the order
    of ``channels`` and in units of 0 … 255, ``x = (x - mean) / std``.
    """

    size: tuple[int, int]
    _: KW_ONLY
    mean: Triple
    std: Triple
    resize: Method = "plain-bilinear"
    fit: Fit = "stretch"
    channels: Channels = "rgb"
    crop_ratio: float = 1.0
    rounding: Rounding = "even"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size))
        object.__setattr__(self, "mean", _triple("mean", self.mean))
        object.__setattr__(self, "std", _triple("std", self.std))
        kinds = {"resize": Method, "fit": Fit, "channels": Channels, "rounding": Rounding}
        for name, choices in ((name, get_args(kind)) for name, kind in kinds.items()):
            if getattr(self, name) not in choices:
                raise InputError(unknown_choice(f"{name} of the preprocessing", getattr(self, name), choices))
        if min(self.std) <= 0:
            raise InputError(f"std must be above 0 in every channel, got {self.std}")
        if not _is_number(self.crop_ratio) or not 0 < self.crop_ratio <= 1:
            raise InputError(f"crop_ratio must be above 0 and at most 1, got {self.crop_ratio!r}")
        if self.fit == "stretch" and self.crop_ratio != 1:
            raise InputError(f"crop_ratio {self.crop_ratio} goes with fit 'crop'; fit is 'stretch'")
        if max(math.prod(self.size), math.prod(self.resized)) > MAX_PIXELS:
            raise InputError(
                f"size {self.size} with crop_ratio {self.crop_ratio} needs an image of {math.prod(self.resized):,} "
                f"pixels, at most {MAX_PIXELS:,}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary for ``json.dumps``; the usual ``rounding`` is left out, as files before it had none."""
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        if self.rounding == "even":
            del plain["rounding"]
        return plain

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ImagePreprocessing:
        """Return the object of :meth:`to_json`; missing fields get their default, unknown ones are an error."""
        if not isinstance(values, Mapping):
            raise InputError(f"image preprocessing must be a JSON object, got {type(values).__name__}")
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise InputError(unknown_choice("key of the image preprocessing", key, known))
        for key in ("size", "mean", "std"):
            if key not in values:
                raise InputError(f"image preprocessing without {key!r}: it needs 'size', 'mean' and 'std'")
        return cls(**values)

    @property
    def resized(self) -> tuple[int, int]:
        """The (h, w) that an image must cover before the crop; ``size`` itself for "stretch"."""
        # The tiny term undoes the rounding of a ratio that was computed as size / resized.
        height, width = (math.floor(side / self.crop_ratio + 1e-6) for side in self.size)
        return height, width


def imagenet(size: int | tuple[int, int]) -> ImagePreprocessing:
    """Return the preprocessing of CNNs trained on ImageNet by torchvision and timm."""
    return ImagePreprocessing(_square(size), mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))


def butd(size: int | tuple[int, int]) -> ImagePreprocessing:
    """Return the preprocessing of the bottom-up-attention (BUTD) ResNet: BGR minus Caffe's mean, not divided."""
    return ImagePreprocessing(_square(size), channels="bgr", mean=(102.9801, 115.9465, 122.7717), std=(1.0, 1.0, 1.0))


def efficientnet_lite(size: int | tuple[int, int]) -> ImagePreprocessing:
    """Return the preprocessing of EfficientNet-Lite: values around zero, ``(x - 127) / 128``."""
    return ImagePreprocessing(_square(size), mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0))


def prepare(image: np.ndarray, how: ImagePreprocessing, augment: np.random.Generator | None = None) -> np.ndarray:
    """Return an image uint8 (H, W, 3) RGB as contiguous float32 (3, h, w).

    With ``augment``, as in training: a random crop of ``r * H`` by ``r * W``, r ~ U(0.6, 1), stretched to the size
    whatever ``fit`` says, and mirrored half the time. It always draws four numbers from the generator.
    """
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        found = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise InputError(f"prepare takes a uint8 array (H, W, 3), got {found}: read_image makes one")
    if augment is not None:
        return normalise(resize(_random_view(image, augment), how.size, how.resize), how)
    return normalise(_fitted(image, how), how)


def _fitted(image: np.ndarray | Image.Image, how: ImagePreprocessing, small: bool = False) -> np.ndarray:
    """Return the image at the model's size, (h, w, 3) in 0 … 255: float32, or uint8 if ``small`` and that is exact."""
    if how.fit == "stretch":
        return resize(image, how.size, how.resize, small=small)
    size = _covering(image.shape[:2] if isinstance(image, np.ndarray) else image.size[::-1], how.resized)
    window = _centre(size, how.size, how.rounding)  # a narrow image covers far more
    return resize(image, size, how.resize, window=window, small=small)


def load_pixels(
    source: ImageSource,
    how: ImagePreprocessing,
    *,
    limits: ImageLimits | None = None,
    augment: np.random.Generator | None = None,
) -> np.ndarray:
    """Read and prepare an image; see :func:`read_image` and :func:`prepare`.

    A large JPEG is decoded at a reduced scale where the result looks the same, except for "plain-bilinear": without
    antialiasing single pixels matter.
    """
    at_least = _at_least(how, augment)
    return prepare(read_image(source, limits=limits or ImageLimits(), at_least=at_least), how, augment)


def load_small(source: ImageSource, how: ImagePreprocessing, limits: ImageLimits) -> np.ndarray:
    """Return ``(h, w, 3)`` that :func:`normalise` completes to the pixels of :func:`load_pixels`.

    As uint8 where that is exact: a quarter of the bytes, for what is sent between processes.
    """
    return _fitted(read_rgb(source, limits, _at_least(how, None)), how, small=True)


def _at_least(how: ImagePreprocessing, augment: np.random.Generator | None) -> tuple[int, int] | None:
    if how.resize == "plain-bilinear":
        return None
    margin = DECODE_MARGIN if augment is None else DECODE_MARGIN / SMALLEST_CROP
    height, width = how.resized if augment is None else how.size
    return math.ceil(height * margin), math.ceil(width * margin)


def _random_view(image: np.ndarray, augment: np.random.Generator) -> np.ndarray:
    """Return a random crop, possibly mirrored, without copying."""
    ratio, down, right, mirror = augment.random(4)
    ratio = SMALLEST_CROP + (1 - SMALLEST_CROP) * ratio
    height, width = (max(1, round(side * ratio)) for side in image.shape[:2])
    top = int(down * (image.shape[0] - height + 1))
    left = int(right * (image.shape[1] - width + 1))
    view = image[top : top + height, left : left + width]
    return view[:, ::-1] if mirror < 0.5 else view


def _covering(size: tuple[int, ...], box: tuple[int, int]) -> tuple[int, int]:
    """Return the smallest size with the aspect ratio of ``size`` that covers ``box``, its longer side rounded down."""
    (rows, columns), (height, width) = size, box
    if rows * width < columns * height:  # the image is wider than the box: its height decides
        return height, max(width, columns * height // max(rows, 1))
    return max(height, rows * width // max(columns, 1)), width


def _centre(whole: tuple[int, int], size: tuple[int, int], rounding: Rounding) -> tuple[slice, slice]:
    (rows, columns), (height, width) = whole, size
    if rounding == "down":
        top, left = (rows - height) // 2, (columns - width) // 2
    else:
        top, left = round((rows - height) / 2), round((columns - width) / 2)
    return slice(top, top + height), slice(left, left + width)


def normalise(pixels: np.ndarray, how: ImagePreprocessing) -> np.ndarray:
    """Return resized pixels (h, w, 3) in 0 … 255 as a model takes them: contiguous float32 (3, h, w)."""
    out = np.empty((3, *how.size), np.float32)
    for channel, (mean, std) in enumerate(zip(how.mean, how.std, strict=True)):
        source = channel if how.channels == "rgb" else 2 - channel
        np.subtract(pixels[:, :, source], np.float32(mean), out=out[channel])
        if std != 1:
            out[channel] /= np.float32(std)
    return out


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _square(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _pair(value: object) -> tuple[int, int]:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        height, width = value
        if all(isinstance(side, int) and not isinstance(side, bool) and side >= 1 for side in value):
            return height, width
    raise InputError(f"size must be two whole numbers of at least 1, (height, width), got {value!r}")


def _triple(name: str, value: object) -> Triple:
    if isinstance(value, (tuple, list)) and len(value) == 3 and all(map(_is_number, value)):
        first, second, third = map(float, value)
        return first, second, third
    raise InputError(f"{name} must be three finite numbers, one for each channel, got {value!r}")
