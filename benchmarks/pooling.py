"""Measure the speed of the sorted weighted sum and of GPO, as ratios within one run.

    python benchmarks/pooling.py            # the whole table
    python benchmarks/pooling.py --sizes 36 --rounds 30
    python benchmarks/pooling.py --json

Contestants take turns round by round, and each ratio is the median over rounds of the ratio within a round, so that
noise which slows a whole round cancels out. Absolute times are printed for orientation only.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vse.pooling import GPO, sorted_weighted_sum
from vse.pooling.gpo import sincos_positions

BATCH, WIDTH = 128, 1024
SIZES = (20, 36, 49, 64, 256)
PADDING_VALUE = -10000.0
HEADER = "   N  sizes   pass              plain/ours   ours/max  ours/copy  ours/(max+copy)   plain ms   ours ms"


def plain(features: Tensor, weights: Tensor, mask: Tensor | None) -> Tensor:
    """Compute the usual formulation; padded elements get a value that sorts last, and zero weights."""
    if mask is not None:
        features = features.masked_fill(~mask.unsqueeze(-1), PADDING_VALUE)
    return (features.sort(1, descending=True)[0] * weights[..., None]).sum(1)


def max_pool(features: Tensor, mask: Tensor | None) -> Tensor:
    if mask is not None:
        features = features.masked_fill(~mask.unsqueeze(-1), float("-inf"))
    return features.amax(1)


def mixed_sizes(size: int, generator: torch.Generator) -> Tensor:
    """Return a mask for sets of a quarter of ``size`` to ``size`` elements."""
    lengths = torch.randint(max(1, size // 4), size + 1, (BATCH,), generator=generator)
    return torch.arange(size) < lengths.unsqueeze(1)


def contestants(size: int, *, ragged: bool, backward: bool) -> dict[str, Callable[[], Any]]:
    """Return the functions that take turns for one shape."""
    generator = torch.Generator().manual_seed(size)
    features = torch.randn(BATCH, size, WIDTH, generator=generator)
    mask = mixed_sizes(size, generator) if ragged else None
    weights = torch.rand(BATCH, size, generator=generator)
    weights = weights if mask is None else weights.masked_fill(~mask, 0)
    grad = torch.randn(BATCH, WIDTH, generator=generator)
    functions: dict[str, Callable[[], Tensor]] = {
        "plain": lambda: plain(features, weights, mask),
        "ours": lambda: sorted_weighted_sum(features, weights, mask),
        "max": lambda: max_pool(features, mask),
        "copy": features.clone,
    }
    if not backward:
        return functions
    ones = torch.ones_like(features)
    features.requires_grad_()
    weights.requires_grad_()

    def with_backward(function: Callable[[], Tensor]) -> Callable[[], None]:
        def call() -> None:
            features.grad = weights.grad = None
            out = function()
            out.backward(grad if out.dim() == 2 else ones)

        return call

    return {name: with_backward(function) for name, function in functions.items()}


def take_turns(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each function, round by round, after two warm-up rounds."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for round_number in range(rounds + 2):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            if round_number >= 2:
                times[name].append(time.perf_counter() - started)
    return times


def ratio(times: dict[str, list[float]], slow: str, *fast: str) -> float:
    """Return the median over rounds of time(slow) / sum of time(fast)."""
    pairs = zip(times[slow], *(times[name] for name in fast), strict=True)
    return statistics.median(first / sum(others) for first, *others in pairs)


def measure(size: int, *, ragged: bool, backward: bool, rounds: int) -> dict[str, Any]:
    times = take_turns(contestants(size, ragged=ragged, backward=backward), rounds)
    return {
        "size": size,
        "ragged": ragged,
        "pass": "forward+backward" if backward else "forward",
        "plain_over_ours": ratio(times, "plain", "ours"),
        "ours_over_max": ratio(times, "ours", "max"),
        "ours_over_copy": ratio(times, "ours", "copy"),
        "ours_over_max_plus_copy": ratio(times, "ours", "max", "copy"),
        "milliseconds": {name: 1e3 * statistics.median(values) for name, values in times.items()},
    }


def measure_share(size: int, *, ragged: bool, rounds: int) -> dict[str, Any]:
    """Return the shares of ``GPO.forward`` spent in the GRU and in computing the coefficients in total."""
    generator = torch.Generator().manual_seed(size)
    pool = GPO()
    features = torch.randn(BATCH, size, WIDTH, generator=generator)
    mask = mixed_sizes(size, generator) if ragged else None
    sizes = torch.tensor([size]) if mask is None else mask.sum(1).unique()
    positions = sincos_positions(size)
    with torch.no_grad():
        times = take_turns(
            {
                "module": lambda: pool(features, mask=mask),
                "gru": lambda: pool.gru(positions, sizes),
                "coefficients": lambda: pool.batch_coefficients(features, mask),
            },
            5 * rounds,
        )
    return {
        "size": size,
        "ragged": ragged,
        "distinct_sizes": len(sizes),
        "gru": 1 / ratio(times, "module", "gru"),
        "coefficients": 1 / ratio(times, "module", "coefficients"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed ratios of the sorted weighted sum and of GPO.")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="N")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    note = f"batch {BATCH}, width {WIDTH}, float32, {torch.get_num_threads()} threads, torch {torch.__version__}, "
    note += f"{torch.backends.cpu.get_cpu_capability()}, {platform.machine()}"
    print(note, file=sys.stderr)
    rows, shares = [], []
    for size in options.sizes:
        for ragged in (False, True):
            for backward in (False, True):
                row = measure(size, ragged=ragged, backward=backward, rounds=options.rounds)
                rows.append(row)
                if not options.json:
                    if len(rows) == 1:
                        print(HEADER)
                    times = row["milliseconds"]
                    kind = "ragged" if ragged else "full"
                    print(
                        f"{size:4}  {kind:6}  {row['pass']:16}  {row['plain_over_ours']:9.1f}x  "
                        f"{row['ours_over_max']:8.2f}x  {row['ours_over_copy']:8.2f}x  "
                        f"{row['ours_over_max_plus_copy']:15.2f}x  {times['plain']:9.1f}  {times['ours']:8.2f}",
                        flush=True,
                    )
            shares.append(measure_share(size, ragged=ragged, rounds=options.rounds))
    if options.json:
        print(json.dumps({"machine": note, "sorted_weighted_sum": rows, "coefficient_share": shares}, indent=2))
        return
    print("\nshare in GPO.forward:                GRU   all coefficients")
    for share in shares:
        kind = f"ragged, {share['distinct_sizes']} distinct sizes" if share["ragged"] else "full, 1 distinct size"
        print(f"{share['size']:4}  {kind:26}  {100 * share['gru']:5.1f} %  {100 * share['coefficients']:14.1f} %")


if __name__ == "__main__":
    main()
