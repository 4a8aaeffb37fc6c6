"""Randomness that depends on what it is for, not on what was drawn before.

A generator is named by (seed, epoch, purpose, sample): whoever asks for the same name gets the same numbers, in any
order, in any process, after any interruption. Numbers of readers and of ranks therefore do not change the data.
"""

from __future__ import annotations

from enum import IntEnum

from numpy.random import Generator, Philox, SeedSequence


class Purpose(IntEnum):
    """What a draw is for; the numbers are part of what makes a run repeatable and never change."""

    ORDER = 0
    CAPTIONS = 1
    IMAGE_ELEMENTS = 2
    TEXT_ELEMENTS = 3
    VIEW = 4
    NETWORK = 5
    WEIGHTS = 6


def keyed(seed: int, epoch: int, purpose: Purpose, sample: int = 0) -> Generator:
    """The generator of this name."""
    return Generator(Philox(SeedSequence((seed, epoch, int(purpose), sample))))


def keyed_seed(seed: int, epoch: int, purpose: Purpose, sample: int = 0) -> int:
    """A 64-bit seed of this name, for libraries that have a generator of their own."""
    low, high = SeedSequence((seed, epoch, int(purpose), sample)).generate_state(2)
    return int(low) | int(high) << 32
