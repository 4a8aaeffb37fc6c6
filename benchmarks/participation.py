"""Effective number of independent elements in the sets of a feature store: participation ratios.

    python benchmarks/participation.py CELLS WINDOWS --images 500

A pooling can only choose between elements that differ. The participation ratio of an image is ``(Σλ)² / Σλ²`` over the
eigenvalues λ of the covariance of its elements: 1 if they all vary along one direction, their number less one if they
vary along as many directions equally. Printed for each store: the number of elements, the mean over images with its
standard deviation, and the mean cosine of two elements of an image.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vse.data import FeatureStore


def participation_ratio(elements: NDArray[np.floating]) -> float:
    """Return the participation ratio of the rows of a matrix.

    Equal rows have none: 0 is returned.

    >>> round(participation_ratio(np.eye(5)), 6)
    4.0
    >>> round(participation_ratio(np.outer(np.arange(5), np.ones(3))), 6)
    1.0
    """
    centred = np.asarray(elements, np.float64)
    centred = centred - centred.mean(axis=0)
    gram = centred @ centred.T if len(centred) <= centred.shape[1] else centred.T @ centred
    total, squares = float(np.trace(gram)), float((gram * gram).sum())  # Σλ, Σλ²
    return total * total / squares if squares > 0 else 0.0


def mean_cosine(elements: NDArray[np.floating]) -> float:
    """Return the mean cosine of two different rows of a matrix."""
    rows = np.asarray(elements, np.float64)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    count = len(rows)
    return float(((rows.sum(axis=0) ** 2).sum() - (rows * rows).sum()) / max(count * (count - 1), 1))


def measure(folder: Path, images: int, seed: int) -> dict[str, object]:
    """Return the figures of a store over a sample of its images."""
    store = FeatureStore.open(folder)
    drawn = np.random.Generator(np.random.Philox(seed)).permutation(len(store.ids))
    usable = [row for row in drawn if store.ids[row] not in store.bad][:images]
    sets = [np.asarray(store.array[row], np.float32) for row in usable]
    ratios = [participation_ratio(each) for each in sets]
    return {
        "store": str(folder),
        "backbone": store.header.backbone,
        "elements": store.header.elements,
        "images": len(sets),
        "participation": round(float(np.mean(ratios)), 2),
        "spread": round(float(np.std(ratios)), 2),
        "cosine": round(float(np.mean([mean_cosine(each) for each in sets])), 3),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stores", type=Path, nargs="+", metavar="STORE", help="written by vse features")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each store")
    given = parser.parse_args(arguments)
    for folder in given.stores:
        found = measure(folder, given.images, given.seed)
        if given.json:
            print(json.dumps(found))
        else:
            print(
                f"{found['store']}: {found['participation']} ± {found['spread']} of {found['elements']} elements, "
                f"mean cosine {found['cosine']} ({found['images']} images, {found['backbone']})"
            )


if __name__ == "__main__":
    main()
