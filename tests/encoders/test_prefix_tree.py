"""The tree of prefixes against a dictionary of them."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.encoders.prefix_bigru import Groups, PrefixTree

sentences = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=8)


def padded(rows: list[list[int]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Padding is a word like the others."""
    table = np.full((len(rows), width), 2, dtype=np.int64)
    for row, words in zip(table, rows, strict=True):
        row[: len(words)] = words
    return table, np.array([len(words) for words in rows])


def members(groups: Groups) -> list[list[int]]:
    return [groups.members[a:b].tolist() for a, b in zip(groups.starts[:-1], groups.starts[1:], strict=True)]


@pytest.mark.parametrize("backwards", [False, True])
@given(rows=sentences, extra=st.integers(0, 2))
def test_every_prefix_once_with_all_its_places(backwards, rows, extra):
    """Following the stems from a prefix spells it; each is there once, at its level, with the places where it ends."""
    width = max(map(len, rows)) + extra
    tree = PrefixTree.of(*padded(rows, width), backwards=backwards)
    expected = defaultdict(set)
    for number, row in enumerate(rows):
        read = row[::-1] if backwards else row
        for length in range(1, len(row) + 1):
            last = len(row) - length if backwards else length - 1
            expected[tuple(read[:length])].add(number * width + last)
    found, spelled = {}, []
    for prefix, places in enumerate(members(tree.places)):
        level = int(np.searchsorted(tree.levels, prefix, side="right")) - 1
        before = spelled[tree.levels[level - 1] + tree.stems[prefix]] if level else ()
        spelled.append((*before, int(tree.words[prefix])))
        assert len(spelled[-1]) == level + 1
        found[spelled[-1]] = set(places)
    assert len(found) == len(spelled) == len(tree.words)
    assert found == expected


@given(rows=sentences)
def test_stems_are_the_first_of_the_level_before(rows):
    """A level's stems are the prefixes of the level before that go on, and their children are what extends them."""
    tree = PrefixTree.of(*padded(rows, 6), backwards=False)
    children = members(tree.children)
    for level in range(len(tree.levels) - 1):
        here = range(tree.levels[level], tree.levels[level + 1])
        first, end = tree.stem_levels[level : level + 2]
        assert sorted(chain.from_iterable(children[first:end])) == list(here)
        for stem in range(first, end):
            assert children[stem]
            assert all(tree.stems[child] == stem - first for child in children[stem])
    lengths = {tuple(row) for row in rows}
    stems = {tuple(row[:n]) for row in rows for n in range(len(row))}
    assert tree.stem_levels[-1] == len(stems)
    assert len(tree.words) == len((stems | lengths) - {()})
