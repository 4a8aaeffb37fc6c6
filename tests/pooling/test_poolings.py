"""Each named pooling against its naive definition."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pooling import naive
from tests.pooling.support import NAMES, OPTIONS, RANK_POOLINGS, build, make_sets, set_batches
from torch import Tensor

from vse.errors import InputError
from vse.pooling import FSPool, KMaxPool, LinearDecayPool, RankPooling, TopPercentPool, create_pooling

DIM = 6


def definitions(pool: torch.nn.Module) -> dict[str, Callable[[Tensor], Tensor]]:
    """What each name means for one set, with the parameters of ``pool``."""
    own = dict(pool.state_dict())

    def ranked(coefficients: Callable[..., list[float]], *arguments: float) -> Callable[[Tensor], Tensor]:
        return lambda x: naive.weighted_sum(x, torch.tensor(coefficients(len(x), *arguments), dtype=torch.float64))

    def related(x: Tensor) -> Tensor:
        blocks = len({key.split(".")[1] for key in own if key.startswith("blocks.")})
        for block in range(blocks):
            x = naive.relation_block(x, own, f"blocks.{block}.")
        return x

    return {
        "avg": ranked(naive.coefficients_of_mean),
        "max": ranked(naive.coefficients_of_max),
        "k-max": ranked(naive.coefficients_of_k_max, OPTIONS["k-max"]["k"]),
        "top-percent": ranked(naive.coefficients_of_top_percent, OPTIONS["top-percent"]["percent"]),
        "linear": ranked(naive.coefficients_of_linear_decay),
        "gem": lambda x: naive.gem(x, 3.0),
        "fspool": lambda x: naive.weighted_sum(x, naive.interpolated(own["weight"].double(), len(x))),
        "cls": lambda x: x[0],
        "self-attention": lambda x: naive.self_attention(x, own),
        "seq2seq": lambda x: naive.seq2seq(x, own),
        "gcn-avg": lambda x: related(x).mean(dim=0),
        "gcn-seq2seq": lambda x: naive.seq2seq(related(x), own, "readout.gru."),
        "gpo": lambda x: naive.gpo(x, own),
    }


@pytest.mark.parametrize("name", NAMES)
@given(sets=set_batches(batch=3, total=9, dim=DIM))
@settings(max_examples=12)
def test_poolings_follow_the_definition(name, sets):
    """The pooled vector of each set is that of the definition, whatever the mask."""
    pool = build(name, DIM)
    expected = naive.over_batch(definitions(pool)[name], sets.features, sets.mask)
    found = pool(sets.features, mask=sets.mask)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_pooling_gradients_follow_the_definition(name):
    """The features' gradients are those that autograd finds through the definition."""
    pool, sets = build(name, DIM), make_sets(4, 9, DIM, seed=5)
    upstream = torch.randn(4, DIM, generator=torch.Generator().manual_seed(6))
    features = sets.features.clone().requires_grad_()
    pool(features, mask=sets.mask).backward(upstream)
    exact = sets.features.double().requires_grad_()
    naive.over_batch(definitions(pool)[name], exact, sets.mask).backward(upstream.double())
    torch.testing.assert_close(features.grad.double(), exact.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", RANK_POOLINGS)
@pytest.mark.parametrize("size", [1, 2, 7, 36])
def test_rank_poolings_are_their_coefficients(name, size):
    """A pooling by rank is the sorted values weighted by coefficients(N), and returns those coefficients on request."""
    pool, features = build(name, DIM), torch.randn(3, size, DIM)
    assert isinstance(pool, RankPooling)
    theta = pool.coefficients(size)
    expected = naive.over_batch(lambda x: naive.weighted_sum(x, theta), features)
    pooled, returned = pool(features, return_coefficients=True)
    torch.testing.assert_close(pooled.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(pool(features), pooled, rtol=0, atol=1e-6)
    torch.testing.assert_close(returned, theta.expand(3, *theta.shape))


@pytest.mark.parametrize("name", RANK_POOLINGS)
def test_rank_poolings_have_a_table(name):
    """Row n-1 of table(M) is coefficients(n) and zeros."""
    pool = build(name, DIM)
    table = pool.table(9)
    for size in range(1, 10):
        torch.testing.assert_close(table[size - 1, :size], pool.coefficients(size))
        assert (table[size - 1, size:] == 0).all()


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(RANK_POOLINGS)))
def test_other_poolings_have_no_coefficients(name):
    """A pooling that does not weight ranks has no coefficients to ask for."""
    assert not isinstance(build(name, DIM), RankPooling)
    with pytest.raises(TypeError):
        build(name, DIM)(torch.randn(1, 3, DIM), return_coefficients=True)


@given(size=st.integers(1, 300), k=st.integers(1, 320))
def test_k_max_counts(size, k):
    """K-max weights the K largest alike, and all of them when K exceeds the set."""
    expected = torch.tensor(naive.coefficients_of_k_max(size, k))
    torch.testing.assert_close(KMaxPool(k).coefficients(size), expected)


@given(size=st.integers(1, 300), percent=st.one_of(st.integers(1, 100), st.floats(0.1, 100)))
def test_top_percent_counts(size, percent):
    """Top-K% weights max(1, round(N K / 100)) values alike, a half rounded to even as Python's round does."""
    expected = torch.tensor(naive.coefficients_of_top_percent(size, percent))
    torch.testing.assert_close(TopPercentPool(percent).coefficients(size), expected)


@pytest.mark.parametrize(
    ("size", "percent", "kept"), [(1, 1, 1), (5, 50, 2), (7, 50, 4), (3, 50, 2), (10, 4, 1), (36, 100, 36)]
)
def test_top_percent_by_hand(size, percent, kept):
    """Five halves round to two, seven halves to four, and one value always stays."""
    assert int((TopPercentPool(percent).coefficients(size) > 0).sum()) == kept


@given(size=st.integers(1, 300))
def test_linear_decay_counts(size):
    """Weights fall in a straight line from the largest value to exactly zero at the smallest; a set of one gets one."""
    found = LinearDecayPool().coefficients(size)
    torch.testing.assert_close(found, torch.tensor(naive.coefficients_of_linear_decay(size)))
    assert (found[-1] == 0) == (size > 1)


@given(size=st.integers(1, 60), knots=st.integers(2, 30), seed=st.integers(0, 2**31 - 1))
def test_fspool_interpolates_its_knots(size, knots, seed):
    """FSPool's weights are its knots stretched over the ranks; a set of one sits on the first knot."""
    pool = FSPool(3, knots)
    torch.nn.init.normal_(pool.weight, generator=torch.Generator().manual_seed(seed))
    expected = naive.interpolated(pool.weight.detach().double(), size)
    torch.testing.assert_close(pool.coefficients(size).double(), expected, rtol=1e-4, atol=1e-4)


def test_fspool_has_21_knots_that_meet_the_ranks():
    """By default there are 21 knots a dimension; a set of 21 uses each once, a set of 11 every other one."""
    pool = FSPool(4)
    assert pool.weight.shape == (21, 4)
    torch.testing.assert_close(pool.coefficients(21), pool.weight.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(pool.coefficients(11), pool.weight.detach()[::2], rtol=1e-5, atol=1e-5)


def test_the_average_of_vse_plus_plus():
    """avg and max of a small set, by hand."""
    features = torch.tensor([[[1.0, -4.0], [3.0, 2.0], [100.0, 100.0]]])
    assert create_pooling("avg")(features, lengths=[2]).tolist() == [[2.0, -1.0]]
    assert create_pooling("max")(features, lengths=[2]).tolist() == [[3.0, 2.0]]


def test_maxima_that_are_equal_share_the_gradient():
    """The gradient of a tied maximum is split evenly, none of it lost."""
    features = torch.tensor([[[2.0], [2.0], [1.0], [2.0]]], requires_grad=True)
    create_pooling("max")(features, lengths=[3]).sum().backward()
    assert features.grad.flatten().tolist() == [0.5, 0.5, 0.0, 0.0]


def test_data_dependent_gpo_has_coefficients_only_with_features():
    """coefficients, table and freeze refuse and point to return_coefficients."""
    pool = build("gpo-data-dependent", DIM)
    for ask in (pool.coefficients, pool.table, pool.freeze):
        with pytest.raises(InputError, match=r"data-dependent.*return_coefficients"):
            ask(5)


class TestGeM:
    """The generalized mean, stable where the direct formula is not."""

    @given(p=st.floats(0.05, 12), size=st.integers(1, 12), seed=st.integers(0, 2**31 - 1))
    def test_gem_equals_direct_formula(self, p, size, seed):
        """Where the direct formula is finite, both agree."""
        features = torch.rand(2, size, DIM, generator=torch.Generator().manual_seed(seed)) * 3
        expected = naive.over_batch(lambda x: naive.gem(x, p), features)
        found = create_pooling("gem", p=p)(features)
        torch.testing.assert_close(found.double(), expected, rtol=2e-4, atol=1e-6)

    @pytest.mark.parametrize("p", [0.01, 3.0, 50.0, 1000.0])
    @pytest.mark.parametrize("scale", [1e-30, 1e-6, 1.0, 1e6, 1e30])
    def test_gem_neither_overflows_nor_underflows(self, p, scale):
        """For any p and any scale the result lies between the smallest and the largest value, with finite gradients."""
        features = ((torch.rand(3, 7, DIM) + 0.5) * scale).requires_grad_()
        pool = create_pooling("gem", p=p)
        pooled = pool(features, lengths=[7, 1, 4])
        pooled.sum().backward()
        clamped = features.detach().clamp(min=1e-6)
        assert (pooled <= clamped.amax(dim=1) * 1.001).all()
        assert (pooled >= clamped.amin(dim=1) * 0.999).all()
        assert features.grad.isfinite().all()
        assert pool.p.grad.isfinite().all()

    def test_gem_clamps_negative_values(self):
        """Values below eps are clamped to it."""
        pool = create_pooling("gem", eps=0.5)
        found = pool(torch.tensor([[[-3.0], [0.1], [0.5]]]))
        torch.testing.assert_close(found, torch.tensor([[0.5]]))

    def test_gem_exponent_is_trained(self):
        """One p, 3 at the start, whose gradient is that of the formula."""
        pool, features = create_pooling("gem"), torch.rand(4, 5, DIM) + 0.1
        assert [tuple(parameter.shape) for parameter in pool.parameters()] == [(1,)]
        assert pool.p.item() == 3.0
        pool(features).sum().backward()
        step = 1e-4
        above, below = (naive.over_batch(lambda x, q=q: naive.gem(x, q), features).sum() for q in (3 + step, 3 - step))
        assert math.isclose(pool.p.grad.item(), (above - below).item() / (2 * step), rel_tol=1e-3)

    def test_gem_exponent_limits(self):
        """p = 1 is the mean; a large p is nearly the maximum."""
        features = torch.rand(2, 6, DIM) + 0.1
        torch.testing.assert_close(create_pooling("gem", p=1)(features), features.mean(dim=1))
        torch.testing.assert_close(create_pooling("gem", p=2000)(features), features.amax(dim=1), rtol=2e-3, atol=0)


@given(sets=set_batches(batch=3, total=9, dim=DIM))
@settings(max_examples=12)
def test_gcn_seq2seq_normalises_as_vsrn(sets):
    """Before the blocks and before the GRU each dimension of a set is divided by its norm over the elements."""
    pool = create_pooling("gcn-seq2seq", dim=DIM, normalised=True).eval()
    own = pool.state_dict()

    def scaled(x: Tensor) -> Tensor:
        columns = [[float(value) for value in column] for column in x.T]
        norms = [max(sum(value**2 for value in column) ** 0.5, 1e-12) for column in columns]
        return torch.tensor(
            [[value / norm for value in column] for column, norm in zip(columns, norms, strict=True)],
            dtype=torch.float64,
        ).T

    def vsrn(x: Tensor) -> Tensor:
        x = scaled(x)
        for block in range(4):
            x = naive.relation_block(x, own, f"blocks.{block}.")
        return naive.seq2seq(scaled(x), own, "readout.gru.")

    expected = naive.over_batch(vsrn, sets.features, sets.mask)
    torch.testing.assert_close(pool(sets.features, mask=sets.mask).double(), expected, rtol=1e-4, atol=1e-4)
