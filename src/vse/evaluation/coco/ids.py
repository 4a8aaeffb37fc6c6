"""COCO's image and sentence ids of each row, for ratings that refer to ids."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.data.files import parse_json
from vse.errors import InputError

if TYPE_CHECKING:
    from vse.data.dataset import CaptionedImages

GZIP = b"\x1f\x8b"
SPELLED_OTHERWISE = 0.01  # share of captions that releases may spell differently (encodings, typing errors)
_NOT_PLAIN = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class CocoIds:
    """The images of a split in its order, and the sentence ids of the captions of each.

    Image i has row i. Captions are numbered through in image order: those of the first image come first. ``captions``
    are their texts, image by image; empty if nobody needs to check them.
    """

    files: tuple[str, ...]
    image_ids: tuple[int, ...]
    sentids: tuple[tuple[int, ...], ...]
    captions: tuple[tuple[str, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        counts = {len(self.files), len(self.image_ids), len(self.sentids), len(self.captions or self.files)}
        if counts == {0} or len(counts) > 1:
            raise InputError(
                f"{len(self.files)} files, {len(self.image_ids)} image ids, {len(self.sentids)} lists of sentence ids "
                f"and {len(self.captions)} of captions: expected one of each for every image, and at least one image"
            )
        for i, texts in enumerate(self.captions):
            if len(texts) != len(self.sentids[i]):
                raise InputError(
                    f"{self.files[i]}: {len(self.sentids[i])} sentence ids and {len(texts)} captions, "
                    "expected one id for each caption"
                )
        for what, values in (("file", self.files), ("image id", self.image_ids), ("sentence id", self._flat)):
            _expect_distinct(what, values)

    @cached_property
    def file_rows(self) -> dict[str, int]:
        """The row of each file name."""
        return {file: row for row, file in enumerate(self.files)}

    @cached_property
    def image_rows(self) -> dict[int, int]:
        """The row of each COCO image id."""
        return {image: row for row, image in enumerate(self.image_ids)}

    @cached_property
    def caption_rows(self) -> dict[int, int]:
        """The caption row of each sentence id."""
        return {sentid: row for row, sentid in enumerate(self._flat)}

    @cached_property
    def caption_to_image(self) -> NDArray[np.int64]:
        """The image row of each caption row."""
        return np.repeat(np.arange(len(self.files)), [len(each) for each in self.sentids])

    @property
    def shape(self) -> tuple[int, int]:
        """How many images and captions there are."""
        return len(self.files), len(self._flat)

    def first_captions(self, count: int) -> CocoIds:
        """Return the same images with their first ``count`` captions: a few have more than the usual five."""
        if count < 1:
            raise InputError(f"count must be at least 1, got {count}")
        shorter = tuple(each[:count] for each in self.sentids)
        return CocoIds(self.files, self.image_ids, shorter, tuple(each[:count] for each in self.captions))

    def check_captions(self, data: CaptionedImages) -> None:
        """Refuse a split whose images and captions are not these in this order.

        Texts are compared by their letters and digits alone, and one in a hundred may differ: releases differ in
        tokenization, case and encoding. Where the texts are unknown, the counts have to do.
        """
        found = (len(data.images), len(data.captions))
        place = f"{data.name}, split {data.split!r}"
        if found != self.shape:
            more = found[0] == self.shape[0] and found[1] < self.shape[1]
            hint = ", or first_captions(5) of the ids, since a few images have six or seven" if more else ""
            raise InputError(
                f"{place}: {found[0]} images and {found[1]} captions, the ids are for {self.shape[0]} and "
                f"{self.shape[1]}: use the split that the ids belong to{hint}"
            )
        wrong = np.flatnonzero(data.caption_to_image != self.caption_to_image)
        if wrong.size:
            raise InputError(f"{place}: caption {wrong[0]} belongs to another image than in the ids: reorder the split")
        texts = [text for each in self.captions for text in each]
        differing = [j for j, text in enumerate(texts) if _plain(text) != _plain(data.captions[j])]
        if len(differing) > SPELLED_OTHERWISE * len(texts):
            j = differing[0]
            raise InputError(
                f"{place}: {len(differing)} of {len(texts)} captions differ from those of the ids, first caption {j}: "
                f"{data.captions[j]!r} instead of {texts[j]!r}: use the split in the order of the ids"
            )

    @cached_property
    def _flat(self) -> tuple[int, ...]:
        return tuple(sentid for each in self.sentids for sentid in each)


def read_coco_ids(path: str | Path, split: str = "test") -> CocoIds:
    """Read ids from Karpathy's ``dataset_coco.json``, or from a list ``[{"image_id", "file", "sentids", "captions"}]``.

    Both may be gzipped. The list is one split already; ``split`` chooses from Karpathy's file.
    """
    path = Path(path)
    content = parse_json(read_plain_or_gzip(path), str(path))
    if isinstance(content, list):
        return _collect(path, content, "image_id", "file")
    entries = content.get("images") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise InputError(f'{path}: expected Karpathy\'s object with "images", or a list of images with "sentids"')
    chosen = [entry for entry in entries if isinstance(entry, dict) and entry.get("split") == split]
    if not chosen:
        names = sorted({str(entry.get("split")) for entry in entries if isinstance(entry, dict)})
        raise InputError(
            f"{path}: no image in split {split!r}, expected one of {', '.join(map(repr, names)) or 'none'}"
        )
    return _collect(path, chosen, "cocoid", "filename")


def read_plain_or_gzip(path: Path) -> str:
    """Return the text of a file, gzipped or not; ``name.gz`` is used where ``name`` is missing."""
    packed = path.with_name(path.name + ".gz")
    if not path.is_file() and packed.is_file():
        path = packed
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if content.startswith(GZIP) else content).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist, nor does {packed.name}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}): get it again") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8: convert the file to UTF-8") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def whole_number(value: Any, place: str) -> int:
    """``value`` as an id: a whole number, or a text of digits."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    raise InputError(f"{place} is {value!r}, expected the number of a COCO image or sentence")


def _collect(path: Path, entries: list[Any], image_key: str, file_key: str) -> CocoIds:
    files, images, sentids, captions = [], [], [], []
    for i, entry in enumerate(entries):
        place = f"{path}, image {i}"
        if not isinstance(entry, dict) or not isinstance(entry.get(file_key), str):
            raise InputError(f'{place}: expected an object with "{file_key}", "{image_key}" and "sentids"')
        numbers = entry.get("sentids")
        if not isinstance(numbers, list):
            raise InputError(f'{place}: "sentids" is {numbers!r}, expected a list of numbers')
        files.append(entry[file_key])
        images.append(whole_number(entry.get(image_key), f'{place}: "{image_key}"'))
        sentids.append(tuple(whole_number(number, f"{place}: a sentence id") for number in numbers))
        captions.append(_texts(entry, place))
    known = tuple(texts for texts in captions if texts is not None)
    if known and len(known) < len(captions):
        raise InputError(f"{path}: {len(known)} of {len(captions)} images have captions, expected all or none of them")
    return CocoIds(tuple(files), tuple(images), tuple(sentids), known)


def _texts(entry: dict[str, Any], place: str) -> tuple[str, ...] | None:
    """The captions of an image: ``captions`` as texts, or ``sentences`` with ``raw``; None if it has neither."""
    texts = entry.get("captions")
    if texts is None and "sentences" in entry:
        sentences = entry["sentences"] if isinstance(entry["sentences"], list) else [None]
        texts = [each.get("raw") if isinstance(each, dict) else None for each in sentences]
    if texts is None:
        return None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{place}: the captions are no list of texts")
    return tuple(texts)


def _expect_distinct(what: str, values: Sequence[str | int]) -> None:
    repeated = next((value for value, count in Counter(values).items() if count > 1), None)
    if repeated is not None:
        raise InputError(f"{what} {repeated!r} is there twice: expected each once")


def _plain(text: str) -> str:
    return _NOT_PLAIN.sub("", text.lower())
