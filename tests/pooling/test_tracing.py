"""Recorded graphs: torch.jit.trace and torch.export give the pooling back, for other batches and sizes too."""

from __future__ import annotations

import warnings

import pytest
import torch
from tests.pooling.support import ALL, build
from torch import Tensor, nn
from torch.export import Dim

DIM = 6
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


class ByLengths(nn.Module):
    """A model as users write it: features and lengths in, vectors out."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        return self.pool(features, lengths=lengths)


class ByMask(ByLengths):
    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.pool(features, mask=mask)


def batch(count: int, total: int, *, by_mask: bool = False, dim: int = DIM) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count * 100 + total)
    features = torch.randn(count, total, dim, generator=generator)
    lengths = torch.randint(1, total + 1, (count,), generator=generator)
    lengths[0] = total
    return features, (torch.arange(total) < lengths[:, None]) if by_mask else lengths


def trace(module: nn.Module, inputs: tuple[Tensor, ...]) -> nn.Module:
    with warnings.catch_warnings():
        # torch warns about every Python number on the way; whether they matter is what the tests find out
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, inputs, check_trace=False)


@pytest.mark.parametrize(("name", "by_mask"), [*((name, False) for name in ALL), ("gpo", True), ("frozen", True)])
def test_traced_poolings_match_eager(name, by_mask):
    """A traced pooling gives the eager result for other batches, other sizes and other paddings."""
    module = (ByMask if by_mask else ByLengths)(build(name, DIM))
    traced = trace(module, batch(4, 12, by_mask=by_mask))
    for count, total in ((4, 12), (2, 12), (7, 9), (3, 20), (1, 1)):
        inputs = batch(count, total, by_mask=by_mask)
        torch.testing.assert_close(traced(*inputs), module(*inputs), **TOLERANCE)


@pytest.mark.parametrize("name", ["gpo", "frozen", "avg", "max", "k-max", "linear"])
def test_jit_trace_without_lengths(name):
    """A pooling traced without padding follows the size of what it is given, or refuses; it is never silently wrong."""
    pool = build(name, DIM)
    traced = trace(pool, (torch.randn(4, 12, DIM),))
    for shape in ((4, 12, DIM), (2, 12, DIM), (3, 20, DIM)):
        features = torch.randn(shape)
        torch.testing.assert_close(traced(features), pool(features), **TOLERANCE)


def test_jit_trace_needs_nothing_of_ours():
    """A traced graph is made of torch's own operators, so that it runs where this package is not installed."""
    graph = str(trace(ByLengths(build("gpo")), batch(4, 40, dim=64)).inlined_graph)
    assert "aten::sort" in graph
    assert "vse::" not in graph


@pytest.mark.parametrize(
    ("name", "by_mask"),
    [("gpo", False), ("gpo", True), ("frozen", True), ("k-max", False), ("gpo-per-dimension", False)],
)
def test_export_with_any_batch(name, by_mask):
    """torch.export with a dynamic batch gives the eager result for every batch size."""
    module = (ByMask if by_mask else ByLengths)(build(name, DIM))
    count = Dim("count", min=1, max=4096)
    program = torch.export.export(module, batch(4, 12, by_mask=by_mask), dynamic_shapes=({0: count}, {0: count}))
    for other in (4, 1, 2, 33):
        inputs = batch(other, 12, by_mask=by_mask)
        torch.testing.assert_close(program.module()(*inputs), module(*inputs), **TOLERANCE)


@pytest.mark.parametrize(("largest", "by_mask"), [(63, False), (64, False), (64, True), (128, False)])
def test_export_frozen_with_any_batch_and_size(largest, by_mask):
    """A frozen GPO with a table of 64 exports with dynamic batch and padding, below, at and beyond its table."""
    module = (ByMask if by_mask else ByLengths)(build("frozen"))
    count, total = Dim("count", min=1, max=4096), Dim("total", min=1, max=largest)
    shapes = ({0: count, 1: total}, {0: count, 1: total} if by_mask else {0: count})
    program = torch.export.export(module, batch(4, 12, by_mask=by_mask), dynamic_shapes=shapes)
    for other, size in ((4, 12), (1, 1), (2, 30), (33, 63), (3, largest)):
        features, sets = batch(other, size, by_mask=by_mask)
        sets = sets & (torch.arange(size) < 64) if by_mask else sets.clamp(max=64)
        torch.testing.assert_close(program.module()(features, sets), module(features, sets), **TOLERANCE)


@pytest.mark.parametrize("name", ["gpo", "frozen"])
def test_export_is_made_of_torch_operators(name):
    """An exported program calls nothing of this package, at sizes where eager mode would use the compiled path."""
    program = torch.export.export(ByLengths(build(name)), batch(8, 40, dim=64))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert any("sort" in target for target in called)
    assert not any("vse" in target for target in called)


def test_export_without_the_value_checks():
    """Checks on values are skipped of a recorded graph: a pooling that checks for NaN exports too."""
    module = ByLengths(build("gpo", check_finite=True))
    inputs = batch(4, 12)
    program = torch.export.export(module, inputs)
    torch.testing.assert_close(program.module()(*inputs), module(*inputs), **TOLERANCE)
