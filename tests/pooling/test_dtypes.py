"""Dtypes: the output has the features' dtype, and half precision stays close to what float32 gives."""

from __future__ import annotations

import pytest
import torch
from tests.pooling import naive
from tests.pooling.support import ALL, NEEDS_DIM, RANK_POOLINGS, build, make_sets

from vse.pooling import sorted_weighted_sum

DIM = 16
HALVES = [torch.float16, torch.bfloat16]
LOOSE = {torch.float16: 0.01, torch.bfloat16: 0.06}
# Poolings whose own matrices multiply the features, as any layer of torch they need both in one dtype.
MULTIPLIES = NEEDS_DIM - {"fspool"}
SHAPES = [(4, 9, DIM), (4, 40, DIM * 4)]  # below and above the size at which the compiled path takes over


def positive_sets(shape: tuple[int, int, int], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Features around one, which every pooling (GeM too) treats gently, rounded to ``dtype``; and a mask."""
    sets = make_sets(*shape, seed=3)
    return (sets.features * 0.3 + 1).to(dtype), sets.mask


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", [name for name in ALL if name not in MULTIPLIES])
def test_half_features_meet_a_float32_pooling(name, dtype, shape):
    """Half features need no half module: the result has their dtype and is that of float32, rounded once."""
    pool = build(name, shape[2])
    features, mask = positive_sets(shape, dtype)
    found = pool(features, mask=mask)
    assert found.dtype == dtype
    expected = pool(features.float(), mask=mask)
    torch.testing.assert_close(found.float(), expected, rtol=torch.finfo(dtype).eps * 4, atol=1e-3)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ALL)
def test_half_precision_pooling_takes_half_features(name, dtype):
    """A pooling converted by .half() or .bfloat16() takes features of that dtype, forward and backward."""
    features, mask = positive_sets((4, 9, DIM), dtype)
    expected = build(name, DIM)(features.float(), mask=mask)
    pool = build(name, DIM).to(dtype)
    features.requires_grad_()
    found = pool(features, mask=mask)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=LOOSE[dtype], atol=LOOSE[dtype])
    found.sum().backward()
    assert features.grad.dtype == dtype
    for key, parameter in pool.named_parameters():
        assert parameter.grad.dtype == dtype, key
        assert parameter.grad.isfinite().all(), key


@pytest.mark.parametrize("name", ALL)
def test_double_pooling_agrees_with_float32(name):
    """A pooling converted by .double() computes in float64 and agrees with float32 to float32's precision."""
    features, mask = positive_sets((4, 9, DIM), torch.float64)
    found = build(name, DIM).double()(features, mask=mask)
    assert found.dtype == torch.float64
    expected = build(name, DIM)(features.float(), mask=mask)
    torch.testing.assert_close(found.float(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["avg", "max", "k-max", "top-percent", "linear", "gem", "fspool", "cls", "gpo"])
def test_float64_is_precise(name):
    """A pooling in float64 is right to float64's precision, not only to float32's."""
    features, _ = positive_sets((3, 8, DIM), torch.float64)
    mask = torch.arange(8) < torch.tensor([[8], [7], [3]])
    pool = build(name, DIM).double()
    own = pool.state_dict()

    def weighted(coefficients):
        return lambda x: naive.weighted_sum(x, torch.as_tensor(coefficients(len(x)), dtype=torch.float64))

    definition = {
        "avg": lambda x: x.mean(dim=0),
        "max": lambda x: x.amax(dim=0),
        "k-max": weighted(lambda n: naive.coefficients_of_k_max(n, 3)),
        "top-percent": weighted(lambda n: naive.coefficients_of_top_percent(n, 40)),
        "linear": weighted(naive.coefficients_of_linear_decay),
        "gem": lambda x: naive.gem(x, 3.0),
        "fspool": lambda x: naive.weighted_sum(x, naive.interpolated(own["weight"], len(x))),
        "cls": lambda x: x[0],
        "gpo": lambda x: naive.gpo(x, own),
    }[name]
    torch.testing.assert_close(
        pool(features, mask=mask), naive.over_batch(definition, features, mask), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "shape"), [*((name, SHAPES[0]) for name in ALL), *((name, SHAPES[1]) for name in RANK_POOLINGS)]
)
def test_autocast_keeps_feature_dtype(name, shape):
    """Under CPU autocast to bfloat16 the output keeps the features' dtype and stays close to float32."""
    features, mask = positive_sets(shape, torch.float32)
    expected = build(name, shape[2])(features, mask=mask)
    for dtype in (torch.float32, torch.bfloat16):
        pool, inputs = build(name, shape[2]), features.to(dtype).detach().clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            found = pool(inputs, mask=mask)
        assert found.dtype == dtype
        torch.testing.assert_close(found.float(), expected, rtol=0.06, atol=0.06)
        found.float().sum().backward()
        assert inputs.grad.dtype == dtype
        assert inputs.grad.isfinite().all()


@pytest.mark.parametrize("name", ["gpo", "gpo-interpolation", "gpo-index", "gpo-per-dimension"])
def test_autocast_leaves_coefficients_alone(name):
    """The softmax is sharp, so coefficients are computed in float32 even under autocast."""
    pool = build(name, DIM)
    expected = pool.coefficients(20)
    with torch.autocast("cpu", torch.bfloat16):
        found = pool.coefficients(20)
        _, returned = pool(torch.randn(2, 20, DIM), return_coefficients=True)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(returned[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", ["plain", "network"])
@pytest.mark.parametrize("dtype", HALVES)
def test_half_sums_are_float32_sums(path, dtype):
    """float16 and bfloat16 are summed in float32: a thousand small values do not drown in rounding."""
    pytest.importorskip("numba")
    features = torch.full((1, 1000, 8), 0.1).to(dtype)
    found = sorted_weighted_sum(features, torch.ones(1000, dtype=dtype), path=path)
    assert found.dtype == dtype
    expected = features[0, 0, 0].double() * 1000
    torch.testing.assert_close(found.double(), expected.expand(1, 8), rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_large_half_values_do_not_overflow_on_the_way(dtype):
    """Means of large half values are finite although their sum is not."""
    features = torch.full((2, 50, 8), 60000.0).to(dtype)
    for name in ("avg", "k-max", "linear", "gpo", "gem"):
        pooled = build(name, 8)(features, lengths=[50, 20])
        torch.testing.assert_close(pooled.float(), features[:, 0].float(), rtol=0.01, atol=0)


def test_the_default_dtype_does_not_matter():
    """Under another default dtype the same parameters pool the same."""
    features, lengths = torch.randn(2, 6, DIM), [6, 3]
    expected = {name: build(name, DIM)(features, lengths=lengths) for name in ("k-max", "linear", "top-percent", "gpo")}
    pools = {name: build(name, DIM) for name in expected}
    torch.set_default_dtype(torch.float64)
    try:
        for name, pool in pools.items():
            found = pool(features, lengths=lengths)
            assert found.dtype == torch.float32
            torch.testing.assert_close(found, expected[name], rtol=1e-5, atol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)
