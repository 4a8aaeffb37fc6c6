"""Write scenes to disk as a dataset in the layout of Karpathy's splits.

::

    FOLDER/scenes.json             the arguments; written first
    FOLDER/images/train_000000.png …, dev_…, test_…
    FOLDER/dataset_scenes.json     {"dataset", "images": [{"filename", "split", "imgid", "sentences": [{"raw"}]}]};
                                   written last, so that its presence means that the dataset is complete

Files are written atomically, so that an interrupted call can be resumed.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse._util.atomic import write_json
from vse.data.scenes.captions import CAPTIONS
from vse.data.scenes.keyed import KEY_LIMIT
from vse.data.scenes.render import check_size, render
from vse.data.scenes.sample import caption_scene, max_scenes, sample_scene
from vse.data.scenes.scene import Split
from vse.errors import InputError
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from PIL.Image import Image

FORMAT = 2
"""Changes whenever the same arguments give other scenes, images or captions."""
RECORD = "scenes.json"
ANNOTATIONS = "dataset_scenes.json"
IMAGES = "images"
COMPRESSION = 3  # much faster than the default 6, for files a tenth larger
KARPATHY_SPLITS: dict[Split, str] = {"train": "train", "dev": "val", "test": "test"}


@dataclass(frozen=True)
class WrittenScenes:
    """What :func:`write_scenes` did."""

    folder: Path
    counts: dict[Split, int]
    drawn: int
    kept: int

    @property
    def annotations(self) -> Path:
        """The file that lists images and captions."""
        return self.folder / ANNOTATIONS

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "annotations": str(self.annotations),
            "images": dict(self.counts),
            "captions": CAPTIONS * sum(self.counts.values()),
            "drawn": self.drawn,
            "kept": self.kept,
        }


@dataclass(frozen=True)
class Order:
    """The arguments of :func:`write_scenes`; a folder holds the scenes of one order."""

    train: int
    dev: int
    test: int
    seed: int
    size: int
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name in ("train", "dev", "test", "seed"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < KEY_LIMIT:
                raise InputError(f"{name} must be an integer from 0 to 2^32 - 1, got {value!r}")
        check_size(self.size)
        for split, number in self.counts.items():
            if number > max_scenes(split):
                raise InputError(
                    f"{split} must be at most {max_scenes(split)}, the number of scenes there are, got {number}"
                )
        if self.train + self.dev + self.test == 0:
            raise InputError("train, dev and test are all 0: request at least one scene")

    @property
    def counts(self) -> dict[Split, int]:
        return {"train": self.train, "dev": self.dev, "test": self.test}


def write_scenes(
    folder: Path | str,
    train: int = 2400,
    dev: int = 200,
    test: int = 500,
    *,
    seed: int = 0,
    size: int = 128,
    progress: ProgressReporter | None = None,
) -> WrittenScenes:
    """Write a dataset of scenes, or resume one that was begun with the same arguments.

    Args:
        folder: A new folder, or that of an interrupted call.
        train: Scenes in the training split.
        dev: Scenes in the development split.
        test: Scenes in the test split.
        seed: Selects the scenes.
        size: The side of the images in pixels.
        progress: Receives the number of scenes.

    Raises:
        InputError: If an argument is invalid, or the folder holds something else.
    """
    order = Order(train, dev, test, seed, size)
    progress = progress or SilentProgress()
    folder = Path(folder)
    _claim(folder, order)
    images = folder / IMAGES
    images.mkdir(exist_ok=True)
    there = {entry.name for entry in os.scandir(images) if entry.stat().st_size}
    entries: list[dict[str, Any]] = []
    drawn = 0
    progress.start(sum(order.counts.values()), "drawing scenes")
    for split, number in order.counts.items():
        for index in range(number):
            name = f"{split}_{index:06d}.png"
            scene = sample_scene(seed, split, index)
            if name not in there:
                _write_image(images / name, render(scene, size))
                drawn += 1
            entries.append(
                {
                    "filepath": IMAGES,
                    "filename": name,
                    "split": KARPATHY_SPLITS[split],
                    "imgid": len(entries),
                    "sentences": [{"raw": text} for text in caption_scene(scene, seed, split, index)],
                }
            )
            progress.advance(1)
    write_json(folder / ANNOTATIONS, {"dataset": "scenes", "images": entries})
    progress.finish()
    return WrittenScenes(folder, order.counts, drawn=drawn, kept=len(entries) - drawn)


def _claim(folder: Path, order: Order) -> None:
    """Record the order in the folder, or check that the folder was begun with it."""
    record = folder / RECORD
    if record.is_file():
        _compare(record, order)
        return
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise InputError(f"{str(place)!r} is a file, expected a folder: choose another one for the scenes")
    for taken in (folder / ANNOTATIONS, folder / IMAGES):
        if taken.exists():
            raise InputError(
                f"{str(taken)!r} exists, but there is no {RECORD} that describes it: choose another folder"
            )
    write_json(record, asdict(order))


def _compare(record: Path, order: Order) -> None:
    try:
        known = json.loads(record.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{str(record)!r} is not JSON ({error}): choose another folder, or delete this one") from error
    wanted = asdict(order)
    if known == wanted:
        return
    if not isinstance(known, dict):
        raise InputError(
            f"{str(record)!r} does not describe what the folder holds: choose another folder, or delete this one"
        )
    changes = ", ".join(
        f"{name} {known.get(name)!r} (now {value!r})" for name, value in wanted.items() if known.get(name) != value
    )
    raise InputError(f"{str(record.parent)!r} holds scenes of {changes}: choose another folder, or delete this one")


def _write_image(path: Path, picture: Image) -> None:
    """Write atomically but without syncing to disk: an image lost in a crash is drawn again."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            picture.save(file, "PNG", compress_level=COMPRESSION)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
