"""The paper's fig:compare_pool: poolings of pictures with averaged words, poolings of words with GPO on pictures."""

from __future__ import annotations

from vse.experiments.call import Call
from vse.experiments.grid.plan import Claim
from vse.experiments.grid.report import GridResult
from vse.experiments.photo_table import IMAGE_AVG, TEXT_AVG, TEXT_CLS, pooling, prepare, run_table
from vse.experiments.tables.k_max_search import search_k

VISUAL, TEXTUAL = "pictures (words averaged)", "words (GPO on pictures)"
LEARNED = {"GeM": "gem", "FSPool": "fspool", "SelfAttn": "self-attention", "Seq2Seq": "seq2seq"}


def run(call: Call) -> GridResult:
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
