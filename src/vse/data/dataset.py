"""Datasets in memory: images or videos, and the captions that describe them."""

from __future__ import annotations

import mmap
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vse.data.frames import FRAME_LIMIT, VideoFrames, find_frames, sample_digest
from vse.data.packed import PackedImages
from vse.data.video_sources import FrameSource
from vse.errors import InputError

Kind = Literal["files", "features"]


class ImageSet(Protocol):
    """A sequence of distinct images: files to decode, or features that were extracted before."""

    @property
    def ids(self) -> Sequence[str]:
        """One id per image; not guaranteed to be unique."""

    @property
    def kind(self) -> Kind:
        """What indexing returns: a path or the content of a file for ``files``, an array for ``features``."""

    @property
    def feature_size(self) -> int | None:
        """The width of a feature; None for files."""

    def __len__(self) -> int: ...

    def expect_finite(self) -> None:
        """Raise InputError if a feature that only reading shows is NaN or infinite."""

    def identity(self) -> dict[str, Any]:
        """Return what tells features of different origin apart, without reading all of them."""


@dataclass(frozen=True)
class ImageFiles:
    """Images as files. ``images[i]`` is a path, which is not checked until it is read."""

    paths: tuple[Path, ...]
    ids: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.paths):
            raise InputError(f"{len(self.paths)} paths and {len(self.ids)} ids: expected one id for each path")

    @property
    def kind(self) -> Literal["files"]:
        return "files"

    @property
    def feature_size(self) -> None:
        return None

    def expect_finite(self) -> None:
        return

    def identity(self) -> dict[str, Any]:
        return {}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Path:
        return self.paths[index]


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Images as rows of an array that stays on disk.

    ``array`` is ``(R, N, C)`` with N regions per image, or ``(R, C)``, which counts as one region. ``rows`` holds the
    row of each image: of a file that repeats an image for each of its captions, the first. ``images[i]`` is a float32
    copy ``(N, C)``. Unpickling maps a memory-mapped array again, so that passing it to a worker process does not copy
    the file.

    With ``boxes``, ``(R, N, 4)``, the box of each region is a part of its feature: the last four of ``C + 4`` values.
    With ``tags``, ``(R, N)``, one more value follows: the number of a tag of the image, or -1. An image has at most as
    many tags as regions; which region holds which means nothing.
    """

    array: NDArray[Any]
    rows: NDArray[np.int64]
    ids: tuple[str, ...]
    boxes: NDArray[np.float32] | None = None
    tags: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.array.ndim not in {2, 3}:
            raise InputError(
                f"features of shape {self.array.shape}: expected (images, regions, size) or (images, size)"
            )
        object.__setattr__(self, "rows", _indices("rows", self.rows, len(self.array)))
        if len(self.ids) != len(self.rows):
            raise InputError(f"{len(self.rows)} rows and {len(self.ids)} ids: expected one id for each row")
        if self.boxes is not None and self.boxes.shape != (*self.array.shape[:2], 4):
            raise InputError(
                f"boxes of shape {self.boxes.shape} for features of {self.array.shape}: expected four numbers for each"
            )
        if self.tags is not None and self.tags.shape != self.array.shape[:2]:
            raise InputError(
                f"tags of shape {self.tags.shape} for features of {self.array.shape}: expected one for each"
            )

    @property
    def kind(self) -> Literal["features"]:
        return "features"

    @property
    def regions(self) -> int:
        """N, the number of features per image."""
        return int(self.array.shape[1]) if self.array.ndim == 3 else 1

    @property
    def dim(self) -> int:
        """C, the size of one feature, with its box and tag if there are any."""
        return int(self.array.shape[-1]) + (0 if self.boxes is None else 4) + (0 if self.tags is None else 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of what :meth:`stored` returns."""
        plain = self.boxes is None and self.tags is None
        return np.dtype(self.array.dtype if plain else np.float32)

    @property
    def feature_size(self) -> int:
        return self.dim

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of features of each image, ``(len(self),)``."""
        return np.full(len(self), self.regions, dtype=np.int64)

    def expect_finite(self) -> None:
        return

    def identity(self) -> dict[str, Any]:
        return {"regions": self.regions, "width": self.dim, "sample": sample_digest(self)}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        return np.array(self.stored(self.rows[operator.index(index)]), dtype=np.float32)  # (N, C)

    def stored(self, rows: Any) -> NDArray[Any]:
        """Return rows of the file in their stored type, ``(..., N, C)``; with boxes or tags in float32."""
        features = self.array[rows].reshape(*np.shape(rows), self.regions, self.array.shape[-1])
        more = [] if self.boxes is None else [self.boxes[rows]]
        more += [] if self.tags is None else [self.tags[rows][..., None]]
        return np.concatenate((features.astype(np.float32), *more), axis=-1) if more else features

    def __getstate__(self) -> dict[str, Any]:
        boxes = None if self.boxes is None else _Mapped.describe(self.boxes)
        return {**self.__dict__, "array": _Mapped.describe(self.array), "boxes": boxes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name in ("array", "boxes"):
            value = state[name]
            self.__dict__.update(state := {**state, name: value.open() if isinstance(value, _Mapped) else value})


class ItemKind(NamedTuple):
    """What the items of a dataset are, for code that treats images and videos alike.

    Attributes:
        noun: ``image`` or ``video``.
        encoder: the method of a model that encodes such items.
        shared_captions: whether captions repeat, so that retrieval ranks distinct sentences.
    """

    noun: str
    encoder: str
    shared_captions: bool

    @property
    def plural(self) -> str:
        """``images`` or ``videos``."""
        return f"{self.noun}s"


IMAGES = ItemKind("image", "encode_images", shared_captions=False)
VIDEOS = ItemKind("video", "encode_videos", shared_captions=True)


@dataclass(frozen=True, eq=False)
class CaptionedImages:
    """One split of a dataset: images, captions, and which caption describes which image.

    ``caption_to_image[j]`` is the index into ``images`` of the image that ``captions[j]`` describes. An image may have
    any number of captions, including none.
    """

    name: str
    split: str
    layout: str
    images: ImageFiles | PackedImages | FeatureRows | VideoFrames
    captions: tuple[str, ...]
    caption_to_image: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(self.images) == 0:
            raise InputError(f"{self.name}, split {self.split!r}: zero images, expected at least one")
        owners = _indices("caption_to_image", self.caption_to_image, len(self.images))
        if len(owners) != len(self.captions):
            raise InputError(
                f"caption_to_image has {len(owners)} entries for {len(self.captions)} captions: expected one for each"
            )
        object.__setattr__(self, "caption_to_image", owners)

    @property
    def kind(self) -> ItemKind:
        """What the items of this split are."""
        return VIDEOS if isinstance(self.images, VideoFrames) else IMAGES

    def caption_indices_of(self, image: int) -> NDArray[np.int64]:
        """Return the indices of the captions of ``image``, ascending."""
        starts, order = self._captions_by_image
        image = range(len(self.images))[image]  # negative indices count from the end, others raise IndexError
        return order[starts[image] : starts[image + 1]]

    def captions_of(self, image: int) -> tuple[str, ...]:
        """Return the captions of ``image`` in the order of the file."""
        return tuple(self.captions[j] for j in self.caption_indices_of(image))

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the images."""
        return self.images.ids

    @property
    def captions_per_image(self) -> NDArray[np.int64]:
        """How many captions each image has, ``(len(images),)``."""
        return np.diff(self._captions_by_image[0])

    @cached_property
    def _captions_by_image(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Captions grouped by image, as ``starts (I + 1,)`` and ``order (captions,)``."""
        counts = np.bincount(self.caption_to_image, minlength=len(self.images))
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return starts, np.argsort(self.caption_to_image, kind="stable")


class _Mapped(NamedTuple):
    """The location of a memory-mapped array: enough to map it again."""

    filename: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    order: Literal["C", "F"]

    @classmethod
    def describe(cls, array: NDArray[Any]) -> _Mapped | NDArray[Any]:
        """Return the location of ``array`` if it maps a file itself; a view of such an array knows no offset."""
        if not (isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap) and array.filename):
            return array
        order: Literal["C", "F"] = "C" if array.flags.c_contiguous else "F"
        return cls(str(array.filename), array.dtype, array.shape, array.offset, order)

    def open(self) -> NDArray[Any]:
        return np.memmap(self.filename, self.dtype, "r", self.offset, self.shape, self.order)


def _indices(what: str, values: NDArray[Any], limit: int) -> NDArray[np.int64]:
    """Return ``values`` as read-only int64 after checking that they are in ``[0, limit)``."""
    given = np.asarray(values)
    if given.ndim != 1 or not (np.issubdtype(given.dtype, np.integer) or given.size == 0):
        raise InputError(f"{what} is {given.dtype} of shape {given.shape}: expected whole numbers in one dimension")
    indices = given.astype(np.int64)
    wrong = np.flatnonzero((indices < 0) | (indices >= limit))
    if wrong.size:
        raise InputError(f"{what}[{wrong[0]}] is {given[wrong[0]]}: expected 0 to {limit - 1}")
    indices.flags.writeable = False
    return indices


@dataclass(frozen=True, eq=False)
class VideoCaptions:
    """The captions of a split of videos, before its frames are found.

    ``caption_to_image[j]`` is the index into ``ids`` of the video that ``captions[j]`` describes. A sentence that
    describes several videos is listed once for each. ``remarks`` are what a reader of results should know.
    """

    name: str
    split: str
    layout: str
    ids: tuple[str, ...]
    captions: tuple[str, ...]
    caption_to_image: NDArray[np.int64]
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        split: str,
        layout: str,
        videos: Sequence[tuple[str, Sequence[str]]],
        remarks: tuple[str, ...] = (),
    ) -> VideoCaptions:
        """Build the split from pairs of a video and its captions."""
        owners = np.repeat(np.arange(len(videos)), [len(captions) for _, captions in videos])
        captions = tuple(caption for _, each in videos for caption in each)
        return cls(name, split, layout, tuple(video for video, _ in videos), captions, owners.astype(np.int64), remarks)

    @property
    def captions_per_image(self) -> NDArray[np.int64]:
        """How many captions each video has, ``(len(ids),)``."""
        return np.bincount(self.caption_to_image, minlength=len(self.ids))

    def with_frames(self, source: FrameSource, limit: int | None = FRAME_LIMIT) -> CaptionedVideos:
        """Return the split with its frames; videos without any are left out with their captions, and listed."""
        frames, dropped = find_frames(source, self.ids, limit)
        left = set(frames.ids)
        kept = np.array([video in left for video in self.ids])  # (videos,)
        described = kept[self.caption_to_image]  # (captions,)
        return CaptionedVideos(
            self.name,
            self.split,
            self.layout,
            frames,
            tuple(compress(self.captions, described)),
            (np.cumsum(kept) - 1)[self.caption_to_image[described]],
            dropped=dropped,
            remarks=self.remarks,
        )


@dataclass(frozen=True, eq=False)
class CaptionedVideos(CaptionedImages):
    """A split of videos: :class:`CaptionedImages` whose images are videos.

    ``images[i]`` is ``(n, C)``, where n differs between videos. A sentence that several videos share is listed once for
    each, as training needs it; ranking makes one candidate of it (:func:`vse.evaluation.distinct_sentences`).
    ``dropped`` are the videos of the split without frames.
    """

    images: VideoFrames
    dropped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
