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
from vse.experiments.image_table import (
    IMAGE_AVG,
    NO_IMAGE_DROP,
    NO_TEXT_DROP,
    SHORT,
    TEXT_AVG,
    TEXT_CLS,
    VSE_PLUS_PLUS,
    Changes,
    Place,
    data_changes,
    pooling,
    prepare,
)
from vse.experiments.k_max_search import k_name, k_pooling, search_image_k, search_k
from vse.experiments.plan import Call, Claim, Grid, Variant
from vse.models.curves import PoolingCurve
from vse.models.curves_plot import plot_curves
from vse.models.learned_curves import curves_of
from vse.models.storage import load_model

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
        panels: panel → label → changes; ``{image}`` and ``{text}`` in a label stand for the best pooling of the search.
        claims: pairs of labels, the better row first.
        seeds: of a call that names none.
        searched_with: the rest of the model in a search over image poolings alone; None searches pairs of K.
    """

    name: str
    title: str
    panels: Panels
    claims: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...] = (0, 1)
    searched_with: Changes | None = None

    @property
    def needs_search(self) -> bool:
        """Whether a row depends on the best K."""
        used = {change for rows in self.panels.values() for changes in rows.values() for change in changes}
        return bool(used & {*IMAGE_K_MAX, *TEXT_K_MAX})


def run_table(table: Table, call: Call) -> GridResult:
    """Train and compare the rows of a table."""
    return _run_at(prepare(call), table, call)


def _run_at(place: Place, table: Table, call: Call) -> GridResult:
    labels: dict[str, str] = {}
    known: dict[str, Changes] = {}
    if table.searched_with is not None:
        image = search_image_k(call, place, table.searched_with)
        labels["image"], known[IMAGE_K_MAX[0]] = k_name(image), k_pooling("image", image)
    elif table.needs_search:
        best = search_k(call, place)
        labels = {"image": k_name(best.image), "text": k_name(best.text)}
        known[IMAGE_K_MAX[0]] = k_pooling("image", best.image)
        known[TEXT_K_MAX[0]] = k_pooling("text", best.text)
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


COMPLEX: dict[str, tuple[str, dict[str, Any]]] = {
    "Seq2Seq": ("seq2seq", {}),
    "SelfAttn": ("self-attention", {}),
    "GCN + AvgPool": ("gcn-avg", {}),
    "GCN + Seq2Seq": ("gcn-seq2seq", {"normalised": True}),  # as VSRN does
}
BEST_POOLING = "best simple pooling ({image})"
PLAIN_TEXT: Changes = (*TEXT_AVG, *NO_IMAGE_DROP, *NO_TEXT_DROP)
AGGREGATORS = Table(
    name="aggregators",  # tab:intro; words are averaged and sets keep their size in every row, as in its VSE++
    title="Visual aggregators",
    panels={
        "": {
            "AvgPool": (*IMAGE_AVG, *PLAIN_TEXT),
            **{label: (*pooling("image", name, **options), *PLAIN_TEXT) for label, (name, options) in COMPLEX.items()},
            BEST_POOLING: (*IMAGE_K_MAX, *PLAIN_TEXT),
        }
    },
    claims=tuple((BEST_POOLING, other) for other in ("AvgPool", *COMPLEX)),
    searched_with=PLAIN_TEXT,
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

BEST_PAIR, ONE_SIDE = "best K-max ({image} + {text})", "GPO on images alone"
PLAIN_PAIR = "{image} + {text} without augmentation"
PLAIN, AUGMENTED = "VSE∞ without augmentation", "VSE++ with augmentation"
HEADLINE = Table(
    name="headline",
    title="Headline contrasts",
    panels={
        "": {
            "VSE++": VSE_PLUS_PLUS,
            AUGMENTED: (*IMAGE_AVG, *TEXT_AVG),
            "VSE∞": (),
            PLAIN: (*NO_IMAGE_DROP, *NO_TEXT_DROP),
            BEST_PAIR: (*IMAGE_K_MAX, *TEXT_K_MAX),
            PLAIN_PAIR: (*IMAGE_K_MAX, *TEXT_K_MAX, *NO_IMAGE_DROP, *NO_TEXT_DROP),
            ONE_SIDE: TEXT_AVG,
        }
    },
    claims=(
        ("VSE∞", AUGMENTED),  # GPO against the average, both with augmentation
        (PLAIN, "VSE++"),  # both without
        ("VSE∞", BEST_PAIR),
        (PLAIN, PLAIN_PAIR),
        ("VSE∞", ONE_SIDE),
        ("VSE∞", PLAIN),  # augmentation alone
        ("VSE∞", "VSE++"),  # both at once: marked as mixed
    ),
    seeds=(0, 1, 2, 3, 4),
)

LEARNED = {"GeM": "gem", "FSPool": "fspool", "SelfAttn": "self-attention", "Seq2Seq": "seq2seq"}
IMAGE_POOLINGS: dict[str, Changes] = {
    "Avg": IMAGE_AVG,
    "Max": pooling("image", "max"),
    "best K-max ({image})": IMAGE_K_MAX,
    **{label: pooling("image", name) for label, name in LEARNED.items()},
    "GCN": pooling("image", "gcn-avg"),
    "GPO": (),
}
TEXT_POOLINGS: dict[str, Changes] = {
    "Avg": TEXT_AVG,
    "CLS": TEXT_CLS,
    "Max": pooling("text", "max"),
    "best K-max ({text})": TEXT_K_MAX,
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


def run_sequence_model(call: Call) -> GridResult:
    """Compare the BiGRU that reads the ranks with a Transformer."""
    return _run_gpo_variant(
        call, "sequence-model", "The sequence model of GPO", "GPO (Transformer)", {"decoder": "transformer"}
    )


def run_per_dimension(call: Call) -> GridResult:
    """Compare with coefficients for each dimension."""
    return _run_gpo_variant(
        call, "per-dimension", "Coefficients per dimension", "GPO per dimension", {"per_dimension": True}
    )


def run_data_dependent(call: Call) -> GridResult:
    """Compare with coefficients that depend on the features, not on the ranks alone."""
    return _run_gpo_variant(
        call, "data-dependent", "Data-dependent coefficients", "GPO data-dependent", {"data_dependent": True}
    )


def run_start(call: Call) -> GridResult:
    """Compare initial coefficients of the average with random ones, as released."""
    place = prepare(call)
    average, random = "GPO begun as the average", "GPO begun at random"
    rows = {average: place.with_gpo({"start": "average"}), random: place.with_gpo({"start": "random"})}
    return _run_at(place, Table("gpo-start", "The start of GPO", {"": rows}, ((average, random),)), call)


def _run_gpo_variant(call: Call, name: str, title: str, label: str, options: dict[str, Any]) -> GridResult:
    """Compare a variant of GPO with GPO, which the paper finds as good or better."""
    place = prepare(call)
    rows: dict[str, Changes] = {"GPO (BiGRU)": (), label: place.with_gpo(options)}
    return _run_at(place, Table(name, title, {"": rows}, (("GPO (BiGRU)", label),)), call)


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
    quick=SHORT,
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
