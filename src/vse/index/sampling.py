"""Which items stand for a collection: a uniform sample that is the same each time.

Ids are scrambled, and the smallest of the results are taken. When few items are added or removed few of the sample
change, and a part of a collection can be sampled before the rest is seen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FACTORS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)


def hashes(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A fixed scrambling of 64 bits: multiply and shift, twice. Different ids have different hashes."""
    bits = ids.astype(np.uint64)
    for factor in FACTORS:
        bits = bits * np.uint64(factor)  # modulo 2^64
        bits ^= bits >> np.uint64(32)
    return bits


def smallest(ids: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The positions, ascending, of the ``count`` ids with the smallest hashes, or of all when there are fewer."""
    if len(ids) <= count:
        return np.arange(len(ids))
    return np.sort(np.argpartition(hashes(ids), count)[:count])
