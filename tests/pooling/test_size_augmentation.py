"""Size augmentation: elements are dropped at random, never all of them, and what stays keeps its order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.pooling.support import make_sets, set_batches

from vse.errors import InputError
from vse.pooling import SizeAugmentation, drop_elements


def numbered(batch: int, total: int) -> torch.Tensor:
    """Features that carry their own position, 1 to N, so that an element can be recognised."""
    return torch.arange(1.0, total + 1).view(1, total, 1).expand(batch, total, 2).contiguous()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(sets=set_batches(batch=6), rate=st.sampled_from([0.0, 0.2, 0.7, 0.99]), seed=st.integers(0, 2**31 - 1))
def test_dropping_keeps_a_subsequence(sets, rate, seed):
    """Each set keeps at least one element; the kept ones are valid ones in their order, at the front, zeros behind."""
    features = numbered(*sets.mask.shape)
    kept, mask = drop_elements(features, sets.mask, rate, seeded(seed))
    assert kept.shape == (len(features), mask.shape[1], 2)
    assert mask.shape[1] == mask.sum(dim=1).max()
    for b in range(len(features)):
        count = int(mask[b].sum())
        assert 1 <= count <= sets.sizes[b]
        assert mask[b, :count].all()
        positions = kept[b, :count, 0].long() - 1
        assert (positions.diff() > 0).all()
        assert sets.mask[b, positions].all()
        assert (kept[b, count:] == 0).all()


@given(sets=set_batches(), seed=st.integers(0, 2**31 - 1))
def test_rate_zero_only_closes_gaps(sets, seed):
    """At rate 0 every valid element stays."""
    kept, mask = drop_elements(sets.features, sets.mask, 0.0, seeded(seed))
    for b, elements in enumerate(sets.compacted()):
        torch.testing.assert_close(kept[b, mask[b]], elements[0], rtol=0, atol=0)


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("masked", [False, True])
def test_each_element_goes_with_the_given_probability(rate, masked):
    """The number kept, in all and at every position, lies within six standard deviations of its expectation."""
    batch, total = 2000, 30
    mask = (torch.arange(total) % 3 > 0).expand(batch, total) if masked else None
    kept, keep_mask = drop_elements(numbered(batch, total), mask, rate, seeded(1))
    positions = kept[..., 0][keep_mask].long() - 1
    counts = torch.bincount(positions, minlength=total).double()
    valid = torch.ones(total, dtype=torch.bool) if mask is None else mask[0]
    deviation = (batch * rate * (1 - rate)) ** 0.5
    spared = batch * rate ** int(valid.sum())  # sets that would have lost everything keep one
    assert (counts[~valid] == 0).all()
    assert ((counts[valid] - batch * (1 - rate)).abs() <= 6 * deviation + spared).all()
    number = int(valid.sum())
    assert abs(counts.sum() - number * batch * (1 - rate)) <= 6 * deviation * number**0.5 + spared


def test_elements_are_dropped_independently():
    """Whether one element stays says nothing about its neighbour or about the same element of another set."""
    batch = 4000
    _, mask = drop_elements(numbered(batch, 2), None, 0.5, seeded(2))
    both = (mask.sum(dim=1) == 2).double().mean()
    assert abs(both - 0.25) < 6 * (0.25 * 0.75 / batch) ** 0.5
    wide, wide_mask = drop_elements(numbered(2, batch), None, 0.5, seeded(3))
    stays = [set(wide[b, wide_mask[b], 0].long().tolist()) for b in range(2)]
    assert abs(len(stays[0] & stays[1]) / batch - 0.25) < 6 * (0.25 * 0.75 / batch) ** 0.5


def test_the_spared_element_is_chosen_uniformly():
    """Where all would go, each valid element is the one that stays equally often, and no padded one ever is."""
    batch, mask = 6000, torch.tensor([True, False, True, True, False, True])
    kept, keep_mask = drop_elements(numbered(batch, 6), mask.expand(batch, 6), 0.999, seeded(4))
    alone = keep_mask.sum(dim=1) == 1
    counts = torch.bincount(kept[alone, 0, 0].long() - 1, minlength=6).double()
    assert (counts[~mask] == 0).all()
    share = alone.sum() / 4
    assert ((counts[mask] - share).abs() < 6 * (share * 0.75) ** 0.5).all()


def test_at_least_one_stays_at_any_rate():
    """Even at a rate of 0.99, and in sets of one, nobody is left empty."""
    _, mask = drop_elements(numbered(500, 3), torch.tensor([True, False, False]).expand(500, 3), 0.99, seeded(5))
    assert mask.all()
    assert mask.shape == (500, 1)
    _, mask = drop_elements(numbered(500, 4), None, 0.99, seeded(6))
    assert mask.any(dim=1).all()


def test_dropping_is_determined_by_generator():
    """One seed, one outcome; another seed, another; the global generator is neither read nor moved."""
    features = numbered(20, 10)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = drop_elements(features, None, 0.3, seeded(7))
    torch.manual_seed(1)
    again = drop_elements(features, None, 0.3, seeded(7))
    other = drop_elements(features, None, 0.3, seeded(8))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[1], other[1][:, : first[1].shape[1]])
    torch.manual_seed(0)
    drop_elements(features, None, 0.3, seeded(7))
    assert torch.equal(torch.get_rng_state(), state)


def test_without_a_generator_the_global_one_decides():
    """torch.manual_seed makes the augmentation repeat itself."""
    features = numbered(20, 10)
    outcomes = []
    for _ in range(2):
        torch.manual_seed(9)
        outcomes.append(drop_elements(features)[0])
    assert torch.equal(*outcomes)


@pytest.mark.parametrize("given_as", ["nothing", "lengths", "mask"])
def test_evaluation_mode_changes_nothing(given_as):
    """In evaluation mode features and mask come back as they were; in training mode elements go."""
    sets, layer = make_sets(50, 9, 3, prefix=True), SizeAugmentation(0.5)
    call = {"nothing": {}, "lengths": {"lengths": sets.sizes}, "mask": {"mask": sets.mask}}[given_as]
    expected = torch.ones_like(sets.mask) if given_as == "nothing" else sets.mask
    features, mask = layer.eval()(sets.features, **call)
    assert features is sets.features
    assert mask is None or torch.equal(mask, expected)
    assert mask is not None or expected.all()
    _, mask = layer.train()(sets.features, **call, generator=seeded(1))
    assert mask.sum() < expected.sum()


def test_size_augmentation_layer_matches_function():
    """In training mode the layer is drop_elements at its rate."""
    sets = make_sets(6, 9, 3)
    found = SizeAugmentation(0.4)(sets.features, mask=sets.mask, generator=seeded(3))
    expected = drop_elements(sets.features, sets.mask, 0.4, seeded(3))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert SizeAugmentation().rate == 0.2


def test_gradients_reach_the_kept_elements():
    """Kept elements get the gradient of their new place, dropped and padded ones none."""
    sets = make_sets(5, 9, 3)
    features = sets.features.requires_grad_()
    kept, mask = drop_elements(features, sets.mask, 0.5, seeded(4))
    kept[mask].sum().backward()
    assert set(features.grad.unique().tolist()) == {0.0, 1.0}
    assert (features.grad[~sets.mask] == 0).all()
    assert features.grad[..., 0].sum() == mask.sum()


def test_dropping_ignores_nan_in_padding():
    """NaN in padded elements does not come out."""
    features = torch.full((3, 6, 2), float("nan"))
    features[:, 1:4] = 1.0
    kept, _ = drop_elements(
        features, torch.tensor([False, True, True, True, False, False]).expand(3, 6), 0.5, seeded(5)
    )
    assert kept.isfinite().all()


def test_an_empty_batch_stays_empty():
    """No sets in, no sets out."""
    kept, mask = drop_elements(torch.empty(0, 5, 3))
    assert kept.shape[0] == mask.shape[0] == 0
    assert kept.shape[2] == 3


def test_drop_elements_refuses_bad_sets():
    """The layer checks its sets as a pooling does, in either mode."""
    for layer in (SizeAugmentation(), SizeAugmentation().eval()):
        with pytest.raises(InputError, match=r"lengths\[0\] is 0"):
            layer(torch.randn(1, 3, 2), lengths=[0])
