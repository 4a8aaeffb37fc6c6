"""Named ways to cut a test split into galleries. A recall without its protocol means nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, unknown_choice

AUTO = "auto"


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

    def galleries(self, images: int) -> list[NDArray[np.int64]]:
        """The rows of the images of each fold."""
        if self.images is not None and images != self.images:
            raise InputError(
                f"protocol {self.name!r} is defined for {self.images} images, this split has {images}: "
                "use another split, or --protocol all"
            )
        size = self.gallery or images
        return [np.arange(fold * size, (fold + 1) * size) for fold in range(self.folds)]


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("coco-1k-5fold", "COCO 1K: mean over five folds of 1,000 images", 5000, 1000, 5),
        Protocol("coco-5k", "COCO 5K: all 5,000 images at once", 5000),
        Protocol("coco-1k-first-fold", "the first 1,000 of COCO's 5,000 images only; not what 1K means", 5000, 1000, 1),
        Protocol("flickr30k-1k", "Flickr30K: all 1,000 test images", 1000),
        Protocol("flickr8k-1k", "Flickr8k: all 1,000 test images", 1000),
        Protocol("all", "every image of the split at once"),
    )
}


def choose_protocols(name: str, data: str, images: int) -> list[Protocol]:
    """The protocol called ``name``; ``auto`` takes those that are usual for the data set and its size."""
    if name != AUTO:
        if name not in PROTOCOLS:
            raise InputError(unknown_choice("protocol", name, (AUTO, *PROTOCOLS)))
        return [PROTOCOLS[name]]
    known = data.lower()
    if "coco" in known and images == 5000:
        return [PROTOCOLS["coco-1k-5fold"], PROTOCOLS["coco-5k"]]
    if images == 1000 and ("f30k" in known or "flickr30k" in known):
        return [PROTOCOLS["flickr30k-1k"]]
    if images == 1000 and ("f8k" in known or "flickr8k" in known):
        return [PROTOCOLS["flickr8k-1k"]]
    return [PROTOCOLS["all"]]
