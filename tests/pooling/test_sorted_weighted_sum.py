"""The sorted weighted sum: both paths against a naive one, forward and backward, for all that may be handed in."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.pooling import naive
from tests.pooling.support import random_mask
from torch import Tensor

from vse.errors import InputError
from vse.pooling import sorted_weighted_sum

PATHS = ["plain", "network", "auto"]
WEIGHTS = ["(N,)", "(1,N)", "(B,N)", "(1,N,D)", "(B,N,D)"]
TOLERANCE = {torch.float32: {"rtol": 1e-4, "atol": 1e-4}, torch.float64: {"rtol": 1e-11, "atol": 1e-11}}


@pytest.fixture(autouse=True)
def _numba() -> None:
    pytest.importorskip("numba")


def make_weights(kind: str, batch: int, total: int, width: int, generator: torch.Generator) -> Tensor:
    shape = {"N": total, "B": batch, "D": width, "1": 1, "": None}
    sizes = [shape[letter] for letter in kind.strip("()").split(",") if letter]
    return torch.randn(sizes, generator=generator, dtype=torch.float64)


def expected_sum(features: Tensor, weights: Tensor, mask: Tensor | None) -> Tensor:
    """``(B, D)`` by the naive definition, differentiable."""
    per_set = weights if weights.dim() > 1 else weights.unsqueeze(0)
    per_set = per_set.expand(features.shape[0], *per_set.shape[1:])
    sums = [naive.weighted_sum(s, w) for s, w in zip(naive.each_set(features, mask), per_set, strict=True)]
    return torch.stack(sums)


def check(features: Tensor, weights: Tensor, mask: Tensor | None, path: str, dtype: torch.dtype) -> None:
    """Output and both gradients equal the naive ones."""
    upstream = torch.randn(
        features.shape[0], features.shape[2], generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    leaves = [tensor.to(dtype).detach().requires_grad_() for tensor in (features, weights)]
    found = sorted_weighted_sum(*leaves, mask, path=path)
    found.backward(upstream.to(dtype))
    exact = [tensor.to(dtype).double().detach().requires_grad_() for tensor in (features, weights)]
    expected = expected_sum(*exact, mask)
    expected.backward(upstream)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, **TOLERANCE[dtype])
    for leaf, twin in zip(leaves, exact, strict=True):
        torch.testing.assert_close(leaf.grad.double(), twin.grad, **TOLERANCE[dtype])


@pytest.mark.parametrize("path", PATHS)
@given(
    batch=st.integers(1, 4),
    total=st.integers(1, 70),
    width=st.integers(1, 20),
    kind=st.sampled_from(WEIGHTS),
    masked=st.sampled_from(["no", "prefix", "any"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=60)
def test_sorted_sum_equals_naive_sum(path, batch, total, width, kind, masked, dtype, seed):
    """Every shape of sets, weights and masks gives the naive output and the naive gradients."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(batch, total, width, generator=generator, dtype=torch.float64)
    weights = make_weights(kind, batch, total, width, generator)
    mask = None if masked == "no" else random_mask(batch, total, generator, prefix=masked == "prefix")
    check(features, weights, mask, path, dtype)


@pytest.mark.parametrize("path", ["plain", "network"])
@pytest.mark.parametrize(
    ("total", "width"), [(200, 16), (1024, 8), (1023, 8), (36, 301), (5, 257), (3, 513), (65, 1), (9, 256), (33, 65)]
)
def test_large_sets_and_odd_widths(path, total, width):
    """Sizes past every block and vector width of the kernels come out right, in both dtypes."""
    generator = torch.Generator().manual_seed(total)
    features = torch.randn(2, total, width, generator=generator, dtype=torch.float64)
    mask = random_mask(2, total, generator)
    check(features, make_weights("(B,N)", 2, total, width, generator), mask, path, torch.float32)
    check(features, make_weights("(1,N,D)", 2, total, width, generator), None, path, torch.float64)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_the_chosen_path_gives_the_sum_whatever_it_is(kind):
    """Batches large enough for either path to be chosen give the naive output and gradients."""
    generator = torch.Generator().manual_seed(9)
    features = torch.randn(7, 20, 80, generator=generator, dtype=torch.float64)
    weights = make_weights(kind, 7, 20, 80, generator)
    check(features, weights, random_mask(7, 20, generator), "auto", torch.float32)


@pytest.mark.parametrize("path", ["plain", "network"])
@given(
    total=st.integers(1, 24),
    levels=st.integers(1, 3),
    masked=st.booleans(),
    per_dimension=st.booleans(),
    seed=st.integers(0, 2**31 - 1),
)
@example(total=9, levels=1, masked=False, per_dimension=False, seed=0)
def test_equal_values_share_their_ranks(path, total, levels, masked, per_dimension, seed):
    """Tied elements receive, in some order, exactly the gradients of the ranks they occupy together."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randint(0, levels, (2, total, 5), generator=generator).double().requires_grad_()
    weights = make_weights("(B,N,D)" if per_dimension else "(B,N)", 2, total, 5, generator)
    mask = random_mask(2, total, generator) if masked else torch.ones(2, total, dtype=torch.bool)
    upstream = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    out = sorted_weighted_sum(features, weights, mask, path=path)
    out.backward(upstream)
    torch.testing.assert_close(out, expected_sum(features.detach(), weights, mask))
    for b in range(2):
        assert (features.grad[b, ~mask[b]] == 0).all()
        values, grads = features.detach()[b, mask[b]], features.grad[b, mask[b]]
        for d in range(5):
            ranked = sorted(values[:, d].tolist(), reverse=True)
            for level in set(ranked):
                ranks = [k for k, value in enumerate(ranked) if value == level]
                theta = weights[b, ranks, d] if per_dimension else weights[b, ranks]
                expected = (theta * upstream[b, d]).sort().values
                torch.testing.assert_close(grads[values[:, d] == level, d].sort().values, expected)


@pytest.mark.parametrize("path", ["plain", "network"])
@given(
    batch=st.integers(1, 3), total=st.integers(1, 7), width=st.integers(1, 6), seed=st.integers(0, 2**31 - 1),
    kind=st.sampled_from(WEIGHTS), masked=st.booleans(),
)  # fmt: skip
@settings(max_examples=10)
def test_sorted_sum_first_and_second_derivatives(path, batch, total, width, seed, kind, masked):
    """Numerical differentiation confirms the gradients and the gradients of the gradients."""
    generator = torch.Generator().manual_seed(seed)
    count = batch * total * width  # values a tenth apart, so that a small step changes no rank
    features = (torch.randperm(count, generator=generator) / 10).double().view(batch, total, width).requires_grad_()
    weights = make_weights(kind, batch, total, width, generator).requires_grad_()
    mask = random_mask(batch, total, generator) if masked else None

    def function(x: Tensor, w: Tensor) -> Tensor:
        return sorted_weighted_sum(x, w, mask, path=path)

    assert torch.autograd.gradcheck(function, (features, weights))
    assert torch.autograd.gradgradcheck(function, (features, weights))


@pytest.mark.parametrize("path", ["plain", "network"])
@pytest.mark.parametrize("which", ["features", "weights"])
def test_gradients_only_where_they_are_wanted(path, which):
    """Features or weights alone may require gradients; the other side gets none and the result is unchanged."""
    generator = torch.Generator().manual_seed(2)
    tensors = {"features": torch.randn(3, 6, 9, generator=generator), "weights": torch.randn(3, 6, generator=generator)}
    both = {name: tensor.clone().requires_grad_() for name, tensor in tensors.items()}
    sorted_weighted_sum(**both, path=path).sum().backward()
    tensors[which].requires_grad_()
    sorted_weighted_sum(**tensors, path=path).sum().backward()
    torch.testing.assert_close(tensors[which].grad, both[which].grad, rtol=0, atol=0)
    assert all(tensor.grad is None for name, tensor in tensors.items() if name != which)


@pytest.mark.parametrize("path", ["plain", "network"])
def test_weights_past_the_size_are_not_read(path):
    """Weights of ranks that a set does not have may hold NaN or inf; their gradient is zero."""
    features = torch.randn(2, 5, 8)
    mask = torch.tensor([[True, False, True, False, False], [True] * 5])
    weights = torch.full((2, 5), 0.5)
    expected = sorted_weighted_sum(features, weights, mask, path=path)
    weights[0, 2:] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    weights.requires_grad_()
    found = sorted_weighted_sum(features, weights, mask, path=path)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    found.sum().backward()
    assert (weights.grad[0, 2:] == 0).all()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(4), r"\(4,\)"),
        (torch.ones(3, 5), r"\(3, 5\)"),
        (torch.ones(2, 5, 6), r"\(2, 5, 6\)"),
        (torch.ones(5, 1), r"\(5, 1\)"),
        (torch.ones(5, dtype=torch.int64), "int64"),
        ([1.0] * 5, "list"),
        (torch.ones(5, device="meta"), "meta"),
    ],
)
def test_weights_that_do_not_fit_are_an_error(weights, message):
    """Weights of a wrong shape, dtype, kind or device raise InputError with what was given."""
    with pytest.raises(InputError, match=message):
        sorted_weighted_sum(torch.randn(2, 5, 8), weights)


def test_sorted_sum_refuses_unknown_path():
    """The message names the value and the valid paths."""
    with pytest.raises(InputError, match=r"'fast'.*'auto', 'plain', 'network'"):
        sorted_weighted_sum(torch.randn(2, 5, 8), torch.ones(5), path="fast")
