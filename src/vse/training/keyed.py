"""Random numbers that depend on their purpose, not on what was drawn before.

A generator is keyed by (seed, epoch, purpose, sample): the same key gives the same numbers in any order, in any
process and after any interruption. The numbers of readers and ranks therefore do not change the data.
"""

from __future__ import annotations

from enum import IntEnum

from numpy.random import Generator, Philox, SeedSequence


class Purpose(IntEnum):
    """What a draw is for. Runs are reproducible only while these numbers do not change."""

    ORDER = 0
    CAPTIONS = 1
    IMAGE_ELEMENTS = 2
    TEXT_ELEMENTS = 3
    VIEW = 4
    NETWORK = 5
    WEIGHTS = 6
    POOLING = 7
    NEGATIVES = 8


def keyed(seed: int, epoch: int, purpose: Purpose, sample: int = 0) -> Generator:
    """Return the generator of a key."""
    return Generator(Philox(SeedSequence((seed, epoch, int(purpose), sample))))


def keyed_seed(seed: int, epoch: int, purpose: Purpose, sample: int = 0) -> int:
    """Return the 64-bit seed of a key, for libraries with their own generators."""
    low, high = SeedSequence((seed, epoch, int(purpose), sample)).generate_state(2)
    return int(low) | int(high) << 32
