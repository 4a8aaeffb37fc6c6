"""The variants of GPO: other decoders, learned positions, coefficients per dimension, coefficients from data."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from tests.pooling import naive
from tests.pooling.support import SIZE_ONLY_VARIANTS, VARIANTS, build, make_sets, set_batches
from torch.nn import functional

from vse.errors import InputError
from vse.pooling import GPO, create_pooling

DIM = 6


def _naive_scores(pool: GPO, size: int) -> torch.Tensor:
    """``(size, 1 or D)``: the scores of a set of ``size`` from the variant's own parameters, in float64."""
    weights = {name: value.double() for name, value in pool.state_dict().items()}
    if "knots" in weights:
        return naive.interpolated(weights["knots"], size)
    if "embedding.weight" in weights:
        inputs = weights["embedding.weight"][:size]
    else:
        inputs = naive.position_encoding(size, 32, pool.first_position)
    if "mlp.hidden.weight" in weights:
        states = naive.linear(inputs, weights, "mlp.hidden.").clamp(min=0)
    elif "transformer.encoder.layers.0.linear1.weight" in weights:
        states = _naive_transformer(inputs, weights, "transformer.encoder.layers.0.")
    else:
        states = naive.bigru_states(inputs, weights)
    if "linear.0.weight" in weights:
        return naive.linear(naive.linear(states, weights, "linear.0.").clamp(min=0), weights, "linear.2.")
    return states @ weights["linear.weight"].T


def _naive_transformer(inputs: torch.Tensor, weights: dict[str, torch.Tensor], prefix: str) -> torch.Tensor:
    """One post-norm encoder layer with four heads, head by head and position by position."""
    width = inputs.shape[1]
    projected = inputs @ weights[f"{prefix}self_attn.in_proj_weight"].T + weights[f"{prefix}self_attn.in_proj_bias"]
    query, key, value = projected.split(width, dim=1)
    heads = []
    for h in range(4):
        own = slice(h * width // 4, (h + 1) * width // 4)
        rows = [naive.softmax(key[:, own] @ q / (width // 4) ** 0.5) @ value[:, own] for q in query[:, own]]
        heads.append(torch.stack(rows))
    attended = naive.linear(torch.cat(heads, dim=1), weights, f"{prefix}self_attn.out_proj.")
    states = _layer_norm(inputs + attended, weights, f"{prefix}norm1.")
    hidden = naive.linear(states, weights, f"{prefix}linear1.").clamp(min=0)
    return _layer_norm(states + naive.linear(hidden, weights, f"{prefix}linear2."), weights, f"{prefix}norm2.")


def _layer_norm(states: torch.Tensor, weights: dict[str, torch.Tensor], prefix: str) -> torch.Tensor:
    return functional.layer_norm(states, states.shape[-1:], weights[f"{prefix}weight"], weights[f"{prefix}bias"])


@pytest.mark.parametrize("name", SIZE_ONLY_VARIANTS)
@pytest.mark.parametrize("size", [1, 2, 7, 30])
@pytest.mark.parametrize("training", [True, False])
def test_gpo_variant_coefficients_follow_the_definition(name, size, training):
    """Each variant's coefficients are the softmax of its own decoder's scores, in training and in evaluation mode."""
    pool = build(name, DIM).train(training)
    expected = naive.softmax(_naive_scores(pool, size) / 0.1)
    found = pool.coefficients(size).double()
    if not pool.per_dimension:
        expected = expected.squeeze(1)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", SIZE_ONLY_VARIANTS)
@given(sets=set_batches(batch=3, total=8, dim=DIM))
@settings(max_examples=8)
def test_pooled_is_the_sum_weighted_by_the_coefficients(name, sets):
    """The pooled vector of each set is its sorted values weighted by the coefficients of its size."""
    pool = build(name, DIM)
    expected = naive.over_batch(
        lambda elements: naive.weighted_sum(elements, pool.coefficients(len(elements))), sets.features, sets.mask
    )
    torch.testing.assert_close(pool(sets.features, mask=sets.mask).double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("per_dimension", [False, True])
@given(sets=set_batches(batch=3, total=7, dim=DIM))
@settings(max_examples=8)
def test_data_dependent_reads_positions_and_sorted_features(per_dimension, sets):
    """The decoder of a data-dependent GPO sees each rank's encoding followed by the sorted features."""
    name = "gpo-data-dependent-per-dimension" if per_dimension else "gpo-data-dependent"
    pool = build(name, DIM)
    weights = {key: value.double() for key, value in pool.state_dict().items()}

    def pooled(elements: torch.Tensor) -> torch.Tensor:
        ordered = naive.sort_descending(elements)
        inputs = torch.cat((naive.position_encoding(len(elements), 32), ordered), dim=1)
        theta = naive.softmax(naive.bigru_states(inputs, weights) @ weights["linear.weight"].T / 0.1)
        return (ordered * theta).sum(dim=0)

    expected = naive.over_batch(pooled, sets.features, sets.mask)
    torch.testing.assert_close(pool(sets.features, mask=sets.mask).double(), expected, rtol=1e-3, atol=1e-4)


def test_data_dependent_coefficients_change_with_the_features():
    """Two sets of one size get different coefficients, and both are distributions over the ranks."""
    sets = make_sets(2, 6, DIM, prefix=True)
    pool = build("gpo-data-dependent", DIM)
    _, weights = pool(sets.features, return_coefficients=True)
    assert weights.shape == (2, 6)
    assert (weights[0] - weights[1]).abs().max() > 1e-3
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(2))


@pytest.mark.parametrize("name", ["gpo-per-dimension", "gpo-data-dependent-per-dimension"])
def test_coefficients_per_dimension_have_their_own_axis(name):
    """Coefficients come as (B, N, D), each dimension a distribution of its own over the valid ranks."""
    sets = make_sets(4, 9, DIM, seed=1)
    _, weights = build(name, DIM)(sets.features, mask=sets.mask, return_coefficients=True)
    assert weights.shape == (4, 9, DIM)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(4, DIM))
    beyond = torch.arange(9) >= sets.sizes.unsqueeze(1)
    assert (weights[beyond] == 0).all()
    assert weights[..., 0].sub(weights[..., 1]).abs().max() > 1e-4


def test_coefficients_and_table_per_dimension():
    """coefficients(N) is (N, D) and table(M) is (M, M, D)."""
    pool = build("gpo-per-dimension", DIM)
    table = pool.table(8)
    assert pool.coefficients(5).shape == (5, DIM)
    assert table.shape == (8, 8, DIM)
    torch.testing.assert_close(table[4, :5], pool.coefficients(5))
    assert (table[4, 5:] == 0).all()


@pytest.mark.parametrize("name", VARIANTS)
def test_gpo_variants_train_every_parameter(name):
    """No parameter of any variant is left without a gradient."""
    sets = make_sets(4, 9, DIM, seed=2)
    pool = build(name, DIM).train()
    pool(sets.features, mask=sets.mask).pow(2).sum().backward()
    # softmax is blind to a constant: the bias of the last layer of a head moves nothing, by definition
    silent = {"linear.2.bias"}
    for key, parameter in pool.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        if key not in silent:
            assert parameter.grad.abs().sum() > 0, key


def test_a_learned_index_ends_at_max_size():
    """A set larger than a learned index reaches is an error that names both sizes."""
    pool = GPO(position="index", max_size=8)
    assert pool(torch.randn(2, 8, 3)).shape == (2, 3)
    with pytest.raises(InputError, match=r"9.*max_size=8"):
        pool(torch.randn(2, 9, 3))
    with pytest.raises(InputError, match=r"9.*max_size=8"):
        pool.table(9)


@pytest.mark.parametrize("name", SIZE_ONLY_VARIANTS)
def test_variants_can_be_frozen(name):
    """Every variant whose coefficients depend on the size alone becomes a table that pools the same."""
    sets = make_sets(5, 12, DIM, seed=3)
    pool = build(name, DIM)
    frozen = pool.freeze(12)
    torch.testing.assert_close(
        frozen(sets.features, mask=sets.mask), pool(sets.features, mask=sets.mask), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    "options", [{}, {"head": "mlp"}, {"decoder": "transformer"}, {"per_dimension": True, "dim": 5}]
)
def test_one_that_starts_as_the_average_is_it_and_learns(options):
    """All ranks begin with the same weight, whatever makes the scores; a gradient step tells them apart."""
    pool = GPO(start="average", **options)
    features = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pool(features), features.mean(1))
    pool(features).square().sum().backward()
    with torch.no_grad():
        for parameter in pool.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad)
    assert not torch.allclose(pool(features), features.mean(1), atol=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"head": "mlp"}, {"decoder": "interpolation"}, {"per_dimension": True, "dim": 5}]
)
def test_one_that_starts_at_a_share_is_it_at_every_size_and_learns(options):
    """0.9 of the weight on the largest 25 %, 0.1 on all, whatever the size; as a table too; a step changes it."""
    pool, share = GPO(start=25, **options), create_pooling("top-percent", percent=25)
    for size in (1, 2, 3, 10, 36, 200):
        expected = 0.9 * share.coefficients(size) + 0.1 / size
        found = pool.coefficients(size)
        torch.testing.assert_close(found, expected.unsqueeze(-1).expand_as(found) if found.dim() == 2 else expected)
    features = torch.randn(3, 9, 5, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([9, 4, 1])
    begun = pool(features, lengths)
    torch.testing.assert_close(pool.freeze(9)(features, lengths), begun)
    torch.testing.assert_close(begun, 0.9 * share(features, lengths) + 0.1 * create_pooling("avg")(features, lengths))
    assert pool.state_dict().keys() == GPO(**options).state_dict().keys()
    begun.square().sum().backward()
    with torch.no_grad():
        for parameter in pool.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad)
    assert not torch.allclose(pool(features, lengths), begun, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 0}, "a percentage from 1 to 100, got 0"),
        ({"start": 101}, "got 101"),
        ({"start": True}, "got True"),
        ({"start": 2.5}, "got 2.5"),
        ({"start": "mean"}, "start"),
        ({"start": 50, "data_dependent": True, "dim": 4}, "start=50 sets the coefficients of each set size"),
    ],
)
def test_start_that_cannot_be_is_refused(options, message):
    """A share out of range, or of coefficients that depend on the features."""
    with pytest.raises(InputError, match=message):
        GPO(**options)
