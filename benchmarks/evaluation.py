"""Compare exact ranks of COCO 5K (5,000 images × 25,000 captions, both directions) with the usual formulation.

    python benchmarks/evaluation.py [--rounds 5] [--images 5000]

Three contestants, in turns, in one process:

- product: the bare float32 matrix product ``images @ texts.T``, which any exact evaluation needs;
- ours: ``vse.evaluation.ranks_both_ways``, ranks equal to float64's, without the full matrix;
- usual: what retrieval code commonly does: images repeated once per caption, float64, one ``argsort`` per query.

The embeddings have the recall of a good model (R@1 about 90 and 60). The usual formulation is timed once. Ranks of ours
and the usual one are compared; peak memory is numpy's own count.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from vse.evaluation import DotScores, ranks_both_ways, text_positives

DIMENSIONS, CAPTIONS, NOISE = 1024, 5, 8.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=5000)
    arguments = parser.parse_args()
    images, texts, owners = vectors(arguments.images)
    positives = text_positives(owners, len(images)).T

    def product() -> object:
        return images @ texts.T

    def ours() -> object:
        return ranks_both_ways(DotScores(images, texts), positives)

    product(), ours()  # warm
    times: dict[str, list[float]] = {"product": [], "ours": []}
    for _ in range(arguments.rounds):
        for name, run in (("product", product), ("ours", ours)):
            times[name].append(timed(run))
    once, expected = timed_result(lambda: usual(images, texts, owners))
    found = ranks_both_ways(DotScores(images, texts), positives)
    tracemalloc.start()
    ours()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    base = statistics.median(times["product"])
    median = statistics.median(times["ours"])
    paired = [ours / bare for ours, bare in zip(times["ours"], times["product"], strict=True)]
    print(f"{len(images):,} images × {len(texts):,} captions × {DIMENSIONS}, medians of {arguments.rounds} rounds")
    print(f"ours / product: {median / base:.2f}× (rounds {min(paired):.2f}–{max(paired):.2f})")
    print(f"usual / ours:   {once / median:.1f}× (usual timed once)")
    print(
        f"extra memory:   {peak / 1e6:.0f} MB (the whole float32 matrix: {len(images) * len(texts) * 4 / 1e6:.0f} MB)"
    )
    same = all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    print(f"same ranks:     {same}")


def vectors(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return unit vectors of images, and of captions close to their image."""
    generator = np.random.default_rng(0)
    images = generator.normal(size=(count, DIMENSIONS)).astype(np.float32)
    owners = np.repeat(np.arange(count), CAPTIONS)
    texts = images[owners] / NOISE + generator.normal(size=(len(owners), DIMENSIONS)).astype(np.float32)
    return (*(v / np.linalg.norm(v, axis=1, keepdims=True) for v in (images, texts)), owners)


def usual(images: np.ndarray, texts: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rank with one argsort per query over float64 scores, images repeated as in the published feature files."""
    repeated = images.astype(np.float64)[owners]
    captions = texts.astype(np.float64)
    image_ranks = np.zeros(len(images), dtype=np.int64)
    for image in range(len(images)):
        scores = repeated[CAPTIONS * image] @ captions.T
        order = np.argsort(scores)[::-1]
        image_ranks[image] = 1 + min(np.where(order == CAPTIONS * image + k)[0][0] for k in range(CAPTIONS))
    distinct = repeated[::CAPTIONS]
    text_ranks = np.zeros(len(texts), dtype=np.int64)
    for text in range(len(texts)):
        order = np.argsort(distinct @ captions[text])[::-1]
        text_ranks[text] = 1 + np.where(order == owners[text])[0][0]
    return image_ranks, text_ranks


def timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def timed_result(run: Callable[[], tuple[np.ndarray, np.ndarray]]) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
    started = time.perf_counter()
    result = run()
    return time.perf_counter() - started, result


if __name__ == "__main__":
    main()
