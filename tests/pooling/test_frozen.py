"""A frozen pooling: the table alone pools like the pooling it came from."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pooling import naive
from tests.pooling.support import RANK_POOLINGS, build, make_sets, set_batches

from vse.errors import InputError
from vse.pooling import GPO, FrozenPooling, RankPooling

DIM = 6


@pytest.mark.parametrize("name", [*RANK_POOLINGS, "gpo-per-dimension"])
@given(sets=set_batches(batch=5, total=20, dim=DIM), spare=st.integers(0, 5))
@settings(max_examples=15)
def test_frozen_pooling_matches_live_one(name, sets, spare):
    """For every size in the table the frozen pooling gives the live one's vectors and coefficients to 1e-6."""
    pool = build(name, DIM)
    frozen = pool.freeze(int(sets.sizes.max()) + spare)
    expected, weights = pool(sets.features, mask=sets.mask, return_coefficients=True)
    found, looked_up = frozen(sets.features, mask=sets.mask, return_coefficients=True)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(looked_up, weights, rtol=1e-6, atol=1e-6)


def test_frozen_pooling_matches_every_size_to_100():
    """Sizes 1 to M are all served, alone and unpadded."""
    pool = build("gpo")
    frozen = pool.freeze(100)
    for size in range(1, 101):
        features = torch.randn(1, size, 4)
        torch.testing.assert_close(frozen(features), pool(features), rtol=0, atol=1e-6)
        torch.testing.assert_close(frozen.coefficients(size), pool.coefficients(size), rtol=0, atol=1e-6)


def test_frozen_pooling_has_no_parameters():
    """Nothing to train and no GRU inside: one buffer and no submodule."""
    frozen = GPO().freeze(10)
    assert isinstance(frozen, FrozenPooling)
    assert isinstance(frozen, RankPooling)
    assert list(frozen.parameters()) == []
    assert list(frozen.children()) == []
    assert [name for name, _ in frozen.named_buffers()] == ["coefficient_table"]
    assert frozen.max_size == 10


def test_frozen_pooling_is_independent_of_its_source():
    """Training on after freezing does not change the table."""
    pool = build("gpo")
    frozen, before = pool.freeze(5), pool.coefficients(5)
    with torch.no_grad():
        pool.linear.weight.mul_(-3)
    torch.testing.assert_close(frozen.coefficients(5), before)


def test_gradients_reach_the_features_only():
    """Features get the live pooling's gradient; the table gets none."""
    pool, sets = build("gpo"), make_sets(3, 8, DIM)
    frozen, grads = pool.freeze(8), []
    for module in (pool, frozen):
        features = sets.features.clone().requires_grad_()
        module(features, mask=sets.mask).pow(2).sum().backward()
        grads.append(features.grad)
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-5, atol=1e-6)
    assert not frozen.coefficient_table.requires_grad


@pytest.mark.parametrize("name", ["gpo", "gpo-per-dimension"])
def test_frozen_pooling_state_dict_round_trip(name):
    """Saved and loaded with weights_only into another table of the shape, it pools to the same bits."""
    frozen, file = build(name, DIM).freeze(9), io.BytesIO()
    torch.save(frozen.state_dict(), file)
    file.seek(0)
    other = build(name, DIM, seed=1).freeze(9)
    features = torch.randn(2, 9, DIM)
    assert not torch.equal(other(features), frozen(features))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(features), frozen(features))


def test_freezing_again_shortens_the_table():
    """A frozen pooling has coefficients, table and freeze like any other; a smaller table is its upper corner."""
    frozen = build("gpo").freeze(12)
    torch.testing.assert_close(frozen.freeze(7).coefficient_table, frozen.coefficient_table[:7, :7], rtol=0, atol=0)


@pytest.mark.parametrize("sets", [{}, {"lengths": [13, 4]}, {"mask": torch.ones(2, 13, dtype=torch.bool)}])
def test_a_set_beyond_the_table_is_an_error(sets):
    """By default a larger set is refused; the message names its size, the table's and both ways out."""
    frozen = build("gpo").freeze(12)
    with pytest.raises(InputError, match=r"13.*12.*max_size=13.*beyond='stretch'"):
        frozen(torch.randn(2, 13, 4), **sets)
    with pytest.raises(InputError, match=r"14.*12"):
        frozen.coefficients(14)


def test_padding_beyond_the_table_is_no_error():
    """Only valid elements count: small sets padded past the table are pooled."""
    pool, features = build("gpo"), torch.randn(2, 30, 4)
    found = pool.freeze(12)(features, lengths=[12, 5])
    torch.testing.assert_close(found, pool(features, lengths=[12, 5]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [13, 14, 24, 100])
@pytest.mark.parametrize("max_size", [12, 2])
def test_stretching_keeps_the_sum_and_the_shape(size, max_size):
    """The curve of size M over more ranks is its linear interpolation, scaled so that the sum stays one."""
    frozen = build("gpo").freeze(max_size, beyond="stretch")
    stretched = frozen.coefficients(size)
    assert stretched.shape == (size,)
    torch.testing.assert_close(stretched.sum(), torch.tensor(1.0))
    curve = naive.interpolated(frozen.coefficient_table[-1].double().unsqueeze(1), size).squeeze(1)
    torch.testing.assert_close(stretched.double(), curve / curve.sum(), rtol=1e-4, atol=1e-6)


def test_stretching_a_table_of_one():
    """From a table of size one nothing but the mean can be made."""
    found = build("gpo").freeze(1, beyond="stretch").coefficients(5)
    torch.testing.assert_close(found, torch.full((5,), 0.2))


def test_stretching_touches_larger_sets_only():
    """In one batch, sets within the table are pooled exactly and larger ones by the stretched curve."""
    pool, features = build("gpo"), torch.randn(3, 20, 4)
    frozen = pool.freeze(12, beyond="stretch")
    pooled = frozen(features, lengths=[20, 12, 3])
    torch.testing.assert_close(pooled[1:], pool(features, lengths=[20, 12, 3])[1:], rtol=0, atol=1e-6)
    expected = naive.weighted_sum(features[0].double(), frozen.coefficients(20))
    torch.testing.assert_close(pooled[0].double(), expected, rtol=1e-5, atol=1e-5)


def test_stretching_per_dimension():
    """A table per dimension is stretched dimension by dimension, each keeping its own sum."""
    frozen = build("gpo-per-dimension", DIM).freeze(10, beyond="stretch")
    stretched = frozen.coefficients(25)
    assert stretched.shape == (25, DIM)
    torch.testing.assert_close(stretched.sum(dim=0), frozen.coefficients(10).sum(dim=0), rtol=1e-3, atol=1e-4)


def test_stretching_weights_with_signs():
    """Curves that may add up to nothing are stretched and scaled by the ratio of the sizes."""
    frozen = build("fspool", DIM).freeze(10, beyond="stretch")
    last = frozen.coefficients(10)
    assert (last < 0).any()
    expected = [np.interp(np.linspace(0, 9, 25), np.arange(10), last[:, d]) * 10 / 25 for d in range(DIM)]
    found = frozen.coefficients(25)
    torch.testing.assert_close(found, torch.tensor(np.stack(expected, axis=1), dtype=found.dtype))


def test_per_dimension_table():
    """A pooling with coefficients per dimension freezes to a table (M, M, D)."""
    frozen = build("gpo-per-dimension", DIM).freeze(7)
    assert frozen.coefficient_table.shape == (7, 7, DIM)
    with pytest.raises(InputError, match=str(DIM + 1)):
        frozen(torch.randn(2, 7, DIM + 1))


def test_data_dependent_gpo_refuses_to_freeze():
    """What depends on the features cannot be a table of sizes."""
    with pytest.raises(InputError, match="data-dependent"):
        build("gpo-data-dependent", DIM).freeze(5)


@pytest.mark.parametrize("shape", [(3,), (3, 4), (0, 0), (2, 2, 2, 2)])
def test_a_table_of_another_shape_is_refused(shape):
    """The message names the shape that was given."""
    with pytest.raises(InputError, match=r"\(M, M\)"):
        FrozenPooling(torch.zeros(shape))


def test_freezing_keeps_the_finite_check():
    """A pooling built to check for NaN still checks when frozen."""
    frozen = GPO(check_finite=True).freeze(5)
    with pytest.raises(InputError, match="not finite"):
        frozen(torch.full((1, 3, 4), float("nan")))
