"""The trained tables and figures of the paper: rows and claims as data, and one function for each experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vse._util.atomic import write_json
from vse.data.open import find_layout
from vse.errors import InputError, require
from vse.evaluation.retrieval_test import RetrievalTest, model_scores
from vse.evaluation.scores import MeanScores
from vse.experiments.grid.compare import MeasuredSeed, Row, contrast, measure_grid, measured, train_grid
from vse.experiments.grid.report import GridResult, common_values, rows_of, run_grid
from vse.experiments.image_table import (
    IMAGE_AVG,
    NO_IMAGE_DROP,
    NO_TEXT_DROP,
    RECIPE,
    TEXT_AVG,
    TEXT_CLS,
    VSE_PLUS_PLUS,
    Changes,
    Place,
    data_changes,
    pooling,
    prepare,
)
from vse.experiments.k_max_search import search_k
from vse.experiments.plan import Call, Claim, Grid, Variant
from vse.models.curves import PoolingCurve
from vse.models.curves_plot import plot_curves
from vse.models.learned_curves import curves_of
from vse.models.storage import load_model
from vse.training.data import open_split

IMAGE_K_MAX: Changes = ("best K of the search for images",)
TEXT_K_MAX: Changes = ("best K of the search for words",)
"""Stand for the K-max poolings that :func:`vse.experiments.k_max_search.search_k` finds."""
Panels = Mapping[str, Mapping[str, Changes]]


@dataclass(frozen=True)
class Table:
    """A table on images whose rows are changes of one recipe.

    Attributes:
        name: of the experiment.
        title: shown above the table.
        panels: panel → label → changes; ``{image}`` and ``{text}`` in a label stand for the best K of the search.
        claims: pairs of labels, the better row first.
        seeds: of a call that names none.
    """

    name: str
    title: str
    panels: Panels
    claims: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...] = (0, 1)

    @property
    def needs_search(self) -> bool:
        """Whether a row depends on the best K."""
        used = {change for rows in self.panels.values() for changes in rows.values() for change in changes}
        return bool(used & {*IMAGE_K_MAX, *TEXT_K_MAX})


def run_table(table: Table, call: Call) -> GridResult:
    """Train and compare the rows of a table."""
    return _run_at(prepare(call), table, call)


def _run_at(place: Place, table: Table, call: Call) -> GridResult:
    labels: dict[str, int] = {}
    known: dict[str, Changes] = {}
    if table.needs_search:
        best = search_k(call, place)
        labels = {"image": best.image, "text": best.text}
        known[IMAGE_K_MAX[0]] = pooling("image", "k-max", k=best.image)
        known[TEXT_K_MAX[0]] = pooling("text", "k-max", k=best.text)
    variants = tuple(
        Variant(
            label.format(**labels),
            place.recipe,
            tuple(each for change in changes for each in known.get(change, (change,))),
            panel,
        )
        for panel, rows in table.panels.items()
        for label, changes in rows.items()
    )
    claims = tuple(Claim(better.format(**labels), worse.format(**labels)) for better, worse in table.claims)
    grid = Grid(table.name, table.title, variants, claims, place.changes)
    return run_grid(grid, call.chosen_seeds(table.seeds), call)


COMPLEX = {
    "Seq2Seq": "seq2seq",
    "SelfAttn": "self-attention",
    "GCN + AvgPool": "gcn-avg",
    "GCN + Seq2Seq": "gcn-seq2seq",
}
BEST_POOLING = "best simple pooling ({image}-max)"
AGGREGATORS = Table(
    name="aggregators",  # tab:intro; texts are averaged in every row
    title="Visual aggregators",
    panels={
        "": {
            "AvgPool": (*IMAGE_AVG, *TEXT_AVG),
            **{label: (*pooling("image", name), *TEXT_AVG) for label, name in COMPLEX.items()},
            BEST_POOLING: (*IMAGE_K_MAX, *TEXT_AVG),
        }
    },
    claims=tuple((BEST_POOLING, other) for other in ("AvgPool", *COMPLEX)),
)

AUGMENTATION = Table(
    name="augmentation",
    title="Size augmentation",
    panels={
        "VSE∞": {
            "VSE∞, none": (*NO_IMAGE_DROP, *NO_TEXT_DROP),
            "VSE∞, visual": NO_TEXT_DROP,
            "VSE∞, visual + text": (),
        },
        "VSE++": {"VSE++, none": VSE_PLUS_PLUS, "VSE++, visual + text": (*IMAGE_AVG, *TEXT_AVG)},
    },
    claims=(
        ("VSE∞, visual", "VSE∞, none"),
        ("VSE∞, visual + text", "VSE∞, visual"),
        ("VSE∞, visual + text", "VSE∞, none"),
        ("VSE++, visual + text", "VSE++, none"),
    ),
)

EITHER_SIDE = Table(
    name="either-side",  # the pooling of images + that of words
    title="GPO on either side",
    panels={
        "": {
            "Avg + CLS": (*IMAGE_AVG, *TEXT_CLS),
            "Avg + GPO": IMAGE_AVG,
            "GPO + CLS": TEXT_CLS,
            "GPO + GPO": (),
        }
    },
    claims=tuple(("GPO + GPO", other) for other in ("Avg + CLS", "Avg + GPO", "GPO + CLS")),
)

BEST_PAIR, PLAIN, ONE_SIDE = "{image}-max + {text}-max", "VSE∞ without augmentation", "GPO on images alone"
HEADLINE = Table(
    name="headline",
    title="Headline contrasts",
    panels={
        "": {
            "VSE++": VSE_PLUS_PLUS,
            "VSE∞": (),
            BEST_PAIR: (*IMAGE_K_MAX, *TEXT_K_MAX),
            PLAIN: (*NO_IMAGE_DROP, *NO_TEXT_DROP),
            ONE_SIDE: TEXT_AVG,
        }
    },
    claims=(
        *(("VSE∞", other) for other in ("VSE++", BEST_PAIR, PLAIN, ONE_SIDE)),
        (PLAIN, "VSE++"),  # the pooling alone
    ),
    seeds=(0, 1, 2, 3, 4),
)

LEARNED = {"GeM": "gem", "FSPool": "fspool", "SelfAttn": "self-attention", "Seq2Seq": "seq2seq"}
IMAGE_POOLINGS: dict[str, Changes] = {
    "Avg": IMAGE_AVG,
    "Max": pooling("image", "max"),
    "{image}-max": IMAGE_K_MAX,
    **{label: pooling("image", name) for label, name in LEARNED.items()},
    "GCN": pooling("image", "gcn-avg"),
    "GPO": (),
}
TEXT_POOLINGS: dict[str, Changes] = {
    "Avg": TEXT_AVG,
    "CLS": TEXT_CLS,
    "Max": pooling("text", "max"),
    "{text}-max": TEXT_K_MAX,
    **{label: pooling("text", name) for label, name in LEARNED.items()},
    "GPO": (),
}
POOLINGS = Table(
    name="poolings",  # size augmentation is on in every row
    title="Alternative poolings",
    panels={
        "images (words averaged)": {
            f"images: {label}": (*changes, *TEXT_AVG) for label, changes in IMAGE_POOLINGS.items()
        },
        "words (GPO on images)": {f"words: {label}": changes for label, changes in TEXT_POOLINGS.items()},
    },
    claims=tuple(
        (f"{side}: GPO", f"{side}: {other}")
        for side, other in (
            ("images", "GeM"),
            ("images", "FSPool"),
            ("words", "GeM"),
            ("words", "FSPool"),
            ("words", "CLS"),
        )
    ),
)

run_aggregators = partial(run_table, AGGREGATORS)
run_augmentation = partial(run_table, AUGMENTATION)
run_either_side = partial(run_table, EITHER_SIDE)
run_headline = partial(run_table, HEADLINE)
run_poolings = partial(run_table, POOLINGS)


FROM_AVERAGE = 'start = "average"'
"""The option of a GPO whose initial coefficients are those of the average; the small recipe has it."""


def run_sequence_model(call: Call) -> GridResult:
    """Compare the BiGRU that reads the ranks with a Transformer."""
    return _run_gpo_variant(
        call, "sequence-model", "The sequence model of GPO", "GPO (Transformer)", 'decoder = "transformer"'
    )


def run_per_dimension(call: Call) -> GridResult:
    """Compare with coefficients for each dimension."""
    return _run_gpo_variant(
        call, "per-dimension", "Coefficients per dimension", "GPO per dimension", "per_dimension = true"
    )


def run_data_dependent(call: Call) -> GridResult:
    """Compare with coefficients that depend on the features, not on the ranks alone."""
    return _run_gpo_variant(
        call, "data-dependent", "Data-dependent coefficients", "GPO data-dependent", "data_dependent = true"
    )


def run_start(call: Call) -> GridResult:
    """Compare initial coefficients of the average with random ones, as released."""
    place = prepare(call)
    average, random = "GPO begun as the average", "GPO begun at random"
    if place.recipe == RECIPE:  # the recipe without changes shares its runs with other experiments
        rows = {average: (), random: _gpo_on_both('start = "random"')}
    else:
        rows = {average: _gpo_on_both(FROM_AVERAGE), random: ()}
    return _run_at(place, Table("gpo-start", "The start of GPO", {"": rows}, ((average, random),)), call)


def _run_gpo_variant(call: Call, name: str, title: str, label: str, option: str) -> GridResult:
    """Compare a variant of GPO with GPO, which the paper finds as good or better."""
    place = prepare(call)
    options = f"{FROM_AVERAGE}, {option}" if place.recipe == RECIPE else option
    rows: dict[str, Changes] = {"GPO (BiGRU)": (), label: _gpo_on_both(options)}
    return _run_at(place, Table(name, title, {"": rows}, (("GPO (BiGRU)", label),)), call)


def _gpo_on_both(options: str) -> Changes:
    return tuple(f'model.{side}.pooling={{name = "gpo", options = {{{options}}}}}' for side in ("image", "text"))


@dataclass(frozen=True)
class Family:
    """Whole models whose recipes' names share a beginning, compared on a test split."""

    name: str
    title: str
    models: Mapping[str, str]
    claims: tuple[Claim, ...]
    quick: Changes
    seeds: tuple[int, ...]

    def run(self, call: Call, prefix: str, data: Path) -> GridResult:
        """Train the recipes ``prefix-…`` with every seed, and rank the test split."""
        grid = Grid(
            name=self.name,
            title=self.title.format(prefix),
            variants=tuple(Variant(label, f"{prefix}-{name}") for label, name in self.models.items()),
            claims=self.claims,
            changes=(*data_changes(call, data), *(self.quick if call.quick else ()), *call.changes),
        )
        return run_grid(grid, call.chosen_seeds(self.seeds), call)


IMAGE_MODELS = Family(
    name="main-table",
    title="VSE++ and VSE∞, {}",
    models={"VSE++": "vse-plus-plus", "VSE∞": "vse-infinity"},
    claims=(Claim("VSE∞", "VSE++"),),
    quick=("schedule.epochs=1", "schedule.decay_epochs=0"),
    seeds=(0, 1),
)
VIDEO_MODELS = Family(
    name="video",
    title="Video–text retrieval",
    models={"VSE++": "vse-plus-plus", "VSE∞": "vse-infinity", "HGR": "hgr", "HGR∞": "hgr-infinity"},
    claims=(Claim("VSE∞", "VSE++"), Claim("HGR∞", "HGR")),
    quick=("schedule.epochs=2", "schedule.decay_epochs=1", "data.captions_per_image=1", "model.embed_size=32"),
    seeds=(0, 1, 2),
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
    place = prepare(call)
    grid = Grid("ensemble", "Ensembles of two", (Variant(ONE, place.recipe),), (Claim(TWO, ONE),), place.changes)
    seeds = call.seeds if call.seeds is not None else (0, 1) if call.quick else (0, 1, 2, 3)
    if len(seeds) < 2 or len(seeds) % 2:
        raise InputError(f"{len(seeds)} seeds cannot be paired: give an even number")
    trained = train_grid(grid, seeds, call.runs_folder, jobs=call.jobs, report=call.report)
    singles, about = measure_grid(trained, "test", call.report)
    data = open_split(trained[0].recipe, "test")
    test = RetrievalTest.of(data)
    pairs: list[MeasuredSeed] = []
    for first, second in zip(trained[::2], trained[1::2], strict=True):
        scores = MeanScores([model_scores(load_model(each.result.model), data, test) for each in (first, second)])
        pairs.append(measured(first, test.rank(scores)))
    (alone,) = rows_of(grid, singles)
    together = Row(Variant(TWO, place.recipe), tuple(pairs), alone.rising[::2])
    firsts = Row(alone.variant, alone.seeds[::2], alone.rising[::2])
    claims = (contrast(grid.claims[0], together, firsts),)
    result = GridResult(grid, (alone, together), claims, about, common_values([alone]), call.out, call.quick)
    result.save()
    return result


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
