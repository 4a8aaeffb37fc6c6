"""Random draws that depend only on a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.random import Philox, SeedSequence
from numpy.typing import NDArray

from vse.errors import InputError

T = TypeVar("T")
KEY_LIMIT = 2**32


class KeyedRandom:
    """A stream of draws determined by a key of integers below 2^32: the same key always gives the same draws.

    numpy guarantees that the raw output of its bit generators never changes, but not what its ``Generator`` computes
    from it, so the few distributions needed here are computed from the raw output.

    >>> KeyedRandom(0, 7).below(100) == KeyedRandom(0, 7).below(100)
    True
    """

    def __init__(self, *key: int) -> None:
        for number in key:
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < KEY_LIMIT:
                raise InputError(f"a random key consists of integers from 0 to 2^32 - 1, got {number!r}")
        # The length goes first: SeedSequence pads with zeros, so (1,) and (1, 0) would be the same key.
        self._bits = Philox(SeedSequence((len(key), *key)))

    def below(self, bound: int) -> int:
        """Return an integer from 0 to ``bound`` - 1; the bias is below ``bound`` / 2^64."""
        return (self._raw() * bound) >> 64

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """Return a number in [low, high) from 53 random bits."""
        return low + (high - low) * ((self._raw() >> 11) * 2.0**-53)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.uniform() < probability

    def choice(self, values: Sequence[T]) -> T:
        """Return one of the values, each equally likely."""
        return values[self.below(len(values))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """Return the values in random order (Fisher–Yates) as a new list."""
        result = list(values)
        for last in range(len(result) - 1, 0, -1):
            other = self.below(last + 1)
            result[last], result[other] = result[other], result[last]
        return result

    def permutation(self, number: int) -> NDArray[Any]:
        """Return the numbers below ``number`` in random order as an array: the fast way to shuffle many."""
        return np.argsort(self._bits.random_raw(number), kind="stable")

    def _raw(self) -> int:
        return int(self._bits.random_raw())
