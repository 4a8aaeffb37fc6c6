"""The paper's tab:intro: complex aggregators of visual features against the best simple pooling."""

from __future__ import annotations

from vse.experiments.call import Call
from vse.experiments.grid.plan import Claim
from vse.experiments.grid.report import GridResult
from vse.experiments.photo_table import IMAGE_AVG, TEXT_AVG, pooling, prepare, run_table
from vse.experiments.tables.k_max_search import search_k

BEST = "best simple pooling"
COMPLEX = {
    "Seq2Seq": "seq2seq",
    "SelfAttn": "self-attention",
    "GCN + AvgPool": "gcn-avg",
    "GCN + Seq2Seq": "gcn-seq2seq",
}


def run(call: Call) -> GridResult:
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
