"""Named ways to divide a test split into galleries; recalls under different protocols cannot be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vse.data.dataset import IMAGES, ItemKind
from vse.errors import InputError, unknown_choice

AUTO = "auto"
FIRST_FOLD = "coco-1k-first-fold"
WHOLE_COCO = "testall"
"""The split of COCO's usual layout with all 5,000 test images; its ``test`` is the first 1,000 of them."""
COCO, F30K, F8K = ("coco",), ("f30k", "flickr30k"), ("f8k", "flickr8k")
TEST_SPLITS = ("test", WHOLE_COCO)


@dataclass(frozen=True)
class Protocol:
    """``folds`` galleries of ``gallery`` images each, in the order of the split; figures are means over the folds.

    ``gallery`` None means all images. ``images`` is the size of the split that the protocol is defined for.
    """

    name: str
    summary: str
    images: int | None = None
    gallery: int | None = None
    folds: int = 1
    data: tuple[str, ...] = ()  # parts of the dataset's name

    def galleries(self, images: int) -> list[NDArray[np.int64]]:
        """Return the rows of the images of each fold."""
        if self.images is not None and images != self.images and images != (self.gallery or 0) * self.folds:
            raise InputError(
                f"protocol {self.name!r} is defined for {self.images} images, this split has {images}: "
                "use another split, or --protocol all"
            )
        size = self.gallery or images
        return [np.arange(fold * size, (fold + 1) * size) for fold in range(self.folds)]


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("coco-1k-5fold", "COCO 1K: mean over five folds of 1,000 images", 5000, 1000, 5, COCO),
        Protocol("coco-5k", "COCO 5K: all 5,000 images at once", 5000, data=COCO),
        Protocol(FIRST_FOLD, "the first 1,000 of COCO's 5,000 images only; not what 1K means", 5000, 1000, 1, COCO),
        Protocol("flickr30k-1k", "Flickr30K: all 1,000 test images", 1000, data=F30K),
        Protocol("flickr8k-1k", "Flickr8k: all 1,000 test images", 1000, data=F8K),
        Protocol("all", "every image of the split at once"),
    )
}


VIDEO_PROTOCOLS = {
    ("msrvtt", "test", 2990): Protocol("msrvtt", "MSR-VTT: all 2,990 test videos"),
    ("vatex", "test-1500", 1500): Protocol("vatex", "VATEX: 1,500 test videos"),
}
"""Dataset and split in lower case and number of videos → the published protocol."""
ALL_VIDEOS = Protocol("all", "every video of the split at once")


def is_known_as(data: str, names: tuple[str, ...]) -> bool:
    """Return whether the name of a dataset contains one of ``names``."""
    return any(name in data.lower() for name in names)


def choose_protocols(
    name: str, data: str, images: int, split: str = "test", *, kind: ItemKind = IMAGES
) -> list[Protocol]:
    """Return the protocol called ``name``, or for ``auto`` the usual ones of the dataset, split and size.

    Videos have one protocol, whatever ``name`` is.

    Raises:
        InputError: there is no protocol of this name.
    """
    if kind.shared_captions:
        return [VIDEO_PROTOCOLS.get((data.casefold(), split.casefold(), images), ALL_VIDEOS)]
    if name != AUTO:
        if name not in PROTOCOLS:
            raise InputError(unknown_choice("protocol", name, (AUTO, *PROTOCOLS)))
        return [PROTOCOLS[name]]
    if split in TEST_SPLITS:
        if (is_known_as(data, COCO) or split == WHOLE_COCO) and images == 5000:
            return [PROTOCOLS["coco-1k-5fold"], PROTOCOLS["coco-5k"]]
        if images == 1000:
            for usual in (FIRST_FOLD, "flickr30k-1k", "flickr8k-1k"):
                if is_known_as(data, PROTOCOLS[usual].data):
                    return [PROTOCOLS[usual]]
    return [PROTOCOLS["all"]]


def remarks(protocol: Protocol, data: str, split: str) -> list[str]:
    """Return remarks for readers of the figures, such as a protocol on a dataset that it is not defined for."""
    found = []
    if protocol.data and not is_known_as(data, protocol.data) and split != WHOLE_COCO:
        found.append(f"{protocol.name} is defined for {protocol.data[0]}, this is {data}")
    if protocol.data and split not in TEST_SPLITS:
        found.append(f"{protocol.name} is defined for the test split, this is {split}")
    if protocol.name == FIRST_FOLD:
        found.append("COCO 1K and 5K need all 5,000 test images: use the split 'testall' where there is one")
    return found
