"""Rows of the paper's main table: VSE++ and VSE∞ on one kind of features, at the size of their own recipes."""

from __future__ import annotations

from vse.experiments.call import Call
from vse.experiments.grid.plan import Claim, Grid, Variant
from vse.experiments.grid.report import GridResult
from vse.experiments.grid.run import run_grid
from vse.training.recipes import toml_text

FAMILY = "flickr8k"
"""What the names of the two recipes begin with; ``--recipe coco-butd-region-bigru`` is a section of the paper's."""
MODELS = {"VSE++": "vse-plus-plus", "VSE∞": "vse-infinity"}
QUICK = ("schedule.epochs=1", "schedule.decay_epochs=0")


def run(call: Call) -> GridResult:
    """Train both, and rank the test split."""
    family = call.recipe or FAMILY
    data = call.needed_data("Flickr8k's")
    places = [f"data.path={toml_text(data)}"]
    places += [f"data.features={toml_text(call.features)}"] if call.features is not None else []
    grid = Grid(
        name="main-table",
        title=f"VSE++ and VSE∞, {family}",
        variants=tuple(Variant(label, f"{family}-{name}") for label, name in MODELS.items()),
        claims=(Claim("VSE∞", "VSE++"),),
        changes=(*places, *(QUICK if call.quick else ()), *call.changes),
    )
    return run_grid(grid, call.chosen_seeds((0, 1)), call)
