"""Right candidates as a sparse list, against sets of Python numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.evaluation import naive

from vse.errors import InputError
from vse.evaluation import Positives, text_positives


@st.composite
def right_sets(draw: st.DrawFn) -> tuple[naive.Right, int]:
    """A set of right candidates for each query, possibly empty, and the number of candidates, possibly zero."""
    candidates = draw(st.integers(0, 12))
    found = st.sets(st.integers(0, candidates - 1)) if candidates else st.just(set())
    return draw(st.lists(found, max_size=8)), candidates


def sets_of(positives: Positives) -> naive.Right:
    return [set(positives.of(q).tolist()) for q in range(positives.queries)]


@given(right_sets())
def test_lists_come_back_as_they_went_in(case):
    """Each query has exactly its candidates, distinct and ascending, in int64."""
    right, candidates = case
    positives = Positives.from_lists([list(found) for found in right], candidates)
    assert (positives.queries, positives.candidates) == (len(right), candidates)
    assert [positives.of(q).tolist() for q in range(len(right))] == [sorted(found) for found in right]
    assert positives.counts.tolist() == [len(found) for found in right]
    assert list(zip(positives.rows.tolist(), positives.columns.tolist(), strict=True)) == [
        (q, c) for q, found in enumerate(right) for c in sorted(found)
    ]
    assert positives.columns.dtype == positives.starts.dtype == np.int64


@given(right_sets(), st.randoms(use_true_random=False))
def test_pairs_may_come_in_any_order_and_twice(case, random):
    """Shuffled and repeated pairs make the same positives."""
    right, candidates = case
    pairs = [(q, c) for q, found in enumerate(right) for c in found] * 2
    random.shuffle(pairs)
    positives = Positives.from_pairs([q for q, _ in pairs], [c for _, c in pairs], (len(right), candidates))
    assert [positives.of(q).tolist() for q in range(len(right))] == [sorted(found) for found in right]


@given(right_sets())
def test_the_transposition_turns_every_pair_around(case):
    """What is right for a query has the query as right, and turning twice changes nothing."""
    right, candidates = case
    positives = Positives.from_lists([list(found) for found in right], candidates)
    assert (positives.T.queries, positives.T.candidates) == (candidates, len(right))
    assert sets_of(positives.T) == naive.seen_from_candidates(right, candidates)
    assert sets_of(positives.T.T) == right


@given(right_sets(), st.data())
def test_a_selection_is_renumbered(case, data):
    """Of chosen queries and candidates, in a chosen order, the pairs between them remain."""
    right, candidates = case
    rows = data.draw(st.lists(st.integers(0, len(right) - 1), unique=True)) if right else []
    columns = data.draw(st.permutations(range(candidates)))[: data.draw(st.integers(0, candidates))]
    chosen = Positives.from_lists([list(found) for found in right], candidates).select(
        np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64)
    )
    assert chosen.candidates == len(columns)
    assert sets_of(chosen) == [{columns.index(c) for c in right[q] if c in columns} for q in rows]


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor, lambda v: np.array(v, dtype=np.uint8)])
def test_texts_find_the_image_they_describe(kind):
    """``text_to_image`` is a list, an array or a tensor of rows; an image may have none, or texts anywhere."""
    positives = text_positives(kind([2, 0, 2, 3, 2]), 5)
    assert sets_of(positives) == [{2}, {0}, {2}, {3}, {2}]
    assert sets_of(positives.T) == [{1}, set(), {0, 2, 4}, {3}, set()]


@pytest.mark.parametrize("empty", [[], np.array([]), np.array([], dtype=np.int64)])
def test_no_texts_are_no_queries(empty):
    """An empty list is valid: there are no texts."""
    positives = text_positives(empty, 3)
    assert (positives.queries, positives.candidates) == (0, 3)
    assert sets_of(positives.T) == [set(), set(), set()]


@pytest.mark.parametrize(
    ("owners", "where"),
    [([0, 3, 1], r"text_to_image\[1\] is 3"), ([0, 1, -1], r"text_to_image\[2\] is -1"), ([99], r"\[0\] is 99")],
)
def test_a_row_outside_the_images_is_named(owners, where):
    """The first bad entry is shown with its place and the valid range."""
    with pytest.raises(InputError, match=rf"{where}: expected 0 to 2"):
        text_positives(owners, 3)


@pytest.mark.parametrize(
    "owners",
    [[0.0, 1.0], [0.5], np.array([True, False]), [[0], [1]], np.int64(1), ["0"], torch.tensor([0.0])],
    ids=["float", "half", "bool", "two-dimensions", "number", "text", "float-tensor"],
)
def test_positives_refuse_invalid_rows(owners):
    """Only whole numbers in one dimension are rows; nothing is rounded."""
    with pytest.raises(InputError, match="text_to_image must be whole numbers in one dimension"):
        text_positives(owners, 3)


def test_pairs_outside_the_shape_are_refused():
    """Queries and candidates are checked each against its own limit, and their numbers against each other."""
    with pytest.raises(InputError, match=r"query\[1\] is 2: expected 0 to 1"):
        Positives.from_pairs([0, 2], [0, 0], (2, 5))
    with pytest.raises(InputError, match=r"candidate\[0\] is 5: expected 0 to 4"):
        Positives.from_pairs([0, 1], [5, 0], (2, 5))
    with pytest.raises(InputError, match=r"candidate\[2\] is -1"):
        Positives.from_lists([[0, 1], [-1]], 5)
    with pytest.raises(InputError, match=r"2 queries and 3 candidates"):
        Positives.from_pairs([0, 1], [1, 2, 3], (2, 5))
