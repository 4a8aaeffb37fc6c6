"""Experiments over whole models: families of recipes, ensembles, and what one model has learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vse._util.atomic import write_json
from vse.data.open import find_layout
from vse.errors import InputError, require
from vse.evaluation.bootstrap import SAMPLES
from vse.evaluation.retrieval_test import model_scores
from vse.evaluation.scores import MeanScores
from vse.experiments.grid.compare import Row, contrast, measure_grid, measured, train_grid
from vse.experiments.grid.report import (
    GridResult,
    common_values,
    rows_of,
    run_grid,
    save_result,
    train_for_test,
)
from vse.experiments.image_table import SHORT, Changes, data_changes, prepare
from vse.experiments.plan import Call, Claim, Grid, Variant
from vse.models.curves import PoolingCurve
from vse.models.curves_plot import plot_curves
from vse.models.learned_curves import curves_of
from vse.models.storage import load_model


@dataclass(frozen=True)
class Family:
    """Whole models whose recipes' names share a beginning, compared on a test split.

    ``optional`` are further rows, by label, of recipes named in full; they are trained if the call names them.
    """

    name: str
    title: str
    models: Mapping[str, str]
    claims: tuple[Claim, ...]
    quick: Changes
    seeds: tuple[int, ...]
    optional: Mapping[str, str] = field(default_factory=dict)

    def run(self, call: Call, prefix: str, data: Path) -> GridResult:
        """Train the recipes ``prefix-…`` with every seed, and rank the test split."""
        further = {label: name for label, name in self.optional.items() if label in call.rows}
        named = {label: f"{prefix}-{name}" for label, name in self.models.items()} | further
        grid = Grid(
            name=self.name,
            title=self.title.format(prefix),
            variants=tuple(
                Variant(label, name, panel=SENTENCES if label in further else "") for label, name in named.items()
            ),
            claims=tuple(claim for claim in self.claims if {claim.better, claim.worse} <= named.keys()),
            changes=(*data_changes(call, data), *(self.quick if call.quick else ()), *call.changes),
        )
        return run_grid(grid, call.chosen_seeds(self.seeds), call)


SENTENCES = "sentence encoder"
"""The panel of rows on MSVD whose words come from a pretrained sentence encoder."""
IMAGE_MODELS = Family(
    name="main-table",
    title="VSE++ and VSE∞, {}",
    models={"VSE++": "vse-plus-plus", "VSE∞": "vse-infinity"},
    claims=(Claim("VSE∞", "VSE++"),),
    quick=SHORT,
    seeds=(0, 1),
)
VIDEO_MODELS = Family(
    name="video",
    title="Video–text retrieval",
    models={"VSE++": "vse-plus-plus", "VSE∞": "vse-infinity", "HGR": "hgr", "HGR∞": "hgr-infinity"},
    claims=(
        Claim("VSE∞", "VSE++"),
        Claim("HGR∞", "HGR"),
        Claim(f"VSE∞, {SENTENCES}", f"VSE++, {SENTENCES}"),
        Claim(f"VSE∞, {SENTENCES}", "VSE∞"),
    ),
    quick=("schedule.epochs=2", "schedule.decay_epochs=1", "data.captions_per_image=1", "model.embed_size=32"),
    seeds=(0, 1, 2),
    optional={f"VSE++, {SENTENCES}": "msvd-sentence-vse-plus-plus", f"VSE∞, {SENTENCES}": "msvd-sentence-vse-infinity"},
)
VIDEO_RECIPES = {"hgr": "msvd-small", "msrvtt": "msrvtt", "vatex": "vatex"}
"""Layout → prefix of its recipes' names."""


def run_main_table(call: Call) -> GridResult:
    """Compare VSE++ and VSE∞; ``--recipe coco-butd-region-bigru`` is a section of the paper's table."""
    return IMAGE_MODELS.run(call, call.recipe or "flickr8k", call.needed_data("Flickr8k's"))


def run_video(call: Call) -> GridResult:
    """Compare VSE and HGR on videos, each with and without GPO."""
    for module in ("torch", "h5py"):  # checked now, not after hours of training
        require(module, extra="train", purpose="vse experiment video")
    data = call.needed_data("MSVD's in the layout of HGR")
    return VIDEO_MODELS.run(call, call.recipe or VIDEO_RECIPES[find_layout(data, kind="video")], data)


ONE, TWO = "VSE∞, one model", "VSE∞, two models"


def run_ensemble(call: Call) -> GridResult:
    """Compare ensembles of two seeds (the first with the second, the third with the fourth) with their first models."""
    call.expect_all_rows("ensemble")
    place = prepare(call)
    grid = Grid("ensemble", "Ensembles of two", (Variant(ONE, place.recipe),), (Claim(TWO, ONE),), place.changes)
    seeds = call.seeds if call.seeds is not None else (0, 1) if call.quick else (0, 1, 2, 3)
    if len(seeds) < 2 or len(seeds) % 2:
        raise InputError(f"{len(seeds)} seeds cannot be paired: give an even number")
    where, trained = train_for_test(grid, seeds, call)
    singles = measure_grid(trained, where, call.report)
    ranked = []
    for first, second in zip(trained[::2], trained[1::2], strict=True):
        scores = [model_scores(load_model(each.result.model), where.data, where.test) for each in (first, second)]
        ranked.append((first, where.rank(MeanScores(scores))))
    results = []
    for protocol in where.protocols:
        (alone,) = rows_of(grid, singles[protocol.name])
        pairs = tuple(measured(first, folds[protocol.name]) for first, folds in ranked)
        together = Row(Variant(TWO, place.recipe), pairs, alone.rising[::2])
        firsts = Row(alone.variant, alone.seeds[::2], alone.rising[::2])
        claims = (contrast(grid.claims[0], together, firsts),)
        about = where.about(protocol, SAMPLES)
        results.append(GridResult(grid, (alone, together), claims, about, common_values([alone]), call.out, call.quick))
    return save_result(results)


@dataclass(frozen=True)
class CoefficientsResult:
    """The curves of one trained model."""

    curves: tuple[PoolingCurve, ...]
    model: Path
    folder: Path

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": "coefficients",
            "model": str(self.model),
            "curves": [curve.to_json() for curve in self.curves],
        }


def run_coefficients(call: Call) -> CoefficientsResult:
    """Train the first seed and draw the poolings that it has learned."""
    call.expect_all_rows("coefficients")
    place = prepare(call)
    grid = Grid("coefficients", "Learned poolings", (Variant("VSE∞", place.recipe),), changes=place.changes)
    seeds = call.chosen_seeds((0,))
    trained = train_grid(grid, seeds[:1], call.runs_folder, jobs=call.jobs, report=call.report)
    model = trained[0].result.model
    result = CoefficientsResult(tuple(curves_of(load_model(model))), model, call.out)
    call.out.mkdir(parents=True, exist_ok=True)
    plot_curves(result.curves, call.out / "coefficients.png")
    write_json(call.out / "result.json", result.to_json())
    return result
