"""The paper's tab:aug: size augmentation of no side, of pictures, of both; and what it does for VSE++."""

from __future__ import annotations

from vse.experiments.call import Call
from vse.experiments.grid.plan import Claim
from vse.experiments.grid.report import GridResult
from vse.experiments.photo_table import (
    IMAGE_AVG,
    NO_IMAGE_DROP,
    NO_TEXT_DROP,
    TEXT_AVG,
    VSE_PLUS_PLUS,
    prepare,
    run_table,
)


def run(call: Call) -> GridResult:
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
