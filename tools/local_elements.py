"""Write one dataset from COCO and Flickr8k, for ``vse experiment local-elements``.

    python tools/local_elements.py --coco COCO --flickr8k FLICKR8K --into DATA --coco-images 10000

DATA receives ``dataset_local.json`` (Karpathy's layout) and links to the two folders of images. Its splits:

- ``train``: the first images of COCO's training split and all of Flickr8k's;
- ``dev``: one half of COCO's dev images, on which epochs and K are selected;
- ``test``: Flickr8k's test images;
- ``coco``: the other half of COCO's dev images, ranked with ``--split coco``.

Every training image gets five captions: those with fewer repeat them, since stored features need equally many.
"""

from __future__ import annotations

import argparse
import json
from itertools import cycle, islice
from pathlib import Path

from vse._util.atomic import write_text
from vse.data import CaptionedImages, open_data

CAPTIONS = 5


def entries(data: CaptionedImages, folder: str, split: str) -> list[dict[str, object]]:
    """Return the images of a split as Karpathy's JSON describes them."""
    captions: list[list[str]] = [[] for _ in data.images.ids]
    for caption, owner in zip(data.captions, data.caption_to_image.tolist(), strict=True):
        captions[owner].append(caption)
    return [
        {"filename": path.name, "filepath": folder, "split": split, "sentences": [{"raw": text} for text in texts]}
        for path, own in zip(data.images.paths, captions, strict=True)
        for texts in [list(islice(cycle(own), CAPTIONS))]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("coco", "flickr8k", "into"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--coco-images", type=int, default=10_000, help="training images of COCO")
    given = parser.parse_args()

    def read(place: Path, split: str) -> CaptionedImages:
        return open_data(place, split, use="files")

    dev = entries(read(given.coco, "dev"), "coco", "dev")
    found = [
        *entries(read(given.coco, "train"), "coco", "train")[: given.coco_images],
        *entries(read(given.flickr8k, "train"), "flickr8k", "train"),
        *dev[::2],
        *({**entry, "split": "coco"} for entry in dev[1::2]),
        *entries(read(given.flickr8k, "test"), "flickr8k", "test"),
    ]
    images = given.into / "images"
    images.mkdir(parents=True, exist_ok=True)
    for name, place in (("coco", given.coco), ("flickr8k", given.flickr8k)):
        if not (images / name).exists():
            (images / name).symlink_to((place / "images").resolve(), target_is_directory=True)
    write_text(given.into / "dataset_local.json", json.dumps({"images": found}))
    print(f"{len(found):,} images in {given.into}")


if __name__ == "__main__":
    main()
