"""Exact search over a matrix: the proposed rows include every row that could be among the best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import directions

from vse.index.scoring import exact_scores
from vse.index.storage import STORAGES, Storage, encode
from vse.index.store import scan


@pytest.mark.parametrize("small", [0, scan.SMALL])
@given(
    st.integers(1, 3000), st.sampled_from([1, 3, 8, 40]), st.integers(1, 30), st.integers(1, 400),
    st.floats(0, 1), st.integers(0, 2**32), st.sampled_from(STORAGES),
)  # fmt: skip
def test_the_best_rows_are_proposed(
    small: int, rows: int, dimensions: int, k: int, distinct: int, part: float, seed: int, storage: Storage
) -> None:
    """All rows at or above the k-th exact score, however many vectors are equal; with FAISS too."""
    random = np.random.default_rng(seed)
    matrix = encode(directions(distinct, dimensions, seed), storage)[random.integers(0, distinct, rows)]
    query = directions(1, dimensions, seed + 1)[0]
    allowed = None if part == 1 else random.random(rows) < part
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "SMALL", small)
        patch.setattr(scan, "SCAN_BLOCK", 700)
        proposed = scan.propose(matrix, query, k, allowed)
    scores = exact_scores(matrix, np.arange(rows), query)
    candidates = np.arange(rows) if allowed is None else np.flatnonzero(allowed)
    best = np.sort(scores[candidates])[::-1][:k]
    needed = candidates[scores[candidates] >= best[-1]] if len(best) else candidates
    assert np.isin(needed, proposed).all()
    assert np.isin(proposed, candidates).all()
    assert len(set(proposed.tolist())) == len(proposed)


@pytest.mark.parametrize("dimensions", [1, 7, 256, 1000])
def test_a_score_depends_on_its_two_vectors_alone(dimensions: int) -> None:
    """Bit-identical wherever the vector is and whatever is beside it, and close to the true value."""
    query, vector = directions(2, dimensions, seed=4)
    expected = exact_scores(vector[None], np.arange(1), query)[0]
    assert expected == pytest.approx(sum(float(a) * float(b) for a, b in zip(query, vector, strict=True)), abs=6e-8)
    many = directions(9000, dimensions, seed=6)
    places = [0, 1, 2, 3, 100, 8190, 8191, 8192, 8999]
    many[places] = vector
    assert set(exact_scores(many, np.arange(9000), query)[places].tolist()) == {float(expected)}
    assert set(exact_scores(many, np.array(places), query).tolist()) == {float(expected)}
