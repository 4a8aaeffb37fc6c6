"""GPO against its definition: encoding, BiGRU, softmax and sorted sum written out by hand in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pooling import naive
from tests.pooling.support import make_sets, set_batches
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import prune

from vse.errors import InputError
from vse.pooling import GPO
from vse.pooling.gpo import sincos_positions


@pytest.fixture(scope="module")
def pool() -> GPO:
    torch.manual_seed(3)
    return GPO()


@given(count=st.integers(1, 90), half=st.integers(1, 24), first=st.integers(0, 3))
def test_positions_are_the_trigonometric_encoding(count, half, first):
    """Even dimensions hold sines and odd ones cosines of the position times 10000^(-2j/width)."""
    found = sincos_positions(count, 2 * half, first=first, dtype=torch.float64)
    torch.testing.assert_close(found, naive.position_encoding(count, 2 * half, first), rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 36, 100])
def test_gpo_coefficients_follow_the_definition(pool, size):
    """The coefficients of a size are softmax(w . h / 0.1) of the averaged BiGRU over sin/cos positions from 0."""
    expected = naive.gpo_coefficients(size, pool.state_dict()).float()
    torch.testing.assert_close(pool.coefficients(size), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "naive_options"),
    [
        ({"temperature": 1.0}, {"temperature": 1.0}),
        ({"temperature": 0.02}, {"temperature": 0.02}),
        ({"first_position": 1}, {"first": 1}),
        ({"d_pe": 10}, {"width": 10}),
        ({"d_hidden": 7}, {}),
        ({"d_hidden": 65, "d_pe": 2}, {"width": 2}),
    ],
)
def test_arguments_reach_the_formula(options, naive_options):
    """Temperature, first position, encoding width and state width each do what the formula says."""
    torch.manual_seed(4)
    pool = GPO(**options)
    expected = naive.gpo_coefficients(13, pool.state_dict(), **naive_options)
    torch.testing.assert_close(pool.coefficients(13).double(), expected, rtol=1e-4, atol=1e-6)


@given(sets=set_batches(batch=3, total=9))
@settings(max_examples=25)
def test_pooled_vectors_follow_the_definition(pool, sets):
    """A batch gives, set by set, the sorted values weighted by the coefficients of that set's size."""
    expected = naive.over_batch(lambda elements: naive.gpo(elements, pool.state_dict()), sets.features, sets.mask)
    torch.testing.assert_close(pool(sets.features, mask=sets.mask), expected.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("width", [11, 301])
def test_gpo_gradients_follow_the_definition(pool, prefix, width):
    """Every parameter and every feature gets the gradient that autograd finds through the naive float64 GPO."""
    sets = make_sets(5, 8, width, seed=5, prefix=prefix)
    upstream = torch.randn(5, width, generator=torch.Generator().manual_seed(6))
    features = sets.features.clone().requires_grad_()
    pool.zero_grad()
    pool(features, mask=sets.mask).backward(upstream)

    twin = {name: value.detach().double().requires_grad_() for name, value in pool.state_dict().items()}
    exact = sets.features.double().requires_grad_()
    naive.over_batch(lambda elements: naive.gpo(elements, twin), exact, sets.mask).backward(upstream.double())

    torch.testing.assert_close(features.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)
    for name, parameter in pool.named_parameters():
        torch.testing.assert_close(parameter.grad.double(), twin[name].grad, rtol=1e-3, atol=1e-5, msg=name)


def test_gpo_first_and_second_derivatives():
    """Numerical differentiation in float64 confirms gradients, and their gradients, for features and parameters."""
    torch.manual_seed(7)
    pool = GPO(d_pe=2, d_hidden=1, temperature=1.0).double()
    features = (torch.randperm(2 * 4 * 2) / 10).double().view(2, 4, 2).requires_grad_()
    mask = torch.tensor([[True, False, True, True], [False, True, True, False]])
    names = [name for name, _ in pool.named_parameters()]

    def function(inputs: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(pool, dict(zip(names, weights, strict=True)), (inputs,), {"mask": mask})

    leaves = (features, *(parameter.detach().clone().requires_grad_() for parameter in pool.parameters()))
    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


@given(sets=set_batches())
def test_returned_coefficients_are_a_distribution_over_the_ranks(pool, sets):
    """(B, N): non-negative, adding up to one over the first n ranks, exactly zero past the set's size."""
    _, weights = pool(sets.features, mask=sets.mask, return_coefficients=True)
    assert weights.shape == sets.mask.shape
    beyond = torch.arange(sets.mask.shape[1]) >= sets.sizes.unsqueeze(1)
    assert (weights[beyond] == 0).all()
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(len(weights)), rtol=0, atol=1e-5)


@given(sets=set_batches())
def test_returned_coefficients_are_those_that_pooled(pool, sets):
    """Asking for the coefficients changes nothing, and weighting the sorted values by them gives the output."""
    pooled, weights = pool(sets.features, mask=sets.mask, return_coefficients=True)
    torch.testing.assert_close(pooled, pool(sets.features, mask=sets.mask), rtol=0, atol=1e-6)
    elements = naive.each_set(sets.features, sets.mask)
    expected = torch.stack([naive.weighted_sum(elements[b], weights[b].detach()) for b in range(len(elements))])
    torch.testing.assert_close(pooled.double(), expected, rtol=1e-5, atol=1e-5)


def test_returned_coefficients_without_padding_have_a_row_per_set(pool):
    """When every element is valid the coefficients still come as (B, N)."""
    _, weights = pool(torch.randn(4, 7, 3), return_coefficients=True)
    assert weights.shape == (4, 7)
    torch.testing.assert_close(weights, pool.coefficients(7).expand(4, 7))


def test_returned_coefficients_are_differentiable(pool):
    """A loss on the coefficients reaches the generator's parameters."""
    pool.zero_grad()
    _, weights = pool(torch.randn(2, 7, 3), lengths=[7, 4], return_coefficients=True)
    (weights**2).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in pool.parameters())


def test_gpo_of_one_element_is_that_element(pool):
    """A single element gets the coefficient 1 exactly."""
    assert pool.coefficients(1).tolist() == [1.0]
    features = torch.randn(3, 1, 5)
    torch.testing.assert_close(pool(features), features[:, 0], rtol=0, atol=0)


def test_table_holds_the_coefficients_of_every_size(pool):
    """Row n-1 of the table is coefficients(n) followed by zeros."""
    table = pool.table(20)
    assert table.shape == (20, 20)
    for size in range(1, 21):
        torch.testing.assert_close(table[size - 1, :size], pool.coefficients(size), rtol=1e-5, atol=1e-7)
        assert (table[size - 1, size:] == 0).all()


def test_looking_at_coefficients_leaves_no_graph(pool):
    """coefficients and table are detached."""
    assert not pool.coefficients(5).requires_grad
    assert not pool.table(5).requires_grad


def test_parameters_are_the_released_ones():
    """12,704 parameters under exactly the released names and shapes, so that released checkpoints load."""
    shapes = {name: tuple(value.shape) for name, value in GPO().state_dict().items()}
    expected = {"linear.weight": (1, 32)}
    for suffix in ("", "_reverse"):
        expected |= {f"gru.weight_ih_l0{suffix}": (96, 32), f"gru.weight_hh_l0{suffix}": (96, 32)}
        expected |= {f"gru.bias_ih_l0{suffix}": (96,), f"gru.bias_hh_l0{suffix}": (96,)}
    assert shapes == expected
    assert sum(p.numel() for p in GPO().parameters()) == 12_704


def test_gpo_learns_max_pooling():
    """A GPO trained on pooled outputs alone approaches the pooling it imitates."""
    torch.manual_seed(0)
    pool = GPO()
    optimizer = torch.optim.Adam(pool.parameters(), lr=1e-2)
    for _ in range(60):
        features = torch.randn(16, 12, 8)
        loss = ((pool(features) - features.amax(dim=1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert pool.coefficients(12)[0] > 0.95


def test_a_size_past_the_positions_is_refused():
    """A size that is larger than the sequence never reaches the compiled recurrence."""
    with pytest.raises(InputError, match="200000"):
        GPO().size_coefficients(torch.tensor([200000]), 5)


def test_pruned_and_parametrised_weights_count():
    """What replaces a parameter of the GRU is what is used: pruning changes the coefficients."""
    pool = GPO()
    before = pool.coefficients(9)
    prune.random_unstructured(pool.gru, "bias_hh_l0_reverse", amount=0.5)
    prune.random_unstructured(pool.gru, "weight_hh_l0", amount=0.5)
    assert (pool.coefficients(9) - before).abs().max() > 1e-6


def test_fake_tensors_leave_nothing_behind():
    """A call on fake tensors does not poison later calls on real ones."""
    with FakeTensorMode():
        GPO()(torch.randn(2, 11, 4))
    assert type(GPO().coefficients(11)) is torch.Tensor


def test_gpo_returns_pairs_if_constructed_so():
    """``GPO(return_coefficients=True)`` has the authors' convention, in a call, frozen, and overridden per call."""
    features = torch.randn(2, 5, 3)
    plain, pair = GPO(), GPO(return_coefficients=True)
    pair.load_state_dict(plain.state_dict())
    pooled, weights = pair(features, torch.tensor([5, 3]))
    expected, theta = plain(features, torch.tensor([5, 3]), return_coefficients=True)
    torch.testing.assert_close((pooled, weights), (expected, theta))
    torch.testing.assert_close(pair.freeze(5)(features)[1], pair(features)[1].detach())
    assert pair(features, return_coefficients=False).shape == (2, 3)
    assert isinstance(plain(features), torch.Tensor)
