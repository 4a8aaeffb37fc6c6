"""Synthetic embeddings shaped like real ones: clusters within topics, a decaying spectrum, unit length.

    x = normalise(μ + topic + cluster + own),   each term ~ N(0, share · R diag(i^-1.34, i ≤ 256) Rᵀ)

The exponent, the length of μ and the number of components (256 hold 98 % of the variance) are those of the 40,460
captions of Flickr8k under the bundled photo model; the shares give a vector's nearest neighbours about the cosines that
they have there. Independent Gaussian vectors would
have neither clusters nor a spectrum: all of them are about equally far from each other, which no search in practice
is, and no index can exploit. Block ``b`` depends on the seed and on ``b`` alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
DIMENSIONS, BLOCK = 512, 16_384
TOPICS, CLUSTERS = 1_000, 100_000
COMPONENTS, EXPONENT, MEAN_LENGTH = 256, 1.34, 0.17
SHARES = (0.4, 0.35, 0.25)
"""Parts of the variance: between topics, between the clusters of a topic, within a cluster."""
QUERY_BLOCK = 2**40
"""Queries are a block that no collection reaches."""


class Mixture:
    """The mixture of one seed; about 250 MB."""

    def __init__(self, seed: int = 0, dimensions: int = DIMENSIONS) -> None:
        random = np.random.default_rng([seed, 2**41])
        self.seed, self.dimensions = seed, dimensions
        components = min(COMPONENTS, dimensions)
        spectrum = np.arange(1, components + 1, dtype=np.float64) ** -EXPONENT
        rotation = np.linalg.qr(random.standard_normal((dimensions, components)))[0]
        self._shape = ((rotation * np.sqrt(spectrum / spectrum.sum())).T).astype(np.float32)
        mean = random.standard_normal(dimensions)
        topics = self._drawn(random, TOPICS, SHARES[0]) + (MEAN_LENGTH * mean / np.linalg.norm(mean)).astype(np.float32)
        weights = 1 / (np.arange(TOPICS) + 20.0)  # some topics are photographed more often than others
        self._centres = self._drawn(random, CLUSTERS, SHARES[1])
        owners = random.choice(TOPICS, CLUSTERS, p=weights / weights.sum())
        for start in range(0, CLUSTERS, BLOCK):
            self._centres[start : start + BLOCK] += topics[owners[start : start + BLOCK]]

    def blocks(self, count: int) -> Iterator[Vectors]:
        """Yield ``count`` embeddings in blocks of :data:`BLOCK`; the last one may be shorter."""
        for number, start in enumerate(range(0, count, BLOCK)):
            yield self.block(number)[: count - start]

    def queries(self, count: int) -> Vectors:
        """Return embeddings of the same mixture that are not among its blocks."""
        return self.block(QUERY_BLOCK)[:count]

    def block(self, number: int) -> Vectors:
        """Return the embeddings ``(BLOCK, D)`` of one block."""
        random = np.random.default_rng([self.seed, number])
        members = random.integers(0, CLUSTERS, BLOCK)
        vectors = self._drawn(random, BLOCK, SHARES[2])
        vectors += self._centres[members]
        vectors /= np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
        return vectors

    def _drawn(self, random: np.random.Generator, count: int, share: float) -> Vectors:
        drawn = random.standard_normal((count, len(self._shape)), dtype=np.float32)
        return drawn @ (self._shape * np.float32(np.sqrt(share)))
