"""Randomness by name: equal names draw equal numbers, different names do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.training.keyed import Purpose, keyed, keyed_seed

WORD = st.integers(0, 2**32 - 1)
NAMES = st.tuples(WORD, WORD, st.sampled_from(Purpose), WORD)


def numbers(name: tuple[int, int, Purpose, int]) -> list[int]:
    return keyed(*name).integers(2**62, size=4).tolist()


@given(NAMES, NAMES)
def test_the_name_decides_and_nothing_else(one, other):
    """Whoever asks for a name gets its numbers, whatever was drawn between; another name has others."""
    first = numbers(one)
    between = numbers(other)
    assert numbers(one) == first
    assert (between == first) == (one == other)
    assert (keyed_seed(*one) == keyed_seed(*other)) == (one == other)


@given(NAMES, st.integers(0, 3), st.integers(1, 5))
def test_each_part_of_a_name_counts(name, place, by):
    """A neighbouring seed, epoch, purpose or sample is another generator; small numbers are the usual ones."""
    small = [name[0] % 10, name[1] % 10, name[2], name[3] % 10]
    other = list(small)
    other[place] = Purpose((small[2] + by) % len(Purpose)) if place == 2 else small[place] + by
    assert numbers(tuple(small)) != numbers(tuple(other))
    assert keyed_seed(*small) != keyed_seed(*other)


def test_parts_cannot_be_exchanged():
    """All orders of three numbers as (seed, epoch, sample) are different names."""
    orders = {(a, b, c) for a in range(4) for b in range(4) for c in range(4)}
    drawn = {tuple(numbers((seed, epoch, Purpose.ORDER, sample))) for seed, epoch, sample in orders}
    assert len(drawn) == 64


def test_the_numbers_are_those_of_earlier_releases():
    """Frozen: another scheme would change the order and augmentation of every run that was published."""
    assert keyed(7, 3, Purpose.ORDER).random(3).tolist() == [
        0.4130290155584696,
        0.18247657885780033,
        0.6508432600046737,
    ]
    assert keyed(7, 3, Purpose.VIEW, 5).integers(1000, size=4).tolist() == [438, 218, 108, 231]
    assert keyed(7, 3, Purpose.ORDER).permutation(8).tolist() == [5, 1, 0, 3, 4, 6, 2, 7]
    assert keyed_seed(7, 3, Purpose.NETWORK, 5) == 813860195339992188


def test_purposes_keep_their_numbers():
    """The numbers are part of the names: a purpose may be added, none renumbered."""
    names = ["ORDER", "CAPTIONS", "IMAGE_ELEMENTS", "TEXT_ELEMENTS", "VIEW", "NETWORK", "WEIGHTS"]
    assert [Purpose[name].value for name in names] == list(range(7))


@pytest.mark.parametrize("sample", [0, 1, 12345])
def test_seeds_fill_64_bits(sample):
    """What other libraries are given is not cut to 32 bits."""
    seeds = np.array([keyed_seed(seed, 0, Purpose.NETWORK, sample) for seed in range(64)], dtype=np.uint64)
    assert np.bitwise_or.reduce(seeds) == np.uint64(2**64 - 1)
    assert np.bitwise_and.reduce(seeds) == 0
