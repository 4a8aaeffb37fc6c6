"""The trained tables and figures of the paper: rows and claims as data, and one function for each experiment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from vse.experiments.grid.report import GridResult, run_grid
from vse.experiments.image_table import (
    IMAGE_AVG,
    NO_IMAGE_DROP,
    NO_TEXT_DROP,
    TEXT_AVG,
    TEXT_CLS,
    VSE_PLUS_PLUS,
    Changes,
    Place,
    pooling,
    prepare,
)
from vse.experiments.k_max_search import BestK, k_name, k_pooling, search_k
from vse.experiments.plan import Call, Claim, Grid, Variant

IMAGE_K_MAX: Changes = ("best K of the search for images",)
TEXT_K_MAX: Changes = ("best K of the search for words",)
"""Stand for the K-max poolings that :func:`vse.experiments.k_max_search.search_k` finds for the rest of a row."""
SEARCHED = {"image": IMAGE_K_MAX[0], "text": TEXT_K_MAX[0]}
Panels = Mapping[str, Mapping[str, Changes]]


@dataclass(frozen=True)
class Table:
    """A table on images whose rows are changes of one recipe.

    Attributes:
        name: of the experiment.
        title: shown above the table.
        panels: panel → label → changes; ``{image}`` and ``{text}`` in a label stand for the best pooling of the search
            at the row's own setting.
        claims: pairs of labels, the better row first; several labels in place of the worse one are those that dev
            selects from.
        seeds: of a call that names none.
    """

    name: str
    title: str
    panels: Panels
    claims: tuple[tuple[str, str | tuple[str, ...]], ...]
    seeds: tuple[int, ...] = (0, 1)


def run_table(table: Table, call: Call) -> GridResult:
    """Train and compare the rows of a table."""
    return _run_at(prepare(call), table, call)


def _run_at(place: Place, table: Table, call: Call) -> GridResult:
    found: dict[tuple[Changes, Changes], BestK] = {}
    labels: dict[str, str] = {}
    variants = []
    for panel, rows in table.panels.items():
        for template, changes in rows.items():
            row = changes
            searched = tuple(side for side, mark in SEARCHED.items() if mark in changes)
            if searched and _is_wanted(template, call.rows):
                common = tuple(sorted(set(changes) - set(SEARCHED.values())))
                best = found.get((searched, common)) or search_k(call, place, searched, common)
                found[searched, common] = best
                ks = {side: k for side in searched if (k := getattr(best, side)) is not None}
                labels[template] = template.format(**{side: k_name(k) for side, k in ks.items()})
                row = (*(change for side, k in ks.items() for change in k_pooling(side, k)), *common)
            variants.append(Variant(labels.get(template, template), place.recipe, row, panel))
    grid = Grid(table.name, table.title, tuple(variants), tuple(_claims(table, labels)), place.changes)
    return run_grid(grid, call.chosen_seeds(table.seeds), call)


def _claims(table: Table, labels: Mapping[str, str]) -> list[Claim]:
    claims = []
    for better, worse in table.claims:
        among = () if isinstance(worse, str) else worse
        first = worse if isinstance(worse, str) else worse[0]
        claims.append(Claim(labels.get(better, better), labels.get(first, first), among))
    return claims


def _is_wanted(template: str, rows: tuple[str, ...]) -> bool:
    """Return whether rows of a call may be this one, whose label is complete after its search."""
    pattern = re.sub(r"\\\{\w+\\\}", ".+", re.escape(template))
    return not rows or any(re.fullmatch(pattern, row) for row in rows)


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

LOCAL_RECIPE = "regions-vse-infinity"
SHARES = (10, 25, 50)
"""Percentages of the largest values between the maximum and the average."""
AUGMENTED_SHARES = (25, 50)
HELD = 50
"""The share that GPO is held at in the first half of the epochs."""
UNCHANGED: Changes = (*NO_IMAGE_DROP, *NO_TEXT_DROP)


def local_elements(place: Place) -> Table:
    """Return the table of poolings of local elements; both sides have the same one, unless a label names them.

    The row ``search`` needs two epochs, one to search and one to train, and is left out of a shorter run.
    """
    epochs = place.resolved().schedule.epochs
    held = (*place.with_gpo({"start": HELD}), f"schedule.pooling_from={epochs // 2}")
    plain = {
        "Avg": VSE_PLUS_PLUS,
        "Max": (*_both("max"), *UNCHANGED),
        **{f"{share} %": (*_both("top-percent", percent=share), *UNCHANGED) for share in SHARES},
    }
    augmented = {
        "Avg, augmented": (*IMAGE_AVG, *TEXT_AVG),
        **{f"{share} %, augmented": _both("top-percent", percent=share) for share in AUGMENTED_SHARES},
    }
    searched = {
        "search": (*_both("top-percent", percent="search"), f"schedule.search_epochs={max(1, epochs // 3)}", *UNCHANGED)
    }
    held_label = f"GPO held at {HELD} %"
    return Table(
        name="local-elements",
        title="Poolings of local elements",
        panels={
            "no size augmentation": {
                **plain,
                "GPO": UNCHANGED,
                held_label: (*held, *UNCHANGED),
                **(searched if epochs > 1 else {}),
                "images: GPO, words: Avg": (*TEXT_AVG, *UNCHANGED),
                "images: Avg, words: GPO": (*IMAGE_AVG, *UNCHANGED),
            },
            "size augmentation": {**augmented, "GPO, augmented": ()},
        },
        claims=(
            ("GPO", "Avg"),
            ("GPO", tuple(plain)),
            ("GPO, augmented", "Avg, augmented"),
            ("GPO, augmented", tuple(augmented)),
            ("GPO, augmented", "Avg"),  # as published: pooling and augmentation at once
            ("GPO, augmented", "GPO"),
            (held_label, "GPO"),
            (held_label, tuple(plain)),
            ("images: GPO, words: Avg", "Avg"),
            ("images: Avg, words: GPO", "Avg"),
        ),
        seeds=(0, 1, 2),
    )


def _both(name: str, **options: Any) -> Changes:
    return (*pooling("image", name, **options), *pooling("text", name, **options))


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


def run_local_elements(call: Call) -> GridResult:
    """Compare poolings over the windows of large images; the recipe is ``regions-vse-infinity`` unless one is named."""
    place = prepare(replace(call, recipe=call.recipe or LOCAL_RECIPE))
    return _run_at(place, local_elements(place), call)


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
