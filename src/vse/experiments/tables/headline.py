"""The four contrasts on which the paper rests, with five seeds each."""

from __future__ import annotations

from vse.experiments.call import Call
from vse.experiments.grid.plan import Claim
from vse.experiments.grid.report import GridResult
from vse.experiments.photo_table import (
    NO_IMAGE_DROP,
    NO_TEXT_DROP,
    TEXT_AVG,
    VSE_PLUS_PLUS,
    pooling,
    prepare,
    run_table,
)
from vse.experiments.tables.k_max_search import search_k

OURS = "VSE∞"
PLAIN = "VSE∞ without augmentation"


def run(call: Call) -> GridResult:
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
