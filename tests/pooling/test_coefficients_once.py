"""Coefficients are computed once per distinct size in a batch, because they depend on the size alone."""

from __future__ import annotations

import pytest
import torch
from tests.pooling.support import build

GENERATORS = {"gpo": "gru", "gpo-transformer": "transformer", "gpo-index": "gru", "gpo-per-dimension": "gru"}


def rows_generated(name: str, features: torch.Tensor, **sets: object) -> int:
    """How many sizes the generator computed while one batch was pooled."""
    pool, rows = build(name, features.shape[2]), []
    hook = getattr(pool, GENERATORS[name]).register_forward_hook(lambda _m, _i, output: rows.append(output.shape[0]))
    pool(features, **sets)
    hook.remove()
    assert len(rows) == 1
    return sum(rows)


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize(
    ("lengths", "distinct"),
    [([3, 3, 3, 3], 1), ([9, 9, 9, 9], 1), ([1, 2, 3, 4], 4), ([7, 2, 7, 2], 2), ([9, 1, 9, 5], 3)],
)
def test_coefficients_are_computed_once_per_size(name, lengths, distinct):
    """A batch costs as many rows of the generator as it has distinct sizes, in one call."""
    assert rows_generated(name, torch.randn(4, 9, 6), lengths=lengths) == distinct


def test_sizes_count_not_patterns():
    """Masks of different patterns but equal sizes share one row."""
    mask = torch.tensor([[True, False, True, False], [False, False, True, True], [True, True, False, False]])
    assert rows_generated("gpo", torch.randn(3, 4, 6), mask=mask) == 1


def test_a_full_batch_costs_one_row():
    """Without lengths or mask there is one size."""
    assert rows_generated("gpo", torch.randn(50, 4, 6)) == 1


def test_gradients_of_shared_rows_add_up():
    """Sets that share a row of coefficients each contribute to the generator's gradient."""
    features = torch.randn(4, 9, 6)
    lengths = [5, 9, 5, 5]
    together, apart = build("gpo"), build("gpo")
    together(features, lengths=lengths).sum().backward()
    for b, size in enumerate(lengths):
        apart(features[b : b + 1, :size]).sum().backward()
    for (name, one), other in zip(together.named_parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5, msg=name)
