"""Contracts of looking at a part of a large feature file."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.support import features

from vse.data.layouts import precomp as repetition
from vse.data.layouts.precomp import WINDOW_ROWS, WINDOWS, assign_rows, compare_neighbours
from vse.errors import InputError


class Counting(np.ndarray):
    """An array that notes which rows were taken."""

    def __getitem__(self, index):
        if isinstance(index, int):
            self.taken.add(index)
        return np.asarray(super().__getitem__(index))


@pytest.fixture
def large(monkeypatch):
    """Every file counts as a large one."""
    monkeypatch.setattr(repetition, "COMPLETE_BYTES", 0)


@pytest.mark.parametrize("factor", range(1, 8))
def test_sampled_rows_give_the_repetition(large, factor):
    """Of a large file a bounded number of rows is read, first and last among them, and M is still found."""
    array = np.repeat(features(5000 // factor, 1, 2), factor, axis=0).view(Counting)
    array.taken = set()
    seen = compare_neighbours(array)
    assert seen.factor == factor
    assert not seen.complete
    assert len(array.taken) <= WINDOWS * WINDOW_ROWS
    assert {0, len(array) - 1} <= array.taken


@given(st.integers(1, 1500))
def test_sample_windows_are_inside_the_file(rows):
    """Whatever the number of rows, those compared exist, and each is compared once."""
    positions = list(repetition._windows(max(rows, WINDOW_ROWS)))
    assert len(set(positions)) == len(positions)
    assert min(positions) == 1
    assert max(positions) == max(rows, WINDOW_ROWS) - 1


def test_irregular_repetition_is_refused(large):
    """A row lost half-way makes all later captions belong to the wrong image: that is an error."""
    rows = np.repeat(features(1000, 1, 2), 5, axis=0)
    rows = np.concatenate([rows[:2500], rows[2501:], rows[-1:]])
    with pytest.raises(InputError, match="irregularly"):
        assign_rows(rows, len(rows), None, "test")


def test_sample_of_equal_rows_is_refused(large):
    """A large file of one row over and over is refused without ids, and taken at the word of the ids with them."""
    rows = np.zeros((1000, 1, 2), dtype="float32")
    with pytest.raises(InputError, match="all compared feature rows are equal"):
        assign_rows(rows, 1000, None, "test")
    assert len(assign_rows(rows, 1000, [str(i) for i in range(1000)], "test").rows) == 1000
