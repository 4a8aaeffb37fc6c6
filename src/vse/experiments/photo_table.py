"""A table of the paper on photographs: rows are changes of one VSE∞ recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vse.errors import InputError
from vse.experiments.call import Call
from vse.experiments.grid.plan import Claim, Grid, Variant
from vse.experiments.grid.report import GridResult
from vse.experiments.grid.run import run_grid
from vse.experiments.projected import project_features
from vse.training.recipe import Recipe
from vse.training.recipes import read_recipe, toml_text

RECIPE = "flickr8k-small"
"""VSE∞ on projected cells, in a size of which two cores train a hundred."""
BACKBONE = "efficientnet-lite0"
QUICK = ("schedule.epochs=1", "schedule.decay_epochs=0", "model.embed_size=32")

Changes = tuple[str, ...]
IMAGE_AVG: Changes = ('model.image.pooling="avg"',)
TEXT_AVG: Changes = ('model.text.pooling="avg"',)
TEXT_CLS: Changes = ('model.text.pooling="cls"',)
NO_IMAGE_DROP: Changes = ('augmentation.image="none"',)
NO_TEXT_DROP: Changes = ('augmentation.text="none"',)
VSE_PLUS_PLUS: Changes = (*IMAGE_AVG, *TEXT_AVG, *NO_IMAGE_DROP, *NO_TEXT_DROP)


def pooling(side: str, name: str, **options: float) -> Changes:
    """The change that gives a side, ``image`` or ``text``, another pooling."""
    if not options:
        return (f'model.{side}.pooling="{name}"',)
    told = ", ".join(f"{option} = {value}" for option, value in options.items())
    return (f'model.{side}.pooling={{name = "{name}", options = {{{told}}}}}',)


@dataclass(frozen=True)
class Place:
    """The recipe that rows change, and the changes that tell where its data are."""

    recipe: str
    changes: Changes = field(default=())


def prepare(call: Call) -> Place:
    """The data of the recipe: as they are, or for the small recipe cells that are computed and projected once."""
    name = call.recipe or RECIPE
    data = call.needed_data("Flickr8k's")
    if name != RECIPE:
        places = [f"data.path={toml_text(data)}"]
        places += [f"data.features={toml_text(call.features)}"] if call.features is not None else []
        return Place(name, (*places, *call.changes))
    recipe = read_recipe(name)
    if not isinstance(recipe, Recipe) or recipe.model.kind != "vse" or recipe.model.image.kind != "region":
        raise InputError(f"{name}: expected a recipe of region features")
    features = call.features or _computed(call, data)
    size = recipe.model.image.feature_size
    folder = project_features(data, features, call.runs_folder.parent, size, call.report)
    return Place(name, (f"data.path={toml_text(folder)}", *(QUICK if call.quick else ()), *call.changes))


def _computed(call: Call, data: Path) -> Path:
    from vse.features import extract_features, find_images

    folder = call.runs_folder.parent / f"features-{BACKBONE}"
    extract_features(find_images(data), BACKBONE, folder, progress=call.report)
    return folder


def run_table(
    call: Call,
    place: Place,
    *,
    name: str,
    title: str,
    panels: Mapping[str, Mapping[str, Changes]],
    claims: Sequence[Claim] = (),
    seeds: tuple[int, ...],
) -> GridResult:
    """Train and compare rows ``panel → label → changes``; ``seeds`` are those of a call that names none."""
    variants = tuple(
        Variant(label, place.recipe, changes, panel)
        for panel, rows in panels.items()
        for label, changes in rows.items()
    )
    return run_grid(Grid(name, title, variants, tuple(claims), place.changes), call.chosen_seeds(seeds), call)
