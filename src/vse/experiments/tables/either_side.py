"""The paper's tab:gpo_ablation: GPO on one side, on both, on none."""

from __future__ import annotations

from vse.experiments.call import Call
from vse.experiments.grid.plan import Claim
from vse.experiments.grid.report import GridResult
from vse.experiments.photo_table import IMAGE_AVG, TEXT_CLS, prepare, run_table

BOTH = "GPO + GPO"


def run(call: Call) -> GridResult:
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
