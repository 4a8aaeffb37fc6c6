"""Sort each feature dimension over the set, weight the ranks and sum: the core of every rank pooling."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor

from vse.errors import InputError, install_hint
from vse.pooling.kernels.runtime import usable_on
from vse.pooling.kernels.threads import run_in_ranges
from vse.pooling.sets import one_of, prefix_mask, read_sets, sizes_of

Path = Literal["auto", "plain", "network"]
Backward = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]

NETWORK_MAX_SIZE = 2048
"""Largest set for the network: its cost grows with N log² N, that of a sort with N log N."""
NETWORK_MIN_WIDTH = 16
"""Smallest feature size for the network, which is vectorised over feature dimensions."""
NETWORK_MIN_VALUES = 8192
"""With fewer feature values, the call costs more than the sort."""
SPLIT_VALUES = 400_000
"""With fewer feature values, one thread finishes before a second one starts."""


def sorted_weighted_sum(
    features: Tensor,
    weights: Tensor,
    mask: Tensor | None = None,
    *,
    check_finite: bool = False,
    path: Path = "auto",
) -> Tensor:
    """Compute ``out[b, d] = sum_k weights[b, k] max_k(features[b, :, d])``, the weighted sum over sorted elements.

    Args:
        features: ``(B, N, D)``, any floating dtype.
        weights: One weight per rank: ``(N,)`` shared by all sets, ``(B, N)`` per set, or ``(B, N, D)`` / ``(1, N, D)``
            per feature dimension as well. Rank 0 is the largest value.
        mask: ``(B, N)`` boolean, any pattern; the valid elements of set b take its first n ranks, and weights past n
            are ignored.
        check_finite: Raise :class:`~vse.errors.InputError` if a valid element is NaN or inf.
        path: ``"auto"`` chooses; the other two force a path (for tests and benchmarks).

    Returns:
        ``(B, D)`` in the dtype of the features; float16 and bfloat16 are summed in float32.

    Two paths produce exactly the same ranks:

    - *network*: a compiled sorting network, vectorised over feature dimensions, forward and backward. Used on the CPU
      for float32 and float64 (and half precision, converted) if numba is installed, 2 <= N <= 2048, D >= 16 and there
      are at least 8,192 values. It keeps only its inputs for the backward pass, and is a single operator for
      ``torch.compile``.
    - *plain*: ``torch.sort``. Used everywhere else: CUDA and other devices, tiny or very large sets, no numba, and
      whenever torch records a graph (``torch.export``, ``torch.jit.trace``).

    Both paths order special values as ``-inf`` < numbers < ``+inf`` < NaN, so NaN takes the first ranks. Products
    follow IEEE arithmetic: a zero weight times an infinite value is NaN.
    """
    mask = read_sets(features, mask=mask, check_finite=check_finite)
    one_of("path", path, ("auto", "plain", "network"))
    return sum_checked(features, _read_weights(features, weights), mask, path)


def sum_checked(features: Tensor, weights: Tensor, mask: Tensor | None, path: Path = "auto") -> Tensor:
    """Compute :func:`sorted_weighted_sum` of checked arguments; ``weights (B or 1, N[, D])``."""
    compute = torch.promote_types(torch.promote_types(features.dtype, weights.dtype), torch.float32)
    x, w = features.to(compute), weights.to(compute)
    if path == "network" and not usable_on(x, w):
        raise InputError(f"path='network' needs numba ({install_hint('fast')}) and CPU tensors; or use path='auto'")
    if path == "network" or (path == "auto" and _network_pays(x, w)):
        out = network_sum(x, w, mask)
    else:
        out = plain_sum(x, w, mask)
    return out.to(features.dtype)


def sort_elements(features: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the features of each set in descending order, ``(B, N, D)``; ranks past a set's size are zero.

    This sort treats a valid ``-inf`` and padding as equal, so the gradient of such an element may be lost;
    distinguishing them would cost every masked call a second pass.
    """
    if mask is None:
        return features.sort(dim=1, descending=True).values
    padded = features.masked_fill(~mask.unsqueeze(-1), float("-inf"))
    return padded.sort(dim=1, descending=True).values.masked_fill(_beyond(features, mask), 0)


def _beyond(features: Tensor, mask: Tensor) -> Tensor:
    """Return ``(B, N, 1)``: the ranks past a set's size."""
    return ~prefix_mask(sizes_of(features, mask), features.shape[1]).unsqueeze(-1)


def plain_sum(features: Tensor, weights: Tensor, mask: Tensor | None) -> Tensor:
    """Compute the reference result in torch operators; differentiable any number of times."""
    ordered = sort_elements(features, mask)
    if weights.dim() == 2:
        weights = weights.unsqueeze(-1)
    if mask is not None:
        # Weights past a set's size may hold any value, even NaN.
        weights = weights.masked_fill(_beyond(features, mask), 0)
    return (ordered * weights).sum(dim=1)


def _read_weights(features: Tensor, weights: Tensor) -> Tensor:
    batch, total, width = features.shape
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        kind = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
        raise InputError(f"weights must be a floating point tensor, got {kind}")
    if weights.device != features.device:
        raise InputError(f"weights are on {weights.device} but features are on {features.device}")
    shape = tuple(weights.shape)
    # Compare one by one: sizes are symbolic while torch traces, and cannot be hashed.
    fits = (
        1 <= len(shape) <= 3
        and shape[min(len(shape) - 1, 1)] == total
        and (len(shape) == 1 or shape[0] == 1 or shape[0] == batch)
        and (len(shape) < 3 or shape[2] == width)
    )
    if not fits:
        raise InputError(
            f"weights must have shape ({total},), ({batch}, {total}) or ({batch}, {total}, {width}) "
            f"for features {tuple(features.shape)}, got {shape}"
        )
    return weights.unsqueeze(0) if weights.dim() == 1 else weights


def _network_pays(features: Tensor, weights: Tensor) -> bool:
    _, total, width = features.shape
    return (
        usable_on(features, weights)  # first: when traced, the comparisons of sizes would become guards
        and 1 < total <= NETWORK_MAX_SIZE
        and width >= NETWORK_MIN_WIDTH
        and features.numel() >= NETWORK_MIN_VALUES
    )


def network_sum(features: Tensor, weights: Tensor, mask: Tensor | None) -> Tensor:
    """Run the sorting network: ``(B, N, D)``, ``(B or 1, N[, D])``, ``(B, N)`` to ``(B, D)``, differentiable."""
    if torch.compiler.is_compiling():
        return cast(Tensor, _network_operator(features, weights, mask))
    return cast(Tensor, cast(Any, _NetworkSum).apply(features, weights, mask))


def _network_forward(features: Tensor, weights: Tensor, mask: Tensor | None) -> Tensor:
    from vse.pooling.kernels import sorted_sum as kernel

    out = features.new_empty(features.shape[0], features.shape[2])
    arrays = [*_arrays(features, mask, weights), out.numpy()]
    block = kernel.columns_per_block(features.shape[1], features.shape[2], features.element_size())
    task = partial(kernel.sum_sorted, *arrays, block)
    run_in_ranges(task, features.shape[0], worth_splitting=features.numel() >= SPLIT_VALUES)
    return out


def _network_backward(grad: Tensor, features: Tensor, weights: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the gradients of features and weights, the latter per set: ``(B, N[, D])``."""
    from vse.pooling.kernels import sorted_sum as kernel

    new = features.new_empty if mask is None else features.new_zeros
    grad_features = new(features.shape)
    grad_weights = new(features.shape[0], *weights.shape[1:])
    arrays = [*_arrays(features, mask, weights, grad), grad_features.numpy(), grad_weights.numpy()]
    block = kernel.columns_per_block(features.shape[1], features.shape[2], features.element_size())
    task = partial(kernel.sum_sorted_backward, *arrays, block)
    run_in_ranges(task, features.shape[0], worth_splitting=features.numel() >= SPLIT_VALUES)
    return grad_features, grad_weights


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(backward: Backward, ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    features, weights, mask = ctx.saved_tensors
    if torch.is_grad_enabled():  # second-order gradients: differentiate the reference implementation
        wanted = [tensor for tensor in (features, weights) if tensor.requires_grad]
        found = iter(torch.autograd.grad(plain_sum(features, weights, mask), wanted, grad, create_graph=True))
        first, second = (next(found) if tensor.requires_grad else None for tensor in (features, weights))
        return first, second, None
    grad_features, grad_weights = backward(grad, features, weights, mask)
    if weights.shape[0] == 1 != grad_weights.shape[0]:
        grad_weights = grad_weights.sum(dim=0, keepdim=True)
    return grad_features, grad_weights, None


class _NetworkSum(torch.autograd.Function):
    """Autograd function for eager mode: a registered operator costs several times more per call."""

    forward = staticmethod(_network_forward)
    setup_context = staticmethod(_save_inputs)
    backward = staticmethod(partial(_gradients, _network_backward))


# torch.compile sees the same functions as opaque operators with known output shapes.
_network_operator = torch.library.custom_op("vse::sorted_weighted_sum", _network_forward, mutates_args=())
_backward_operator = torch.library.custom_op("vse::sorted_weighted_sum_backward", _network_backward, mutates_args=())
_network_operator.register_autograd(partial(_gradients, _backward_operator), setup_context=_save_inputs)


@_network_operator.register_fake
def _(features: Tensor, weights: Tensor, mask: Tensor | None) -> Tensor:
    return features.new_empty(features.shape[0], features.shape[2])


@_backward_operator.register_fake
def _(grad: Tensor, features: Tensor, weights: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    return features.new_empty(features.shape), features.new_empty(features.shape[0], *weights.shape[1:])


def _arrays(features: Tensor, mask: Tensor | None, *others: Tensor) -> list[Any]:
    """Return the tensors as contiguous arrays, as the kernels expect."""
    valid = features.new_ones(1, features.shape[1], dtype=torch.bool) if mask is None else mask
    return [tensor.detach().contiguous().numpy() for tensor in (features, valid, *others)]
