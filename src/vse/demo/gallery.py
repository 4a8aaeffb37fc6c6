"""Index the test scenes of the demo, for the search page."""

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
from vse.models.coefficients import own_coefficients, own_relevance
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.data import CaptionedImages
    from vse.data.dataset import ImageFiles

EXPORT = "model-onnx"
SOURCE = "model-onnx.json"
GALLERY = "gallery"
COLLECTION = "scenes.vse"


def index_gallery(out: Path, model: Path, scenes_seed: int, progress: ProgressReporter) -> Path:
    """Export a model and index the test scenes with it.

    Scenes that are already indexed with the same model are skipped.

    Args:
        out: folder of the demo.
        model: folder of the trained model.
        scenes_seed: seed of the scenes.
        progress: reporter of the work.

    Returns:
        The folder of the collection.
    """
    from vse.index.confirmed import confirm_roots
    from vse.index.open import collection_exists, create_collection, open_collection
    from vse.index.pipeline import index_folder
    from vse.models.onnx import OnnxModel

    source, where = out / EXPORT, out / COLLECTION
    _export(model, source, progress)
    exported = OnnxModel.load(source)
    folder = _link_scenes(out / "scenes", out / GALLERY, scenes_seed)
    name = exported.fingerprint()
    if collection_exists(where) and _model_of(where) != name:  # rebuilding it takes seconds
        shutil.rmtree(where)
    if collection_exists(where):
        collection = open_collection(where, write=True, model=name)
    else:
        place = str(source.resolve())
        collection = create_collection(where, model=name, model_source=place, dimensions=exported.embed_size)
    with closing(collection):
        report = index_folder(collection, exported, folder, progress=progress)
        confirm_roots(where, [report.root])
        collection.settle(progress=progress)
    return where


def _model_of(where: Path) -> str:
    from vse.index.open import open_collection

    with closing(open_collection(where)) as collection:
        return collection.info().model


def _export(model: Path, folder: Path, progress: ProgressReporter) -> None:
    """Export the model to ONNX, unless the export is current: a file holds the fingerprint of its weights."""
    from vse.convert.onnx_export import export_onnx
    from vse.models.storage import load_towers

    note = folder.with_name(SOURCE)
    source = {"fingerprint": read_json(model / "config.json")["fingerprint"]}
    if folder.is_dir() and note.is_file() and read_json(note) == source:
        return
    note.unlink(missing_ok=True)  # first, so that an interrupted export is repeated
    shutil.rmtree(folder, ignore_errors=True)
    confidence, relevance = own_coefficients(model), own_relevance(model)
    export_onnx(load_towers(model), folder, confidence=confidence, relevance=relevance, progress=progress)
    write_json(note, source)


def _link_scenes(scenes: Path, folder: Path, seed: int) -> Path:
    """Link the test scenes into folders by background, with their captions in ``captions.csv``."""
    from vse.data import open_data

    test = open_data(scenes, "test")
    rows: list[tuple[str, str]] = [("path", "caption")]
    for number, path in enumerate(_files(test).paths):
        place = f"{_background(seed, number)}/{path.name}"
        rows += [(place, test.captions[each]) for each in test.caption_indices_of(number)]
        link_file(path, folder / place)
    with (folder / "captions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


def _files(test: CaptionedImages) -> ImageFiles:
    from vse.data.dataset import ImageFiles

    if not isinstance(test.images, ImageFiles):
        raise InputError(f"{test.name} holds features, not images: remove the folder and run the demo again")
    return test.images


def _background(seed: int, number: int) -> str:
    from vse.data.scenes import sample_scene

    return sample_scene(seed=seed, split="test", index=number).background.texture


def link_file(source: Path, target: Path) -> None:
    """Hard-link the file unless it is there, or copy it where the file system has no links."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
