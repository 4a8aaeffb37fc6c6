"""Keyed draws: fixed by the key, within their bounds."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.data.scenes import KeyedRandom
from vse.errors import InputError

NUMBERS = st.integers(0, 2**32 - 1)


def test_keyed_draws_are_pinned():
    """These values may never change: every generated dataset depends on them."""
    rng = KeyedRandom(0, 1, 2)
    assert [rng.below(1000) for _ in range(5)] == [262, 972, 776, 228, 866]
    assert [rng.uniform() for _ in range(2)] == [0.22331273882293146, 0.8379781743320591]
    assert "".join(rng.shuffled("abcdefgh")) == "begfchad"
    assert KeyedRandom(0, 1, 2).permutation(8).tolist() == [5, 3, 0, 7, 2, 6, 4, 1]


@given(st.lists(NUMBERS, max_size=5))
def test_keyed_draws_depend_on_whole_key(key):
    """Appending a number, zero too, gives another stream."""
    stream, longer = KeyedRandom(*key), KeyedRandom(*key, 0)
    assert [stream.below(2**32) for _ in range(4)] != [longer.below(2**32) for _ in range(4)]


@given(NUMBERS, st.integers(1, 10**6), st.floats(-10, 10), st.floats(0.001, 10))
def test_keyed_draws_are_within_bounds(seed, bound, low, width):
    """below(n) is in 0 … n - 1, uniform(a, b) in a … b, and a shuffle keeps every value."""
    rng = KeyedRandom(seed)
    assert 0 <= rng.below(bound) < bound
    assert low <= rng.uniform(low, low + width) <= low + width
    values = [rng.below(5) for _ in range(8)]
    assert Counter(rng.shuffled(values)) == Counter(values)
    assert sorted(rng.permutation(bound % 100)) == list(range(bound % 100))
    assert rng.choice(values) in values
    assert rng.chance(1.0)
    assert not rng.chance(0.0)


def test_keyed_draws_are_uniform():
    """Each of six values comes up about as often, at each place of a shuffle too."""
    rng = KeyedRandom(5)
    thrown = Counter(rng.below(6) for _ in range(6000))
    first = Counter(rng.shuffled(range(6))[0] for _ in range(6000))
    for counts in (thrown, first):
        assert all(850 < counts[value] < 1150 for value in range(6))


@pytest.mark.parametrize("number", [-1, 2**32, 1.0, "1", None, True])
def test_keyed_draw_names_invalid_key(number):
    """Anything but a whole number below 2^32 is refused with its value."""
    with pytest.raises(InputError, match=repr(number).replace("*", r"\*")):
        KeyedRandom(0, number)
