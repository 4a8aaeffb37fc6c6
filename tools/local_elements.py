"""Write one dataset from COCO and Flickr8k, for ``vse experiment local-elements``.

    python tools/local_elements.py --coco COCO --flickr8k FLICKR8K --into DATA --coco-images 10000

DATA receives ``dataset_local.json`` (Karpathy's layout), links to the folders of images, and ``vocabulary.json``. Its
splits:

- ``train``: the first images of COCO's training split and all of Flickr8k's;
- ``dev``: one half of COCO's dev images, on which epochs and K are selected;
- ``test``: Flickr8k's test images;
- ``coco``: the other half of COCO's dev images, ranked with ``--split coco``.

Without ``--flickr8k``, the other half of COCO's dev images is ``test``.

Every training image gets five captions: those with fewer repeat them, since stored features need equally many. The
vocabulary counts each caption of an image once, as ``data.min_count`` of a recipe cannot; train with
``--set data.vocabulary=DATA/vocabulary.json``.
"""

from __future__ import annotations

import argparse
import json
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from vse._util.atomic import write_text
from vse.data import CaptionedImages, open_data
from vse.inputs.vocabulary import Vocabulary

CAPTIONS = 5
Entry = dict[str, Any]


def entries(data: CaptionedImages, folder: str, split: str) -> list[Entry]:
    """Return the images of a split as Karpathy's JSON describes them."""
    captions: list[list[str]] = [[] for _ in data.images.ids]
    for caption, owner in zip(data.captions, data.caption_to_image.tolist(), strict=True):
        captions[owner].append(caption)
    return [
        {"filename": path.name, "filepath": folder, "split": split, "sentences": [{"raw": text} for text in texts]}
        for path, own in zip(data.images.paths, captions, strict=True)
        for texts in [list(islice(cycle(own), CAPTIONS))]
    ]


def vocabulary(images: list[Entry]) -> Vocabulary:
    """Return the words of the training captions, each caption of an image counted once."""
    train = [entry["sentences"] for entry in images if entry["split"] == "train"]
    return Vocabulary.build(
        caption for sentences in train for caption in dict.fromkeys(each["raw"] for each in sentences)
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("coco", "into"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--flickr8k", type=Path, help="left out: COCO alone")
    parser.add_argument("--coco-images", type=int, default=10_000, help="training images of COCO")
    given = parser.parse_args(arguments)

    def read(place: Path, split: str) -> CaptionedImages:
        return open_data(place, split, use="files")

    other = "test" if given.flickr8k is None else "coco"
    dev = entries(read(given.coco, "dev"), "coco", "dev")
    found = entries(read(given.coco, "train"), "coco", "train")[: given.coco_images]
    found += [*dev[::2], *({**entry, "split": other} for entry in dev[1::2])]
    places = {"coco": given.coco}
    if given.flickr8k is not None:
        places["flickr8k"] = given.flickr8k
        found += [
            each for split in ("train", "test") for each in entries(read(given.flickr8k, split), "flickr8k", split)
        ]
    images = given.into / "images"
    images.mkdir(parents=True, exist_ok=True)
    for name, place in places.items():
        if not (images / name).exists():
            (images / name).symlink_to((place / "images").resolve(), target_is_directory=True)
    write_text(given.into / "dataset_local.json", json.dumps({"images": found}))
    words = vocabulary(found)
    words.save(given.into / "vocabulary.json")
    print(f"{len(found):,} images and {len(words):,} words in {given.into}")


if __name__ == "__main__":
    main()
