"""Measure what the score of a pair costs in each system that scores pairs, against the dot product of VSE.

    python benchmarks/systems.py                        # 256 dimensions, 49 cells, 12 words, 100 x 100 pairs
    python benchmarks/systems.py --size 1024 --regions 36 --pairs 50 --json

The elements are random: the cost does not depend on their values. The systems take turns, so that other load on the
machine affects all of them; a figure is the least processor time of all rounds. The features are encoded before; VSE
multiplies embeddings of the same dimensions. Each system scores blocks of bounded memory, as in an evaluation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor

from vse.models.config import PairConfig
from vse.systems.cross_attention import Sets
from vse.systems.pair_model import create_scoring, score_blocks

VARIANTS = {
    "SCAN t2i": ("scan", {"direction": "t2i", "aggregation": "mean"}),
    "SCAN i2t": ("scan", {"direction": "i2t", "lambda_softmax": 4.0, "lambda_lse": 5.0}),
    "IMRAM text": ("imram", {"mode": "text"}),
    "IMRAM full": ("imram", {"mode": "full"}),
    "CAAN": ("caan", {}),
}
DOTS = 20  # products in a row: one is too short to be timed


def sets(count: int, elements: int, size: int) -> Sets:
    """Return random unit vectors."""
    made = torch.nn.functional.normalize(torch.randn(count, elements, size), dim=2)
    return Sets(made, torch.ones(count, elements, dtype=torch.bool))


def scorer(system: str, options: dict[str, object], images: Sets, texts: Sets) -> Callable[[], None]:
    """Return a call that scores all pairs with random weights."""
    size = images.elements.shape[2]
    config = {
        "embed_size": size,
        "image": {"kind": "region", "feature_size": size, "head": "linear"},
        "text": {"kind": "bigru", "vocabulary_size": 10},
        "system": system,
        "options": options,
    }
    scoring = create_scoring(PairConfig.model_validate(config)).eval()

    def score() -> None:
        for _ in score_blocks(scoring, images, texts):
            pass

    return score


def least(call: Callable[[], object], times: dict[str, float], name: str, repeated: int = 1) -> None:
    """Record the processor seconds of a call, if they are fewer than before."""
    began = time.process_time()
    for _ in range(repeated):
        call()
    times[name] = min(times.get(name, float("inf")), (time.process_time() - began) / repeated)


def measure(size: int, regions: int, words: int, pairs: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return microseconds for each pair, and how many times those of VSE they are."""
    torch.manual_seed(0)
    images, texts = sets(pairs, regions, size), sets(pairs, words, size)
    left, right = images.elements.mean(1), texts.elements.mean(1)
    calls = {name: scorer(system, options, images, texts) for name, (system, options) in VARIANTS.items()}

    def dots() -> Tensor:
        return left @ right.T

    times: dict[str, float] = {}
    with torch.inference_mode():
        for _ in range(rounds):
            least(dots, times, "VSE", DOTS)
            for name, call in calls.items():
                least(call, times, name)
    return {
        name: {"microseconds": 1e6 * seconds / pairs**2, "ratio": seconds / times["VSE"]}
        for name, seconds in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256, help="dimensions of an element")
    parser.add_argument("--regions", type=int, default=49)
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--pairs", type=int, default=100, help="images, and as many texts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = measure(options.size, options.regions, options.words, options.pairs, options.rounds)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{options.size} dimensions, {options.regions} regions, {options.words} words, {options.threads} threads")
    print(f"{'':12}{'µs a pair':>12}{'times VSE':>12}{'CPU s per million':>20}")
    for name, row in found.items():
        print(f"{name:12}{row['microseconds']:12.4f}{row['ratio']:12,.0f}{row['microseconds']:20,.2f}")


if __name__ == "__main__":
    main()
