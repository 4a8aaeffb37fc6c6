"""The paper's tab:gpo_rnn, tab:gpo_per_dim and tab:gpo_data_dep: other ways to make the coefficients of a GPO.

And one that the paper has not: where they begin.
"""

from __future__ import annotations

from vse.experiments.call import Call
from vse.experiments.grid.plan import Claim
from vse.experiments.grid.report import GridResult
from vse.experiments.photo_table import RECIPE, Changes, Place, prepare, run_table

PLAIN = "GPO (BiGRU)"
LEVEL, RANDOM = "GPO begun as the average", "GPO begun at random"
AVERAGE = 'start = "average"'


def run_sequence_model(call: Call) -> GridResult:
    """A Transformer in the place of the BiGRU that reads the ranks."""
    return _run(call, "sequence-model", "The sequence model of GPO", "GPO (Transformer)", 'decoder = "transformer"')


def run_per_dimension(call: Call) -> GridResult:
    """Coefficients of their own for each dimension."""
    return _run(call, "per-dimension", "Coefficients per dimension", "GPO per dimension", "per_dimension = true")


def run_data_dependent(call: Call) -> GridResult:
    """Coefficients that depend on the features too, not on the ranks alone."""
    return _run(call, "data-dependent", "Data-dependent coefficients", "GPO data-dependent", "data_dependent = true")


def run_start(call: Call) -> GridResult:
    """Coefficients that begin at random, as released, and those that begin as the average."""
    place = prepare(call)
    level = () if _begins_level(place) else _on_both(AVERAGE)  # a recipe as it is shares its runs
    random = _on_both('start = "random"') if _begins_level(place) else ()
    return run_table(
        call,
        place,
        name="gpo-start",
        title="The start of GPO",
        panels={"": {LEVEL: level, RANDOM: random}},
        claims=[Claim(LEVEL, RANDOM)],
        seeds=(0, 1),
    )


def _run(call: Call, name: str, title: str, label: str, option: str) -> GridResult:
    """The paper finds the plain GPO as good or better on all three."""
    place = prepare(call)
    options = f"{AVERAGE}, {option}" if _begins_level(place) else option
    return run_table(
        call,
        place,
        name=name,
        title=title,
        panels={"": {PLAIN: (), label: _on_both(options)}},
        claims=[Claim(PLAIN, label)],
        seeds=(0, 1),
    )


def _begins_level(place: Place) -> bool:
    """Whether the GPO of the recipe begins as the average; it does in the small one alone."""
    return place.recipe == RECIPE


def _on_both(options: str) -> Changes:
    return tuple(f'model.{side}.pooling={{name = "gpo", options = {{{options}}}}}' for side in ("image", "text"))
