"""The compiled path as a good citizen: memory layouts, threads, forks, saved memory, torch's operator rules."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.pooling.support import make_sets

from vse.pooling import sorted_weighted_sum

pytest.importorskip("numba")

LARGE = 20_011
"""A width at which a handful of sets is worth several threads."""


def _outcome(features: torch.Tensor, weights: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
    leaves = [features.detach().requires_grad_(), weights.detach().requires_grad_()]
    out = sorted_weighted_sum(*leaves, mask, path="network")
    out.sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def _same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


LAYOUTS = {
    "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "batch last": lambda x: x.permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "strided": lambda x: torch.stack((x, x + 1), dim=-1).flatten(2)[..., ::2],
    "offset": lambda x: torch.cat((x[:, :1] - 5, x), dim=1)[:, 1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("masked", [False, True])
def test_memory_layout_does_not_matter(layout, masked):
    """Features that are views in any layout give what a contiguous copy gives, gradients included."""
    sets = make_sets(3, 10, 24)
    view = LAYOUTS[layout](sets.features)
    assert layout == "offset" or not view.is_contiguous()
    torch.testing.assert_close(view, sets.features, rtol=0, atol=0)
    weights, mask = torch.rand(3, 10), sets.mask if masked else None
    _same(_outcome(view, weights, mask), _outcome(sets.features, weights, mask))


def test_sorted_sum_reads_expanded_tensors():
    """Tensors that repeat one memory (expand) are read as what they show."""
    features, weights = torch.randn(1, 10, 24).expand(4, -1, -1), torch.rand(1, 10).expand(4, -1)
    mask = torch.tensor([[True] * 7 + [False] * 3]).expand(4, -1)
    upstream = torch.ones(()).expand(4, 24)  # what .sum() sends back
    _same(_outcome(features, weights, mask), _outcome(features.clone(), weights.clone(), mask.clone()))
    out = sorted_weighted_sum(features.clone().requires_grad_(), weights, mask, path="network")
    out.backward(upstream)


def test_inputs_are_left_alone():
    """Neither direction writes into features, weights, mask or the incoming gradient."""
    sets = make_sets(3, 10, 24)
    weights, upstream = torch.rand(3, 10), torch.randn(3, 24)
    tensors = [sets.features, weights, sets.mask, upstream]
    before = [tensor.clone() for tensor in tensors]
    out = sorted_weighted_sum(sets.features.requires_grad_(), weights.requires_grad_(), sets.mask, path="network")
    out.backward(upstream)
    _same([tensor.detach() for tensor in tensors], before)


def test_nothing_but_the_inputs_is_saved():
    """The backward pass keeps the inputs alive and no tensor besides."""
    sets = make_sets(3, 10, 24)
    features, weights = sets.features.requires_grad_(), torch.rand(3, 10, requires_grad=True)
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        sorted_weighted_sum(features, weights, sets.mask, path="network")
    assert saved
    inputs = {tensor.data_ptr() for tensor in (features, weights, sets.mask)}
    assert {tensor.data_ptr() for tensor in saved} <= inputs


def test_one_thread_gives_the_same():
    """The number of torch threads changes no bit of the result."""
    sets = make_sets(9, 12, LARGE)
    weights, before = torch.rand(9, 12), torch.get_num_threads()
    try:
        outcomes = []
        for threads in (1, 2, 3, 16):
            torch.set_num_threads(threads)
            outcomes.append(_outcome(sets.features, weights, sets.mask))
    finally:
        torch.set_num_threads(before)
    for outcome in outcomes[1:]:
        _same(outcome, outcomes[0])


def test_several_python_threads_at_once():
    """Callers in many threads, forward and backward, do not disturb each other."""
    batches = [(make_sets(4, 5 + i, LARGE, seed=i), torch.rand(4, 5 + i)) for i in range(8)]
    expected = [_outcome(sets.features, weights, sets.mask) for sets, weights in batches]
    start = threading.Barrier(8)

    def work(i: int) -> list[list[torch.Tensor]]:
        start.wait(timeout=30)
        sets, weights = batches[i]
        return [_outcome(sets.features, weights, sets.mask) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        for found, one in zip(pool.map(work, range(8)), expected, strict=True):
            for outcome in found:
                _same(outcome, one)


# torch's own threads do not survive a fork, so the child calls nothing of torch that would use them: all its tensors
# are made before, and it compares with numpy. What is tested is the kernels' threads.
FORK = """
    import {how}, os, signal, numpy, torch
    from vse.pooling import sorted_weighted_sum

    torch.set_num_threads(2)
    features, weights = torch.arange(24.0 * {width}).view(4, 6, {width}), torch.ones(6) / 6
    leaves = [features.clone().requires_grad_() for _ in range(3)]
    upstream = torch.ones(4, {width})

    def pooled():
        leaf = leaves.pop()
        out = sorted_weighted_sum(leaf, weights, path="network")
        out.backward(upstream)
        return out.detach().numpy(), leaf.grad.numpy()

    def right():
        return all(numpy.array_equal(one, other) for one, other in zip(pooled(), expected))

    expected = pooled()  # starts the threads that a child will not have

    def child():
        signal.alarm(40)  # a child that hangs ends by itself
        os._exit(0 if right() else 3)
"""
OS_FORK = """
    child_id = os.fork()
    if child_id == 0:
        child()
    codes = [os.waitstatus_to_exitcode(os.waitpid(child_id, 0)[1])]
"""
MULTIPROCESSING = """
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=child) for _ in range(2)]
    for process in children:
        process.start()
    for process in children:
        process.join()
    codes = [process.exitcode for process in children]
"""
AFTER = """
    assert codes == [0] * len(codes), codes
    assert right()  # and the parent is as before
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(("how", "fork"), [("os", OS_FORK), ("multiprocessing", MULTIPROCESSING)])
def test_a_forked_child_can_pool(how, fork):
    """A process forked after its parent has pooled pools correctly and does not hang; nor does the parent."""
    script = "".join(textwrap.dedent(part) for part in (FORK.format(how=how, width=LARGE), fork, AFTER))
    done = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_sorted_sum_without_gradients(context):
    """Under no_grad and in inference mode the result is the same and carries no graph."""
    sets, weights = make_sets(3, 10, 24), torch.rand(3, 10)
    expected = _outcome(sets.features, weights, sets.mask)[0]
    with context():
        found = sorted_weighted_sum(sets.features.requires_grad_(), weights, sets.mask, path="network")
    assert not found.requires_grad
    torch.testing.assert_close(found.clone(), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("dtype", "shape", "masked"),
    [(torch.float32, (6,), False), (torch.float64, (3, 6), True), (torch.float32, (3, 6, 9), True)],
)
def test_operators_keep_torchs_rules(dtype, shape, masked):
    """The operators declare what they mutate, have a fake that matches, and differentiate under torch.compile."""
    sets = make_sets(3, 6, 9, dtype=dtype)
    features, weights = sets.features.requires_grad_(), torch.rand(shape, dtype=dtype)
    weights = (weights.unsqueeze(0) if weights.dim() == 1 else weights).requires_grad_()
    mask = sets.mask if masked else None
    torch.library.opcheck(torch.ops.vse.sorted_weighted_sum.default, (features, weights, mask))
    grad = torch.randn(3, 9, dtype=dtype)
    inputs = (grad, features.detach(), weights.detach(), mask)
    torch.library.opcheck(torch.ops.vse.sorted_weighted_sum_backward.default, inputs)
