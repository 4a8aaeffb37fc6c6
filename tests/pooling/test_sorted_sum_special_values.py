"""NaN and infinities in the sorted weighted sum: -inf < numbers < +inf < NaN on both paths, forward and backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.pooling import naive
from tests.pooling.support import random_mask
from torch import Tensor

from vse.pooling import sorted_weighted_sum

NAN, INF = float("nan"), float("inf")
PATHS = ["plain", "network"]


@pytest.fixture(autouse=True)
def _numba() -> None:
    pytest.importorskip("numba")


def spiked(shape: tuple[int, ...], values: list[float], generator: torch.Generator, share: float) -> Tensor:
    """Random numbers with special values strewn in."""
    features = torch.randn(shape, generator=generator, dtype=torch.float64)
    where = torch.rand(shape, generator=generator) < share
    choice = torch.tensor(values, dtype=torch.float64)[torch.randint(0, len(values), shape, generator=generator)]
    return torch.where(where, choice, features)


@pytest.mark.parametrize("path", PATHS)
@given(
    total=st.integers(1, 20),
    values=st.sampled_from([[NAN], [INF], [-INF], [INF, -INF], [NAN, INF, -INF]]),
    share=st.sampled_from([0.1, 0.5, 1.0]),
    masked=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=60)
def test_sorted_sum_forward_follows_ieee(path, total, values, share, masked, dtype, seed):
    """The sum has NaN and infinities exactly where sorting and IEEE arithmetic put them."""
    generator = torch.Generator().manual_seed(seed)
    features = spiked((3, total, 9), values, generator, share).to(dtype)
    weights = torch.rand(total, generator=generator, dtype=torch.float64).to(dtype)
    mask = random_mask(3, total, generator) if masked else None
    expected = naive.over_batch(lambda elements: naive.weighted_sum(elements, weights), features, mask)
    found = sorted_weighted_sum(features, weights, mask, path=path)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("per_dimension", [False, True])
@given(
    total=st.integers(1, 12),
    values=st.sampled_from([[NAN], [INF], [-INF], [INF, -INF], [NAN, INF, -INF]]),
    share=st.sampled_from([0.2, 0.7, 1.0]),
    masked=st.booleans(),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=40)
def test_gradients_go_by_the_same_order(path, per_dimension, total, values, share, masked, seed):
    """NaN takes the first ranks in the backward pass too; equal special values share the ranks they occupy.

    The plain path alone cannot tell a valid -inf from padding, and says so.
    """
    assume(not (path == "plain" and masked and -INF in values))
    generator = torch.Generator().manual_seed(seed)
    features = spiked((2, total, 4), values, generator, share).requires_grad_()
    shape = (2, total, 4) if per_dimension else (2, total)
    weights = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    mask = random_mask(2, total, generator) if masked else torch.ones(2, total, dtype=torch.bool)
    upstream = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    sorted_weighted_sum(features, weights, mask, path=path).backward(upstream)
    for b in range(2):
        elements, grads = features.detach()[b, mask[b]], features.grad[b, mask[b]]
        assert (features.grad[b, ~mask[b]] == 0).all()
        ordered = naive.sort_descending(elements)
        products = ordered * upstream[b]
        expected = products if per_dimension else products.sum(dim=1)
        torch.testing.assert_close(weights.grad[b, : len(elements)], expected, equal_nan=True)
        for d in range(4):
            for level in set(ordered[:, d].nan_to_num(nan=99.0, posinf=98.0, neginf=-98.0).tolist()):
                at_rank = ordered[:, d].nan_to_num(nan=99.0, posinf=98.0, neginf=-98.0) == level
                at_element = elements[:, d].nan_to_num(nan=99.0, posinf=98.0, neginf=-98.0) == level
                theta = weights.detach()[b, : len(elements)][at_rank]
                theta = theta[:, d] if per_dimension else theta
                expected = (theta * upstream[b, d]).sort().values
                torch.testing.assert_close(grads[at_element, d].sort().values, expected)


@pytest.mark.parametrize("path", PATHS)
def test_a_nan_stays_in_its_dimension(path):
    """A NaN spoils its own sum and the gradient of its own weight, and nothing else."""
    features = torch.randn(3, 6, 10)
    clean = sorted_weighted_sum(features, torch.ones(6), path=path)
    features[1, 4, 7] = NAN
    features.requires_grad_()
    weights = torch.ones(3, 6, requires_grad=True)
    out = sorted_weighted_sum(features, weights, path=path)
    out.nan_to_num().sum().backward()
    assert out[1, 7].isnan()
    others = torch.ones(3, 10, dtype=torch.bool)
    others[1, 7] = False
    torch.testing.assert_close(out[others], clean[others])
    assert features.grad.isfinite().all()
    assert weights.grad.isnan().nonzero().tolist() == [[1, 0]]


@pytest.mark.parametrize("path", PATHS)
def test_zero_times_infinity_is_nan(path):
    """A zero weight does not hide an infinite value: the product is NaN, as IEEE says."""
    features = torch.zeros(1, 3, 8)
    features[0, 1] = INF
    assert sorted_weighted_sum(features, torch.tensor([0.0, 1.0, 0.0]), path=path).isnan().all()
    assert (sorted_weighted_sum(features, torch.tensor([1.0, 0.0, 0.0]), path=path) == INF).all()


@pytest.mark.parametrize("path", PATHS)
def test_negative_zero_and_extremes_survive(path):
    """The largest and smallest numbers of the dtype pass through unharmed."""
    info = torch.finfo(torch.float32)
    column = torch.tensor([info.max, info.tiny, -info.tiny, info.min, 0.0, -0.0])
    features = column[torch.randperm(6)].view(1, 6, 1).expand(1, 6, 8)
    ordered = sorted(column.tolist(), reverse=True)
    for rank in range(6):
        weights = torch.zeros(6)
        weights[rank] = 1.0
        assert (sorted_weighted_sum(features, weights, path=path) == ordered[rank]).all()
