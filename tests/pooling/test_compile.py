"""torch.compile: the same results and gradients as eager mode, with the fast path as one operator."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings

import pytest
import torch
from tests.pooling.support import NAMES, build, make_sets
from torch import Tensor, nn

SMALL, WIDE = (4, 12, 6), (8, 20, 128)  # eager mode sorts the first by torch, the second by the compiled network


@pytest.fixture(autouse=True)
def _fresh_compiler():
    """Each test compiles by itself."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield
    torch._dynamo.reset()


def outcome(call: nn.Module, pool: nn.Module, features: Tensor, **sets: object) -> dict[str, Tensor]:
    """The pooled vectors and all gradients."""
    pool.zero_grad()
    leaf = features.detach().clone().requires_grad_()
    pooled = call(leaf, **sets)
    pooled.pow(2).sum().backward()
    grads = {name: parameter.grad.clone() for name, parameter in pool.named_parameters()}
    return {"pooled": pooled.detach(), "features": leaf.grad, **grads}


def check(name: str, shape: tuple[int, int, int], **options: object) -> None:
    pool, sets = build(name, shape[2]), make_sets(*shape)
    compiled = torch.compile(pool, **options)
    expected = outcome(pool, pool, sets.features, mask=sets.mask)
    found = outcome(compiled, pool, sets.features, mask=sets.mask)
    for key, value in expected.items():
        scale = float(value.abs().max()) + 1  # some gradients are nothing but rounding
        torch.testing.assert_close(found[key] / scale, value / scale, rtol=1e-3, atol=1e-4, msg=key)


@pytest.mark.parametrize("name", [*NAMES, "gpo-transformer", "gpo-data-dependent"])
def test_compiled_poolings_match_eager(name):
    """Every pooling compiles, graph breaks allowed, and gives the eager vectors and gradients."""
    check(name, SMALL, backend="aot_eager")


@pytest.mark.parametrize("name", ["gpo", "fspool"])
def test_compiled_is_eager_on_the_fast_path(name):
    """So do batches large enough for the compiled network."""
    check(name, WIDE, backend="aot_eager")


@pytest.mark.parametrize(
    ("name", "shape"), [("gpo", SMALL), ("gpo", WIDE), ("frozen", WIDE), ("k-max", WIDE), ("gpo-per-dimension", SMALL)]
)
def test_rank_poolings_compile_to_one_graph(name, shape):
    """Poolings by rank, GPO first of all, compile to a single graph."""
    check(name, shape, backend="aot_eager", fullgraph=True)


def test_one_graph_for_many_batches():
    """Lengths are values, not shapes: other lengths of the same shape do not compile again."""
    graphs = []

    def count(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    pool = build("gpo")
    compiled = torch.compile(pool, backend=count)
    features = torch.randn(4, 9, 6)
    with torch.no_grad():
        compiled(features, lengths=torch.tensor([1, 2, 3, 9]))
        first = len(graphs)
        for lengths in ([9, 9, 9, 9], [4, 4, 4, 4], [9, 1, 1, 5]):
            found = compiled(features, lengths=torch.tensor(lengths))
            torch.testing.assert_close(found, pool(features, lengths=lengths), rtol=1e-4, atol=1e-5)
    assert len(graphs) == first


def test_gpo_compiles_with_dynamic_shapes():
    """Compiled once for dynamic shapes, a GPO serves other batches and sizes."""
    pool = build("gpo")
    compiled = torch.compile(pool, backend="aot_eager", dynamic=True)
    for shape in ((4, 12, 6), (3, 7, 6), (5, 20, 6), (8, 20, 128)):
        sets = make_sets(*shape)
        expected = pool(sets.features, mask=sets.mask)
        torch.testing.assert_close(compiled(sets.features, mask=sets.mask), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gcn-avg", "gcn-seq2seq"])
def test_batch_norm_statistics_are_those_of_eager_mode(name):
    """In training, too, a compiled graph pooling normalises over valid elements only."""
    sets = make_sets(4, 12, 6)
    eager, twin = build(name).train(), build(name).train()
    expected = eager(sets.features, mask=sets.mask)
    found = torch.compile(twin, backend="aot_eager")(sets.features, mask=sets.mask)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    for (key, one), other in zip(twin.named_buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4, msg=key)


FIRST = """
    import torch
    from vse.pooling import GPO
    from vse.pooling.kernels import runtime
    from vse.pooling.kernels.threads import run_in_ranges
    import vse.pooling.sorted_sum as module

    pool, features = GPO(), torch.randn(8, 20, 128)
    compiled = torch.compile(pool, backend="aot_eager")
    found = compiled(features)
    assert runtime._available is True, runtime._available  # the graph was recorded with the kernels, and eager has them
    seen = []
    module.run_in_ranges = lambda *arguments, **options: (seen.append(1), run_in_ranges(*arguments, **options))[1]
    torch.testing.assert_close(pool(features), found, rtol=1e-4, atol=1e-5)
    assert seen  # eager mode after it uses them
"""


def test_kernels_survive_a_compiled_first_call():
    """A process whose first call is compiled has the compiled kernels afterwards, and prints nothing."""
    pytest.importorskip("numba")
    script = textwrap.dedent(FIRST)
    command = [sys.executable, "-W", "error::UserWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_kernel_failure_while_compiling_is_forgotten(monkeypatch, caplog):
    """What fails during compilation is tried again outside of it, and is no warning."""
    from vse.pooling.kernels import runtime

    pytest.importorskip("numba")
    monkeypatch.setattr(runtime, "_available", None)
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        patch.setattr("vse.pooling.kernels.sorted_sum.sum_sorted", None)  # calling it raises TypeError
        assert not runtime.kernels_available()
    assert runtime.kernels_available()
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.parametrize("shape", [SMALL, WIDE], ids=["small", "wide"])
def test_inductor_matches_eager(shape):
    """The default backend gives the eager vectors and gradients."""
    check("gpo", shape)
