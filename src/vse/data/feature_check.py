"""A look at every image of a feature file, in blocks: numbers that are none, empty regions, copies."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from vse.data.captioned_images import FeatureRows
from vse.progress import ProgressReporter

BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class FeatureFacts:
    """``not_finite``: images with NaN or infinity; ``zero_regions``: regions without any value; a digest an image."""

    not_finite: tuple[int, ...]
    zero_regions: int
    digests: tuple[bytes, ...]


def inspect_features(images: FeatureRows, progress: ProgressReporter) -> FeatureFacts:
    """Read each image once, at most :data:`BLOCK_BYTES` at a time; ``progress`` advances by images."""
    row_bytes = images.regions * images.dim * images.array.dtype.itemsize
    block = max(1, BLOCK_BYTES // row_bytes)
    not_finite: list[int] = []
    zero_regions = 0
    digests: list[bytes] = []
    for start in range(0, len(images), block):
        rows = images.rows[start : start + block]
        features = np.ascontiguousarray(images.array[rows]).reshape(len(rows), images.regions, images.dim)  # (B, N, C)
        not_finite += (start + np.flatnonzero(~np.isfinite(features).all(axis=(1, 2)))).tolist()
        zero_regions += int((~features.any(axis=2)).sum())
        digests += [hashlib.blake2b(row.data, digest_size=16).digest() for row in features]
        progress.advance(len(rows))
    return FeatureFacts(tuple(not_finite), zero_regions, tuple(digests))
