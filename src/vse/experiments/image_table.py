"""The data of tables on images: the recipe whose rows change, and features projected onto fewer dimensions."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import write_json
from vse._util.schema import read_json
from vse.data import CaptionedImages, FeatureRows, FeatureStore, attach, open_data
from vse.data.features import HEADER
from vse.data.layouts import precomp
from vse.data.open import list_splits, match_layout
from vse.errors import InputError
from vse.experiments.plan import Call
from vse.models.config import RegionConfig
from vse.pooling import GPO
from vse.progress import ProgressReporter
from vse.training.data import open_split
from vse.training.recipe import Recipe
from vse.training.recipes import read_recipe, toml_text

SPLITS = ("train", "dev", "test")
ABOUT = "projected.json"
CELLS_PER_IMAGE = 16
"""Sampled from each training image to find the directions."""
BLOCK = 64  # images projected at once


def project_features(data: Path, features: Path, into: Path, size: int, report: ProgressReporter) -> Path:
    """Write the splits of a dataset in the layout ``precomp``, with cells projected onto ``size`` float16 values.

    Args:
        data: the dataset.
        features: a store of ``vse features``.
        into: the parent of the new folder.
        size: values of a cell after projection (PCA of the training cells).
        report: shows messages.

    Returns:
        The folder, whose name begins with that of the dataset and depends on the inputs; an existing one is reused.

    Raises:
        InputError: the cells have fewer than ``size`` values.
    """
    store = FeatureStore.open(features)
    names = (*SPLITS, *(name for name in list_splits(data) if name not in SPLITS and name != "val"))
    splits = {split: attach(open_data(data, split, use="files"), store, on_bad="drop") for split in names}
    channels = store.header.channels
    if size > channels:
        raise InputError(f"{features}: cells of {channels} values, which cannot be projected onto {size}")
    inputs = json.dumps([store.header.fingerprint, size, {name: each.images.ids for name, each in splits.items()}])
    folder = into / f"{splits['train'].name}-projected-{size}-{hashlib.sha256(inputs.encode()).hexdigest()[:8]}"
    if (folder / ABOUT).is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    mean, directions, kept = _main_directions(_rows(splits["train"]), size)
    report.note(f"projecting cells of {channels} values onto {size}, which hold {100 * kept:.1f} % of their variance")
    for name, split in splits.items():
        precomp.write(folder, replace(split, split=name), lambda cells: (cells - mean) @ directions)
    about = {"features": str(features), "fingerprint": store.header.fingerprint, "size": size, "variance_kept": kept}
    write_json(folder / ABOUT, about)  # last: its presence means that the folder is complete
    return folder


def read_about(folder: Path) -> dict[str, Any]:
    """Return the inputs of a projection, and the share of the variance that it keeps."""
    return read_json(folder / ABOUT)


def _rows(split: CaptionedImages) -> FeatureRows:
    if not isinstance(split.images, FeatureRows):
        raise InputError(f"{split.name}, split {split.split!r}: no stored features")
    return split.images


def _main_directions(rows: FeatureRows, size: int) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """Return mean ``(C,)``, main directions ``(C, size)`` and their share of the variance, from sampled cells."""
    generator = np.random.Generator(np.random.Philox(0))
    width, count = rows.dim, 0
    total, outer = np.zeros(width), np.zeros((width, width))
    for start in range(0, len(rows), BLOCK):
        drawn = []
        for number in range(start, min(start + BLOCK, len(rows))):
            cells = rows[number]  # (N, C)
            drawn.append(cells[generator.choice(len(cells), min(CELLS_PER_IMAGE, len(cells)), replace=False)])
        block = np.concatenate(drawn).astype(np.float32)
        count += len(block)
        total += block.sum(axis=0, dtype=np.float64)
        outer += block.T @ block
    mean = total / count
    values, vectors = np.linalg.eigh(outer / count - np.outer(mean, mean))
    share = float(values[::-1][:size].sum() / values.sum())
    return mean.astype(np.float32), vectors[:, ::-1][:, :size].astype(np.float32).copy(), share


RECIPE = "flickr8k-small"
"""VSE∞ on projected cells, small enough to train a hundred on two cores."""
BACKBONE = "efficientnet-lite0"
Changes = tuple[str, ...]
SHORT: Changes = (
    "schedule.epochs=1",
    "schedule.decay_epochs=0",
    "schedule.pooling_from=0",
    "data.captions_per_image=1",
)
"""What ``--quick`` changes in every recipe."""
SHORT_SEARCH: Changes = (*SHORT, "schedule.epochs=2", "schedule.search_epochs=1")
"""The same for a recipe that searches its poolings: one epoch searches, one trains what was found."""
IMAGE_AVG: Changes = ('model.image.pooling="avg"',)
TEXT_AVG: Changes = ('model.text.pooling="avg"',)
TEXT_CLS: Changes = ('model.text.pooling="cls"',)
NO_IMAGE_DROP: Changes = ('augmentation.image="none"',)
NO_TEXT_DROP: Changes = ('augmentation.text="none"',)
VSE_PLUS_PLUS: Changes = (*IMAGE_AVG, *TEXT_AVG, *NO_IMAGE_DROP, *NO_TEXT_DROP)


def pooling(side: str, name: str, **options: Any) -> Changes:
    """Return the change of the pooling of a side, ``image`` or ``text``."""
    if not options:
        return (f'model.{side}.pooling="{name}"',)
    table = ", ".join(f"{option} = {json.dumps(value)}" for option, value in options.items())
    return (f'model.{side}.pooling={{name = "{name}", options = {{{table}}}}}',)


@dataclass(frozen=True)
class Place:
    """The recipe whose values rows change, and the changes that name its data."""

    recipe: str
    changes: Changes = field(default=())

    def resolved(self) -> Recipe:
        """Return the recipe with all its values.

        Raises:
            InputError: it is an ensemble, or no model of two towers.
        """
        recipe = read_recipe(self.recipe, self.changes)
        if not isinstance(recipe, Recipe) or recipe.model.kind != "vse":
            raise InputError(f"{self.recipe}: expected a recipe of one model with two towers, whose poolings vary")
        return recipe

    def elements(self) -> int | None:
        """Return the number of elements of each image; None for a recipe of image files, whose backbone decides."""
        recipe = self.resolved()
        images = open_split(recipe, recipe.data.dev).images
        return images.regions if isinstance(images, FeatureRows) else None

    def with_gpo(self, options: dict[str, Any]) -> Changes:
        """Return the changes that set options of the recipe's GPO on both sides and keep its others.

        They depend on what the recipe says, not on its name. There are none if it has these options already: such a row
        shares its runs with other experiments.

        Raises:
            InputError: a side has another pooling.
        """
        usual = {name: each.default for name, each in inspect.signature(GPO).parameters.items()}
        own = {side: self._gpo_options(side) for side in ("image", "text")}
        if all((usual | known).get(name) == value for known in own.values() for name, value in options.items()):
            return ()
        return tuple(change for side, known in own.items() for change in pooling(side, "gpo", **(known | options)))

    def _gpo_options(self, side: str) -> dict[str, Any]:
        found = getattr(getattr(self.resolved().model, side), "pooling", None)
        if found is None or found.name != "gpo":
            other = "none" if found is None else f'"{found.name}"'
            raise InputError(
                f"{self.recipe}: the pooling of the {side} tower is {other}, and this experiment varies GPO: name a "
                "recipe of VSE∞"
            )
        return dict(found.options)


def prepare(call: Call) -> Place:
    """Return the recipe and its data; a store with wider features than a region recipe takes is projected once.

    Without a store, the small recipe computes its own, unless the dataset holds features.
    """
    name = call.recipe or RECIPE
    data = call.needed_data("Flickr8k's")
    features = call.features or (
        _computed(call, data) if name == RECIPE and match_layout(data) != precomp.NAME else None
    )
    quick = _shortened(name, call.changes) if call.quick else ()
    size = _projected_size(name, call.changes, features)
    if features is None or size is None:
        return Place(name, (*data_changes(call, data), *quick, *call.changes))
    folder = project_features(data, features, call.runs_folder.parent, size, call.report)
    return Place(name, (f"data.path={toml_text(folder)}", *quick, *call.changes))


def _shortened(name: str, changes: Changes) -> Changes:
    """Return what ``--quick`` changes in a recipe."""
    recipe = read_recipe(name, changes)
    short = SHORT_SEARCH if isinstance(recipe, Recipe) and recipe.model.searches else SHORT
    return (*short, "model.embed_size=32") if name == RECIPE else short


def _projected_size(name: str, changes: Changes, features: Path | None) -> int | None:
    """Return the width to which stored features are projected; None if the model takes them as they are."""
    recipe = read_recipe(name, changes)
    if features is None or not isinstance(recipe, Recipe):
        return None
    image = getattr(recipe.model, "image", None)
    if not isinstance(image, RegionConfig) or not (features / HEADER).is_file():
        return None
    return image.feature_size if image.feature_size < FeatureStore.open(features).header.channels else None


def data_changes(call: Call, data: Path) -> Changes:
    """Return the changes that give a recipe the dataset and the features of a call."""
    features = () if call.features is None else (f"data.features={toml_text(call.features)}",)
    return (f"data.path={toml_text(data)}", *features)


def _computed(call: Call, data: Path) -> Path:
    from vse.models.extract import extract_features, find_images

    folder = call.runs_folder.parent / f"features-{BACKBONE}"
    extract_features(find_images(data), BACKBONE, folder, progress=call.report)
    return folder
