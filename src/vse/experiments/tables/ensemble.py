"""The paper's starred rows: the mean of the scores of two models that differ in their seeds alone."""

from __future__ import annotations

from vse.errors import InputError
from vse.evaluation.scores import MeanScores
from vse.experiments.call import Call
from vse.experiments.grid.compare import Row, contrast
from vse.experiments.grid.measure import MeasuredSeed, measure_grid, measured
from vse.experiments.grid.plan import Claim, Grid, Variant
from vse.experiments.grid.report import GridResult
from vse.experiments.grid.run import common_values, rows_of
from vse.experiments.grid.runs import train_grid
from vse.experiments.photo_table import prepare
from vse.storage import load_model
from vse.training.build import open_split
from vse.training.dev import rank_scores, split_scores

ONE, TWO = "VSE∞, one model", "VSE∞, two models"


def run(call: Call) -> GridResult:
    """Seeds go in pairs: the first with the second, the third with the fourth. A pair is compared with its first."""
    place = prepare(call)
    grid = Grid("ensemble", "Ensembles of two", (Variant(ONE, place.recipe),), (Claim(TWO, ONE),), place.changes)
    seeds = call.seeds if call.seeds is not None else (0, 1) if call.quick else (0, 1, 2, 3)
    if len(seeds) < 2 or len(seeds) % 2:
        raise InputError(f"{len(seeds)} seeds do not make pairs: give an even number of them")
    trained = train_grid(grid, seeds, call.runs_folder, jobs=call.jobs, report=call.report)
    singles, test = measure_grid(trained, "test", call.report)
    data = open_split(trained[0].recipe, "test")
    pairs: list[MeasuredSeed] = []
    for first, second in zip(trained[::2], trained[1::2], strict=True):
        scores = MeanScores([split_scores(load_model(each.result.model), data) for each in (first, second)])
        pairs.append(measured(first, rank_scores(scores, data)))
    (alone,) = rows_of(grid, singles)
    together = Row(Variant(TWO, place.recipe), tuple(pairs), alone.rising[::2])
    firsts = Row(alone.variant, alone.seeds[::2], alone.rising[::2])
    claims = (contrast(grid.claims[0], together, firsts),)
    result = GridResult(grid, (alone, together), claims, test, common_values([alone]), call.out, call.quick)
    result.save()
    return result
