"""Compare implementations of the sorted weighted sum, forward only: why it is a numba kernel on torch's threads.

    python benchmarks/pooling_vehicles.py
    python benchmarks/pooling_vehicles.py --alone      # each by itself, repeatedly, on warm caches
    python benchmarks/pooling_vehicles.py --compile    # with torch.compile, which needs a C++ compiler and time

All compute the same sum for (128, 36, 1024) and are compared with ``torch.sort``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pooling import BATCH, WIDTH, plain, ratio, take_turns
from vse.pooling import sorted_weighted_sum
from vse.pooling.kernels import threads
from vse.pooling.kernels.sorted_sum import comparators

SIZE = 36
workers = ThreadPoolExecutor(2)


def numpy_sort(features: Tensor, weights: Tensor) -> Tensor:
    """Sort with numpy's SIMD sort, which needs the last axis contiguous: transpose, sort in two threads, multiply."""
    turned = features.transpose(1, 2).contiguous().numpy()
    half = len(turned) // 2
    other = workers.submit(turned[:half].sort, -1)
    turned[half:].sort(-1)
    other.result()
    return torch.einsum("bdn,bn->bd", torch.from_numpy(turned), weights.flip(1))  # ascending


def torch_network(features: Tensor, weights: Tensor) -> Tensor:
    """Run the sorting network in torch operators, one set at a time to stay in cache, runs of rows at once."""
    out = torch.empty(features.shape[0], features.shape[2])
    for b in range(features.shape[0]):
        rows = features[b].clone()
        for first, last, step in RUNS:
            upper, lower = rows[first:last], rows[first + step : last + step]
            smaller = torch.minimum(upper, lower)
            torch.maximum(upper, lower, out=upper)
            lower.copy_(smaller)
        out[b] = weights[b] @ rows
    return out


def network_of_rows(features: Tensor, weights: Tensor) -> Tensor:
    """Return the whole network as one expression over rows, for torch.compile to fuse."""
    rows = list(features.unbind(1))
    for i, j in PAIRS:
        rows[i], rows[j] = torch.maximum(rows[i], rows[j]), torch.minimum(rows[i], rows[j])
    return sum((weights[:, k, None] * row for k, row in enumerate(rows)), torch.zeros(()))


def runs(size: int) -> list[tuple[int, int, int]]:
    """Group neighbouring comparators of equal reach into row ranges ``(first, last, reach)``."""
    found: list[list[int]] = []
    for i, j in comparators(size).tolist():
        reach = j - i
        if found and found[-1][1] == i and found[-1][2] == reach and i - found[-1][0] < reach:
            found[-1][1] = i + 1
        else:
            found.append([i, i + 1, reach])
    return [(first, last, reach) for first, last, reach in found]


RUNS = runs(SIZE)
PAIRS = [(i, j) for i, j in comparators(SIZE).tolist()]


def on_a_thread_pool(features: Tensor, weights: Tensor) -> Tensor:
    """Run our kernel on our own thread pool instead of torch's threads."""
    threads._forked = True
    try:
        return sorted_weighted_sum(features, weights)
    finally:
        threads._forked = False


def main() -> None:
    parser = argparse.ArgumentParser(description="Vehicles for the sorted weighted sum.")
    parser.add_argument("--alone", action="store_true", help="repeat each by itself instead of taking turns")
    parser.add_argument("--compile", action="store_true", help="also measure torch.compile")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    features, weights = torch.randn(BATCH, SIZE, WIDTH), torch.rand(BATCH, SIZE)
    functions: dict[str, Callable[[], Tensor]] = {
        "torch.sort": lambda: plain(features, weights, None),
        "torch operators over the network": lambda: torch_network(features, weights),
        "numpy SIMD sort, transposed": lambda: numpy_sort(features, weights),
        "numba network, thread pool": lambda: on_a_thread_pool(features, weights),
        "numba network, torch's threads": lambda: sorted_weighted_sum(features, weights),
    }
    if options.compile:
        for name, function in {"torch.sort": lambda x, w: plain(x, w, None), "the network": network_of_rows}.items():
            compiled = torch.compile(function)
            started = time.perf_counter()
            compiled(features, weights)
            print(f"torch.compile of {name}: first call {time.perf_counter() - started:.0f} s")
            functions[f"torch.compile of {name}"] = partial(compiled, features, weights)
    expected = functions["torch.sort"]().numpy()
    for function in functions.values():
        np.testing.assert_allclose(function().numpy(), expected, rtol=1e-4, atol=1e-4)
    if options.alone:
        times = {name: take_turns({name: function}, options.rounds)[name] for name, function in functions.items()}
    else:
        times = take_turns(functions, options.rounds)
    for name, values in times.items():
        print(f"{name:34} {ratio(times, 'torch.sort', name):6.1f}x   {1e3 * statistics.median(values):8.2f} ms")


if __name__ == "__main__":
    main()
