"""The held-out scenes as a folder of pictures, indexed: what the page at the end of the demonstration searches."""

from __future__ import annotations

import csv
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from vse._util.atomic import write_json
from vse._util.schema import read_json
from vse.errors import InputError
from vse.models.coefficients import own_coefficients
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.data import CaptionedImages
    from vse.data.dataset import ImageFiles

EXPORT = "model-onnx"
SOURCE = "model-onnx.json"
GALLERY = "gallery"
COLLECTION = "scenes.vse"


def index_gallery(out: Path, model: Path, scenes_seed: int, progress: ProgressReporter) -> Path:
    """Export the model in ``model``, lay out the test scenes with their captions, and index them: the collection.

    Scenes that are indexed already are not encoded again, unless the model is another one.
    """
    from vse.index.open import collection_exists, create_collection, open_collection
    from vse.index.pipeline import index_folder
    from vse.models.onnx import OnnxModel

    source, where = out / EXPORT, out / COLLECTION
    _export(model, source, progress)
    exported = OnnxModel.load(source)
    folder = _lay_out(out / "scenes", out / GALLERY, scenes_seed)
    name = exported.fingerprint()
    if collection_exists(where) and _model_of(where) != name:  # what it holds is made again in seconds
        shutil.rmtree(where)
    if collection_exists(where):
        collection = open_collection(where, write=True, model=name)
    else:
        place = str(source.resolve())
        collection = create_collection(where, model=name, model_source=place, dimensions=exported.embed_size)
    with closing(collection):
        index_folder(collection, exported, folder, progress=progress)
        collection.settle(progress=progress)
    return where


def _model_of(where: Path) -> str:
    from vse.index.open import open_collection

    with closing(open_collection(where)) as collection:
        return collection.info().model


def _export(model: Path, folder: Path, progress: ProgressReporter) -> None:
    """The model as ONNX, unless it is there already; a file beside it says of which weights it is."""
    from vse.convert.onnx_export import export_onnx
    from vse.models.storage import load_towers

    note = folder.with_name(SOURCE)
    source = {"fingerprint": read_json(model / "config.json")["fingerprint"]}
    if folder.is_dir() and note.is_file() and read_json(note) == source:
        return
    note.unlink(missing_ok=True)  # first of all: an export that is interrupted is made again
    shutil.rmtree(folder, ignore_errors=True)
    export_onnx(load_towers(model), folder, confidence=own_coefficients(model), progress=progress)
    write_json(note, source)


def _lay_out(scenes: Path, folder: Path, seed: int) -> Path:
    """The test scenes below ``folder``, in folders by their background, with ``captions.csv`` beside them."""
    from vse.data import open_data

    test = open_data(scenes, "test")
    rows: list[tuple[str, str]] = [("path", "caption")]
    for number, path in enumerate(_files(test).paths):
        place = f"{_background(seed, number)}/{path.name}"
        rows += [(place, test.captions[each]) for each in test.caption_indices_of(number)]
        _link(path, folder / place)
    with (folder / "captions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


def _files(test: CaptionedImages) -> ImageFiles:
    from vse.data.dataset import ImageFiles

    if not isinstance(test.images, ImageFiles):
        raise InputError(f"{test.name} holds features, not pictures: remove the folder and run the demonstration again")
    return test.images


def _background(seed: int, number: int) -> str:
    from vse.data.scenes import sample_scene

    return sample_scene(seed=seed, split="test", index=number).background.texture


def _link(source: Path, target: Path) -> None:
    """A second name for the file, or a copy where the file system has none."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
