"""A small bidirectional GRU over positions, for sets of several sizes; the directions are averaged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from vse.errors import InputError
from vse.pooling.kernels.runtime import compiled, usable_on
from vse.pooling.kernels.threads import run_in_ranges
from vse.pooling.sets import prefix_mask

Backward = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor]], list[Tensor]]
PARAMETERS = [
    f"{kind}_l0{direction}"
    for direction in ("", "_reverse")
    for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
]
"""In torch's order; looked up by name so that pruned, parametrised and replicated modules work."""
SPLIT_STEPS = 2000
"""With fewer steps of the recurrence, one thread finishes before a second one starts."""


class PositionGRU(nn.Module):
    """One-layer BiGRU whose two directions are averaged; parameters are named as in ``nn.GRU``.

    Given one input sequence ``(N, d)`` and sizes ``(U,)``, it returns ``(U, N, H)``: row u holds the states of the
    sequence truncated to ``sizes[u]``, zero past the end. States are at least float32, regardless of autocast and the
    dtype of the parameters, because a softmax at temperature 0.1 follows.
    """

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        # Not a subclass of nn.GRU, which torch.compile does not trace into; only its parameters are needed.
        for name, parameter in nn.GRU(d_in, d_hidden, bidirectional=True).named_parameters():
            self.register_parameter(name, parameter)

    def forward(self, inputs: Tensor, sizes: Tensor) -> Tensor:
        weights = [cast(Tensor, getattr(self, name)) for name in PARAMETERS]
        dtype = torch.promote_types(weights[0].dtype, torch.float32)
        parameters = [weight.to(dtype) for weight in weights]
        inputs = inputs.to(dtype)
        if inputs.dim() == 2 and usable_on(inputs, *parameters):
            return scan_states(inputs, sizes, parameters)
        return plain_states(inputs, sizes, parameters)


def plain_states(inputs: Tensor, sizes: Tensor, parameters: list[Tensor]) -> Tensor:
    """Compute the reference result with torch operators, for one shared sequence ``(N, d)`` or one per set."""
    if inputs.dim() == 2:
        inputs = inputs.unsqueeze(0)
    total, hidden = inputs.shape[1], parameters[1].shape[1]
    count = sizes.shape[0]
    if total == 0 and not compiled():
        return inputs.new_zeros(count, 0, hidden)
    place = torch.arange(total, device=inputs.device)
    mirror = (sizes.unsqueeze(1) - 1 - place).clamp(min=0).unsqueeze(-1)  # (U, N, 1): its own inverse where valid
    with torch.autocast(inputs.device.type, enabled=False):
        ahead = _gru(inputs, parameters[:4])  # (1 or U, N, H)
        turned = inputs.expand(count, -1, -1).gather(1, mirror.expand(-1, -1, inputs.shape[2]))
        back = _gru(turned, parameters[4:]).gather(1, mirror.expand(-1, -1, hidden))
    return ((ahead + back) / 2).masked_fill(~prefix_mask(sizes, total).unsqueeze(-1), 0)


def _gru(inputs: Tensor, parameters: list[Tensor]) -> Tensor:
    start = inputs.new_zeros(1, inputs.shape[0], parameters[1].shape[1])
    gru = cast(Any, torch.gru)
    # Always in training mode: cuDNN has no gradients in evaluation mode, and there is no dropout.
    states: Tensor = gru(inputs, start, parameters, True, 1, 0.0, True, False, True)[0]
    return states


def scan_states(inputs: Tensor, sizes: Tensor, parameters: list[Tensor]) -> Tensor:
    """Run the compiled recurrence on one shared sequence ``(N, d)``; differentiable."""
    if torch.compiler.is_compiling():
        return cast(tuple[Tensor, ...], _scan_operator(inputs, sizes, parameters))[0]
    if not torch.is_grad_enabled():
        return _run_scan(inputs, sizes, parameters, keep_gates=False)[0]
    return cast(tuple[Tensor, ...], cast(Any, _Scan).apply(inputs, sizes, *parameters))[0]


def _scan_forward(inputs: Tensor, sizes: Tensor, parameters: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return _run_scan(inputs, sizes, parameters, keep_gates=True)


def _run_scan(
    inputs: Tensor, sizes: Tensor, parameters: list[Tensor], *, keep_gates: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the averaged states ``(U, N, H)``, and for the backward pass states ``(1 + U, N, H)`` and gates
    ``(1 + U, N, 4H)`` of both directions (row 0 is the forward direction, shared by all sizes).
    """
    from vse.pooling.kernels.bigru_scan import scan_both

    if sizes.numel() and int(sizes.max()) > inputs.shape[0]:  # the kernel would write out of bounds
        raise InputError(f"a size of {int(sizes.max())} is larger than the {inputs.shape[0]} positions given")
    total, hidden, count = inputs.shape[0], parameters[1].shape[1], sizes.shape[0]
    states = inputs.new_zeros(1 + count, total, hidden)
    gates = inputs.new_empty(1 + count, total if keep_gates else 0, 4 * hidden)
    averaged = inputs.new_zeros(count, total, hidden)
    arrays = []
    for start in (0, 4):
        w_ih, w_hh, b_ih, b_hh = (parameter.detach() for parameter in parameters[start : start + 4])
        arrays += [torch.addmm(b_ih, inputs.detach(), w_ih.T), w_hh.contiguous(), b_hh.contiguous()]
    arrays += [sizes.contiguous(), states, gates, averaged]
    task = partial(scan_both, *(array.numpy() for array in arrays))
    run_in_ranges(task, count, worth_splitting=count * total >= SPLIT_STEPS)
    return averaged, states, gates


def _scan_backward(
    grad: Tensor, inputs: Tensor, sizes: Tensor, states: Tensor, gates: Tensor, parameters: list[Tensor]
) -> list[Tensor]:
    """Return the gradients of the inputs and of the eight parameters."""
    from vse.pooling.kernels.bigru_scan import scan_backward

    total, hidden = inputs.shape[0], parameters[1].shape[1]
    half = (grad * prefix_mask(sizes, total).unsqueeze(-1) / 2).contiguous()  # (U, N, H)
    grad_inputs = torch.zeros_like(inputs)
    grads = []
    for direction, (rows, ends) in enumerate(_sequences(sizes, total)):
        w_ih, w_hh, _, _ = parameters[4 * direction : 4 * direction + 4]
        incoming = half if direction else half.sum(dim=0, keepdim=True)
        grad_projected = inputs.new_zeros(incoming.shape[0], total, 3 * hidden)
        grad_pre = torch.zeros_like(grad_projected)
        arrays = [w_hh.contiguous().numpy(), ends.numpy(), bool(direction), states[rows].numpy(), gates[rows].numpy()]
        task = partial(scan_backward, *arrays, incoming.numpy(), grad_projected.numpy(), grad_pre.numpy())
        run_in_ranges(task, ends.shape[0], worth_splitting=ends.shape[0] * total >= SPLIT_STEPS)
        before = torch.zeros_like(states[rows])  # the state each step started from
        if direction:
            before[:, :-1] = states[rows][:, 1:]
        else:
            before[:, 1:] = states[rows][:, :-1]
        by_position = grad_projected.sum(dim=0)  # (N, 3H): the inputs are shared by all sizes
        flat = grad_pre.flatten(0, 1)
        grads += [by_position.T @ inputs, flat.T @ before.flatten(0, 1), by_position.sum(dim=0), flat.sum(dim=0)]
        grad_inputs += by_position @ w_ih
    return [grad_inputs, *grads]


def _sequences(sizes: Tensor, total: int) -> tuple[tuple[slice, Tensor], tuple[slice, Tensor]]:
    """Return rows and ends of the sequences per direction: one of full length forward, one per size backward."""
    return (slice(0, 1), sizes.new_tensor([total])), (slice(1, 1 + sizes.shape[0]), sizes.contiguous())


def _gradients(backward: Backward, saved: tuple[Tensor, ...], grad: Tensor) -> list[Tensor | None]:
    inputs, sizes, states, gates, *parameters = saved
    if torch.is_grad_enabled():  # second-order gradients: differentiate the reference implementation
        tensors = [inputs, *parameters]
        wanted = [tensor for tensor in tensors if tensor.requires_grad]
        found = iter(torch.autograd.grad(plain_states(inputs, sizes, parameters), wanted, grad, create_graph=True))
        return [next(found) if tensor.requires_grad else None for tensor in tensors]
    return list(backward(grad, inputs, sizes, states, gates, parameters))


class _Scan(torch.autograd.Function):
    """Autograd function for eager mode: a registered torch operator would cost more than the recurrence itself."""

    @staticmethod
    def forward(inputs: Tensor, sizes: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _scan_forward(inputs, sizes, list(parameters))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.save_for_backward(inputs[0], inputs[1], output[1], output[2], *inputs[2:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        first, *others = _gradients(_scan_backward, ctx.saved_tensors, grad)
        return first, None, *others


# torch.compile sees the same functions as opaque operators with known output shapes.
_scan_operator = torch.library.custom_op("vse::bigru_scan", _scan_forward, mutates_args=())
_backward_operator = torch.library.custom_op("vse::bigru_scan_backward", _scan_backward, mutates_args=())


@_scan_operator.register_fake
def _(inputs: Tensor, sizes: Tensor, parameters: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    total, hidden, count = inputs.shape[0], parameters[1].shape[1], sizes.shape[0]
    return (
        inputs.new_empty(count, total, hidden),
        inputs.new_empty(1 + count, total, hidden),
        inputs.new_empty(1 + count, total, 4 * hidden),
    )


@_backward_operator.register_fake
def _(
    grad: Tensor, inputs: Tensor, sizes: Tensor, states: Tensor, gates: Tensor, parameters: list[Tensor]
) -> list[Tensor]:
    return [torch.empty_like(inputs), *(torch.empty_like(p) for p in parameters)]


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, list[Tensor]], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1], output[2], *inputs[2])


def _operator_gradients(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, None, list[Tensor | None]]:
    first, *others = _gradients(_backward_operator, ctx.saved_tensors, grad)
    return first, None, others


_scan_operator.register_autograd(_operator_gradients, setup_context=_save)
