"""Padding is nothing: what every pooling has in common about elements that are not valid, and about order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pooling.support import ALL, ORDER_MATTERS, RANK_POOLINGS, build, make_sets, random_mask, set_batches
from torch import Tensor

DIM = 6
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
RUBBISH = [0.0, 1e30, -1e30, float("nan"), float("inf"), float("-inf")]

poolings = pytest.mark.parametrize("name", ALL)
few = settings(max_examples=5)


def alone(pool: torch.nn.Module, sets: list[Tensor]) -> Tensor:
    """Each set pooled by itself, without padding."""
    return torch.cat([pool(elements) for elements in sets])


@poolings
@given(sets=set_batches(dim=DIM))
@few
def test_a_set_in_a_batch_is_the_set_alone(name, sets):
    """Any mask, any padding and any company give what the compacted set gives alone."""
    pool = build(name, DIM)
    torch.testing.assert_close(pool(sets.features, mask=sets.mask), alone(pool, sets.compacted()), **TOLERANCE)


@poolings
@given(sets=set_batches(dim=DIM), extra=st.integers(1, 9), rubbish=st.sampled_from(RUBBISH))
@few
def test_more_padding_changes_nothing(name, sets, extra, rubbish):
    """However much padding follows, and whatever it holds, the result is the same."""
    pool = build(name, DIM)
    features = torch.nn.functional.pad(sets.features, (0, 0, 0, extra), value=rubbish)
    mask = torch.nn.functional.pad(sets.mask, (0, extra), value=False)
    torch.testing.assert_close(pool(features, mask=mask), pool(sets.features, mask=sets.mask), **TOLERANCE)


@poolings
@given(sets=set_batches(dim=DIM), data=st.data())
@few
def test_contents_of_padding_change_nothing(name, sets, data):
    """Not a bit of the result depends on what padded elements hold, NaN and infinities included."""
    pool = build(name, DIM)
    seed = data.draw(st.integers(0, 2**31 - 1))
    choice = torch.randint(0, len(RUBBISH), sets.features.shape, generator=torch.Generator().manual_seed(seed))
    filled = torch.where(sets.mask.unsqueeze(-1), sets.features, torch.tensor(RUBBISH)[choice])
    torch.testing.assert_close(pool(filled, mask=sets.mask), pool(sets.features, mask=sets.mask), rtol=0, atol=0)


@pytest.mark.parametrize("name", [*RANK_POOLINGS, "gpo-per-dimension", "frozen"])
def test_contents_of_padding_change_nothing_on_the_fast_path(name):
    """The same holds for batches large enough for the compiled network, gradients included."""
    pool, sets = build(name, 300), make_sets(4, 20, 300)
    outcomes = []
    for value in (0.0, float("nan"), float("inf"), float("-inf")):
        features = sets.features.masked_fill(~sets.mask.unsqueeze(-1), value).requires_grad_()
        pooled = pool(features, mask=sets.mask)
        pooled.sum().backward()
        assert (features.grad[~sets.mask] == 0).all()
        outcomes.append((pooled.detach(), features.grad))
    for pooled, grad in outcomes[1:]:
        torch.testing.assert_close(pooled, outcomes[0][0], rtol=0, atol=0)
        torch.testing.assert_close(grad, outcomes[0][1], rtol=0, atol=0)


@poolings
@given(sets=set_batches(batch=5, dim=DIM), data=st.data())
@few
def test_other_sets_change_nothing(name, sets, data):
    """Replacing the other sets of a batch, or reordering the batch, leaves a set's vector as it was."""
    pool = build(name, DIM)
    pooled = pool(sets.features, mask=sets.mask)
    seed = data.draw(st.integers(0, 2**31 - 1))
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(pooled), generator=generator)
    torch.testing.assert_close(pool(sets.features[order], mask=sets.mask[order]), pooled[order], **TOLERANCE)
    others, mask = torch.randn(sets.features.shape, generator=generator), random_mask(*sets.mask.shape, generator)
    others[0], mask[0] = sets.features[0], sets.mask[0]
    torch.testing.assert_close(pool(others, mask=mask)[0], pooled[0], **TOLERANCE)


@poolings
@given(sets=set_batches(dim=DIM, prefix=True))
@few
def test_lengths_are_a_prefix_mask(name, sets):
    """lengths=n and a mask of the first n are the same call, exactly."""
    pool = build(name, DIM)
    expected = pool(sets.features, mask=sets.mask)
    torch.testing.assert_close(pool(sets.features, lengths=sets.sizes), expected, rtol=0, atol=1e-6)


@poolings
def test_all_valid_three_ways(name):
    """No mask, full lengths and a full mask mean the same."""
    pool, sets = build(name, DIM), make_sets(3, 7, DIM)
    expected = pool(sets.features)
    torch.testing.assert_close(pool(sets.features, lengths=[7, 7, 7]), expected, **TOLERANCE)
    torch.testing.assert_close(pool(sets.features, mask=torch.ones(3, 7, dtype=torch.bool)), expected, **TOLERANCE)


@pytest.mark.parametrize("name", [name for name in ALL if name not in ORDER_MATTERS])
@given(sets=set_batches(dim=DIM), data=st.data())
@few
def test_order_does_not_matter(name, sets, data):
    """A set has no order: permuting its elements, padding among them, leaves its vector as it was."""
    pool = build(name, DIM)
    seed = data.draw(st.integers(0, 2**31 - 1))
    order = torch.randperm(sets.mask.shape[1], generator=torch.Generator().manual_seed(seed))
    found = pool(sets.features[:, order], mask=sets.mask[:, order])
    torch.testing.assert_close(found, pool(sets.features, mask=sets.mask), **TOLERANCE)


@pytest.mark.parametrize("name", sorted(ORDER_MATTERS))
def test_order_matters_where_it_should(name):
    """The poolings that read a sequence see its order."""
    pool, sets = build(name, DIM), make_sets(2, 7, DIM)
    assert (pool(sets.features) - pool(sets.features.flip(1))).abs().max() > 1e-3


@poolings
def test_set_of_one_pools_alike_alone_and_padded(name):
    """A set of one is pooled, alone and beside larger sets, to the same finite vector."""
    pool, features = build(name, DIM), make_sets(3, 5, DIM).features.abs() + 0.1
    pooled = pool(features, lengths=[1, 5, 1])
    assert pooled.isfinite().all()
    torch.testing.assert_close(pooled[[0, 2]], pool(features[[0, 2], :1]), **TOLERANCE)


@pytest.mark.parametrize("name", ["avg", "max", "k-max", "top-percent", "linear", "gem", "cls", "gpo", "frozen"])
def test_normalised_poolings_return_single_element(name):
    """Poolings whose weights add up to one return the element of a set of one itself."""
    features = torch.rand(3, 1, DIM) + 0.1
    torch.testing.assert_close(build(name, DIM)(features), features[:, 0])


@poolings
@pytest.mark.parametrize("total", [5, 0])
@pytest.mark.parametrize("given_as", ["nothing", "lengths", "mask"])
def test_an_empty_batch_gives_an_empty_batch(name, total, given_as):
    """No sets in, no vectors out: (0, N, D) becomes (0, D), backward pass included."""
    features = torch.empty(0, total, DIM, requires_grad=True)
    sets = {
        "nothing": {},
        "lengths": {"lengths": torch.empty(0, dtype=torch.int64)},
        "mask": {"mask": torch.empty(0, total, dtype=torch.bool)},
    }[given_as]
    pooled = build(name, DIM)(features, **sets)
    assert pooled.shape == (0, DIM)
    assert pooled.dtype == features.dtype
    if pooled.requires_grad:
        pooled.sum().backward()


@poolings
@given(sets=set_batches(dim=DIM), rubbish=st.sampled_from(RUBBISH))
@few
def test_padding_gets_no_gradient(name, sets, rubbish):
    """The gradient of padded elements is exactly zero, and that of valid ones what the sets get alone."""
    pool = build(name, DIM)
    features = sets.features.masked_fill(~sets.mask.unsqueeze(-1), rubbish).requires_grad_()
    pool(features, mask=sets.mask).pow(2).sum().backward()
    assert (features.grad[~sets.mask] == 0).all()
    for b, elements in enumerate(sets.compacted()):
        leaf = elements.clone().requires_grad_()
        pool(leaf).pow(2).sum().backward()
        torch.testing.assert_close(features.grad[b, sets.mask[b]], leaf.grad[0], rtol=1e-3, atol=1e-4)


@poolings
@pytest.mark.parametrize("rubbish", [float("nan"), float("inf")])
def test_padding_does_not_reach_parameters(name, rubbish):
    """Parameters get the same finite gradients whatever the padding holds."""
    sets = make_sets(4, 9, DIM, seed=11)
    grads = []
    for value in (0.0, rubbish):
        pool = build(name, DIM)
        features = sets.features.masked_fill(~sets.mask.unsqueeze(-1), value).requires_grad_()
        pool(features, mask=sets.mask).sum().backward()
        grads.append({key: parameter.grad for key, parameter in pool.named_parameters()})
    for key, expected in grads[0].items():
        assert expected.isfinite().all(), key
        torch.testing.assert_close(grads[1][key], expected, rtol=0, atol=0, msg=key)
