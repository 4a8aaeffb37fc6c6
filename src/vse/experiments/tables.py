"""The paper's tab:intro: complex aggregators of visual features against the best simple pooling."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vse._util.atomic import write_json
from vse.data.open import find_layout
from vse.errors import InputError, require
from vse.evaluation.retrieval_test import RetrievalTest, model_scores
from vse.evaluation.scores import MeanScores
from vse.experiments.grid.compare import MeasuredSeed, Row, contrast, measure_grid, measured, train_grid
from vse.experiments.grid.report import GridResult
from vse.experiments.grid.run import common_values, rows_of, run_grid
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
    pooling,
    prepare,
    run_table,
)
from vse.experiments.k_max_search import search_k
from vse.experiments.plan import Call, Claim, Grid, Variant
from vse.models.curves import PoolingCurve, curves_of
from vse.models.curves_plot import plot_curves
from vse.models.storage import load_model
from vse.training.data import open_split
from vse.training.recipes import toml_text

BEST = "best simple pooling"
COMPLEX = {
    "Seq2Seq": "seq2seq",
    "SelfAttn": "self-attention",
    "GCN + AvgPool": "gcn-avg",
    "GCN + Seq2Seq": "gcn-seq2seq",
}


def run_aggregators(call: Call) -> GridResult:
    """Texts are averaged in every row, and what is compared is how the cells of a picture become one vector."""
    place = prepare(call)
    k = search_k(call, place).image
    rows = {"AvgPool": (*IMAGE_AVG, *TEXT_AVG)}
    rows |= {label: (*pooling("image", name), *TEXT_AVG) for label, name in COMPLEX.items()}
    rows |= {f"{BEST} ({k}-max)": (*pooling("image", "k-max", k=k), *TEXT_AVG)}
    return run_table(
        call,
        place,
        name="aggregators",
        title="Visual aggregators",
        panels={"": rows},
        claims=[Claim(f"{BEST} ({k}-max)", other) for other in ("AvgPool", *COMPLEX)],
        seeds=(0, 1),
    )


def run_augmentation(call: Call) -> GridResult:
    """Both models with their own poolings."""
    panels = {
        "VSE∞": {
            "VSE∞, none": (*NO_IMAGE_DROP, *NO_TEXT_DROP),
            "VSE∞, visual": NO_TEXT_DROP,
            "VSE∞, visual + text": (),
        },
        "VSE++": {"VSE++, none": VSE_PLUS_PLUS, "VSE++, visual + text": (*IMAGE_AVG, *TEXT_AVG)},
    }
    claims = [
        Claim("VSE∞, visual", "VSE∞, none"),
        Claim("VSE∞, visual + text", "VSE∞, visual"),
        Claim("VSE∞, visual + text", "VSE∞, none"),
        Claim("VSE++, visual + text", "VSE++, none"),
    ]
    return run_table(
        call,
        prepare(call),
        name="augmentation",
        title="Size augmentation",
        panels=panels,
        claims=claims,
        seeds=(0, 1),
    )


BOTH = "GPO + GPO"


def run_either_side(call: Call) -> GridResult:
    """Rows are the pooling of pictures + that of words."""
    rows = {
        "Avg + CLS": (*IMAGE_AVG, *TEXT_CLS),
        "Avg + GPO": IMAGE_AVG,
        "GPO + CLS": TEXT_CLS,
        BOTH: (),
    }
    claims = [Claim(BOTH, other) for other in rows if other != BOTH]
    return run_table(
        call,
        prepare(call),
        name="either-side",
        title="GPO on either side",
        panels={"": rows},
        claims=claims,
        seeds=(0, 1),
    )


ONE, TWO = "VSE∞, one model", "VSE∞, two models"


def run_ensemble(call: Call) -> GridResult:
    """Seeds go in pairs: the first with the second, the third with the fourth. A pair is compared with its first."""
    place = prepare(call)
    grid = Grid("ensemble", "Ensembles of two", (Variant(ONE, place.recipe),), (Claim(TWO, ONE),), place.changes)
    seeds = call.seeds if call.seeds is not None else (0, 1) if call.quick else (0, 1, 2, 3)
    if len(seeds) < 2 or len(seeds) % 2:
        raise InputError(f"{len(seeds)} seeds do not make pairs: give an even number of them")
    trained = train_grid(grid, seeds, call.runs_folder, jobs=call.jobs, report=call.report)
    singles, test = measure_grid(trained, "test", call.report)
    data = open_split(trained[0].recipe, "test")
    retrieval = RetrievalTest.of(data)
    pairs: list[MeasuredSeed] = []
    for first, second in zip(trained[::2], trained[1::2], strict=True):
        scores = MeanScores([model_scores(load_model(each.result.model), data, retrieval) for each in (first, second)])
        pairs.append(measured(first, retrieval.rank(scores)))
    (alone,) = rows_of(grid, singles)
    together = Row(Variant(TWO, place.recipe), tuple(pairs), alone.rising[::2])
    firsts = Row(alone.variant, alone.seeds[::2], alone.rising[::2])
    claims = (contrast(grid.claims[0], together, firsts),)
    result = GridResult(grid, (alone, together), claims, test, common_values([alone]), call.out, call.quick)
    result.save()
    return result


OURS = "VSE∞"
PLAIN = "VSE∞ without augmentation"


def run_headline(call: Call) -> GridResult:
    """VSE∞ against VSE++, against the best K-max of the search, against itself without augmentation or on one side."""
    place = prepare(call)
    k = search_k(call, place)
    best = f"{k.image}-max + {k.text}-max"
    rows = {
        "VSE++": VSE_PLUS_PLUS,
        OURS: (),
        best: (*pooling("image", "k-max", k=k.image), *pooling("text", "k-max", k=k.text)),
        PLAIN: (*NO_IMAGE_DROP, *NO_TEXT_DROP),
        "GPO on pictures alone": TEXT_AVG,
    }
    claims = [Claim(OURS, other) for other in rows if other != OURS]
    claims += [Claim(PLAIN, "VSE++")]  # the pooling alone
    return run_table(
        call,
        place,
        name="headline",
        title="Headline contrasts",
        panels={"": rows},
        claims=claims,
        seeds=(0, 1, 2, 3, 4),
    )


FAMILY = "flickr8k"
"""What the names of the two recipes begin with; ``--recipe coco-butd-region-bigru`` is a section of the paper's."""
MODELS = {"VSE++": "vse-plus-plus", "VSE∞": "vse-infinity"}
QUICK = ("schedule.epochs=1", "schedule.decay_epochs=0")


def run_main_table(call: Call) -> GridResult:
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


VISUAL, TEXTUAL = "pictures (words averaged)", "words (GPO on pictures)"
LEARNED = {"GeM": "gem", "FSPool": "fspool", "SelfAttn": "self-attention", "Seq2Seq": "seq2seq"}


def run_poolings(call: Call) -> GridResult:
    """Size augmentation is on in every row."""
    place = prepare(call)
    k = search_k(call, place)
    pictures = {"Avg": (*IMAGE_AVG, *TEXT_AVG), "Max": (*pooling("image", "max"), *TEXT_AVG)}
    pictures |= {f"{k.image}-max": (*pooling("image", "k-max", k=k.image), *TEXT_AVG)}
    pictures |= {label: (*pooling("image", name), *TEXT_AVG) for label, name in LEARNED.items()}
    pictures |= {"GCN": (*pooling("image", "gcn-avg"), *TEXT_AVG), "GPO": TEXT_AVG}
    words = {"Avg": TEXT_AVG, "CLS": TEXT_CLS, "Max": pooling("text", "max")}
    words |= {f"{k.text}-max": pooling("text", "k-max", k=k.text)}
    words |= {label: pooling("text", name) for label, name in LEARNED.items()}
    words |= {"GPO": ()}
    panels = {
        VISUAL: {f"pictures: {label}": changes for label, changes in pictures.items()},
        TEXTUAL: {f"words: {label}": changes for label, changes in words.items()},
    }
    rivals = [("pictures", "GeM"), ("pictures", "FSPool"), ("words", "GeM"), ("words", "FSPool"), ("words", "CLS")]
    claims = [Claim(f"{side}: GPO", f"{side}: {other}") for side, other in rivals]
    return run_table(
        call, place, name="poolings", title="Alternative poolings", panels=panels, claims=claims, seeds=(0, 1)
    )


BIGRU_GPO = "GPO (BiGRU)"
LEVEL, RANDOM = "GPO begun as the average", "GPO begun at random"
AVERAGE = 'start = "average"'


def run_sequence_model(call: Call) -> GridResult:
    """A Transformer in the place of the BiGRU that reads the ranks."""
    return _variant(call, "sequence-model", "The sequence model of GPO", "GPO (Transformer)", 'decoder = "transformer"')


def run_per_dimension(call: Call) -> GridResult:
    """Coefficients of their own for each dimension."""
    return _variant(call, "per-dimension", "Coefficients per dimension", "GPO per dimension", "per_dimension = true")


def run_data_dependent(call: Call) -> GridResult:
    """Coefficients that depend on the features too, not on the ranks alone."""
    return _variant(
        call, "data-dependent", "Data-dependent coefficients", "GPO data-dependent", "data_dependent = true"
    )


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


def _variant(call: Call, name: str, title: str, label: str, option: str) -> GridResult:
    """The paper finds the plain GPO as good or better on all three."""
    place = prepare(call)
    options = f"{AVERAGE}, {option}" if _begins_level(place) else option
    return run_table(
        call,
        place,
        name=name,
        title=title,
        panels={"": {BIGRU_GPO: (), label: _on_both(options)}},
        claims=[Claim(BIGRU_GPO, label)],
        seeds=(0, 1),
    )


def _begins_level(place: Place) -> bool:
    """Whether the GPO of the recipe begins as the average; it does in the small one alone."""
    return place.recipe == RECIPE


def _on_both(options: str) -> Changes:
    return tuple(f'model.{side}.pooling={{name = "gpo", options = {{{options}}}}}' for side in ("image", "text"))


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
    """Of the first seed."""
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


VIDEO_MODELS = {"VSE++": "vse-plus-plus", "VSE∞": "vse-infinity", "HGR": "hgr", "HGR∞": "hgr-infinity"}
VIDEO_CLAIMS = (Claim("VSE∞", "VSE++"), Claim("HGR∞", "HGR"))
VIDEO_FAMILIES = {"hgr": "msvd-small", "msrvtt": "msrvtt", "vatex": "vatex"}
"""Layout → the recipes that are trained."""
VIDEO_SEEDS = (0, 1, 2)
VIDEO_QUICK = ("schedule.epochs=2", "schedule.decay_epochs=1", "data.captions_per_image=1", "model.embed_size=32")


def run_video(call: Call) -> GridResult:
    """Train the four models with every seed, and rank the test split; runs that are there are not repeated."""
    for module in ("torch", "h5py"):  # asked for now, not after hours of training
        require(module, extra="train", purpose="vse experiment video")
    data = call.needed_data("MSVD's in the layout of HGR")
    family = call.recipe or VIDEO_FAMILIES[find_layout(data, kind="video")]
    places = [f"data.path={toml_text(data)}"]
    places += [f"data.features={toml_text(call.features)}"] if call.features is not None else []
    grid = Grid(
        name="video",
        title="Video–text retrieval",
        variants=tuple(Variant(label, f"{family}-{name}") for label, name in VIDEO_MODELS.items()),
        claims=VIDEO_CLAIMS,
        changes=(*places, *(VIDEO_QUICK if call.quick else ()), *call.changes),
    )
    return run_grid(grid, call.chosen_seeds(VIDEO_SEEDS), call)
