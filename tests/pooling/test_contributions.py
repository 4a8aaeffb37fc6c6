"""What each element adds to the pooled vector: the shares add up, padding has none."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pooling import naive
from tests.pooling.support import RANK_POOLINGS, VARIANTS, build, make_sets, set_batches

from vse.errors import InputError
from vse.pooling import list_poolings
from vse.pooling.functional import has_contributions, pool_with_contributions

DIM = 5
BY_VALUE = [name for name in VARIANTS if "data-dependent" in name]
RANKED = [*RANK_POOLINGS, *(name for name in VARIANTS if name not in BY_VALUE), "frozen"]
UNRANKED = [name for name in list_poolings() if name not in RANK_POOLINGS]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
few = settings(max_examples=10)
ranked = pytest.mark.parametrize("name", RANKED)


@ranked
@given(sets=set_batches(dim=DIM), rubbish=st.sampled_from([0.0, 1e30, float("nan"), float("inf"), float("-inf")]))
@few
@torch.no_grad()
def test_shares_add_up_to_the_pooled_vector(name, sets, rubbish):
    """Summed over the elements they are what the pooling gives; padding has exactly none, whatever it holds."""
    pool = build(name, DIM)
    features = sets.features.masked_fill(~sets.mask.unsqueeze(-1), rubbish)
    pooled, shares = pool_with_contributions(pool, features, sets.mask)
    expected = pool(features, mask=sets.mask)
    assert shares.shape == features.shape
    torch.testing.assert_close(pooled, expected, **CLOSE)
    torch.testing.assert_close(shares.sum(dim=1), expected, **CLOSE)
    assert (shares[~sets.mask] == 0).all()


@ranked
@given(sets=set_batches(dim=DIM))
@few
@torch.no_grad()
def test_without_a_mask_every_element_counts(name, sets):
    """None means that all are valid."""
    pool = build(name, DIM)
    pooled, shares = pool_with_contributions(pool, sets.features, None)
    expected = pool(sets.features)
    torch.testing.assert_close(pooled, expected, **CLOSE)
    torch.testing.assert_close(shares.sum(dim=1), expected, **CLOSE)


@ranked
@given(sets=set_batches(dim=DIM))
@few
@torch.no_grad()
def test_a_share_is_the_value_times_the_weight_of_its_rank(name, sets):
    """Element by element: who is k-th in a dimension gets the k-th coefficient there."""
    pool = build(name, DIM)
    _, shares = pool_with_contributions(pool, sets.features, sets.mask)
    for b, elements in enumerate(naive.each_set(sets.features, sets.mask)):
        weights = pool.coefficients(len(elements)).double()
        weights = weights.unsqueeze(1).expand(-1, DIM) if weights.dim() == 1 else weights
        order = naive.descending_order(elements)
        expected = torch.zeros_like(elements)
        for rank in range(len(elements)):
            for d in range(DIM):
                expected[order[rank, d], d] = weights[rank, d] * elements[order[rank, d], d]
        torch.testing.assert_close(shares[b, sets.mask[b]].double(), expected, **CLOSE)


@torch.no_grad()
def test_contributions_of_max_and_average():
    """Max: the largest alone; average: everybody an equal part."""
    features = torch.tensor([[[1.0, 9.0], [3.0, 2.0], [2.0, 4.0]]])
    _, shares = pool_with_contributions(build("max"), features, None)
    assert shares.tolist() == [[[0, 9], [3, 0], [0, 0]]]
    _, shares = pool_with_contributions(build("avg"), features, None)
    torch.testing.assert_close(shares, features / 3)


@ranked
@torch.no_grad()
def test_contributions_with_ties_sum_to_result(name):
    """Ties are broken somehow; the sum does not mind."""
    pool, features = build(name, DIM), torch.ones(2, 4, DIM)
    pooled, shares = pool_with_contributions(pool, features, None)
    torch.testing.assert_close(shares.sum(dim=1), pooled)
    torch.testing.assert_close(pooled, pool(features), **CLOSE)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@torch.no_grad()
def test_valid_values_that_are_not_finite_are_not_hidden(value):
    """What the pooling says of them, the sum of shares says too: with a mask as without one."""
    pool, sets = build("avg", DIM), make_sets(2, 4, DIM, prefix=True)
    features = sets.features.clone()
    features[0, 0, 1] = value
    full = torch.ones(2, 4, dtype=torch.bool)
    for mask in (None, full, sets.mask):
        pooled, _ = pool_with_contributions(pool, features, mask)
        torch.testing.assert_close(pooled, pool(features, mask=mask), equal_nan=True, **CLOSE)


@pytest.mark.parametrize("name", [*UNRANKED, *BY_VALUE])
def test_other_poolings_have_no_shares(name):
    """They say so, in advance and when asked."""
    pool = build(name, DIM)
    assert not has_contributions(pool)
    with pytest.raises(InputError, match="does not weight ranks" if name in UNRANKED else "depend on the features"):
        pool_with_contributions(pool, torch.rand(1, 2, DIM), None)


@ranked
def test_which_have_shares_is_known_in_advance(name):
    """All that weight ranks by the size of the set alone, and asking changes nothing."""
    pool = build(name, DIM)
    before = {key: value.clone() for key, value in pool.state_dict().items()}
    assert has_contributions(pool)
    assert all(torch.equal(value, before[key]) for key, value in pool.state_dict().items())
