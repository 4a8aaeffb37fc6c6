"""A small bidirectional GRU over the positions of sets of several sizes, directions averaged."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from vse.pooling.kernels.runtime import run_in_ranges, usable_on


class PositionGRU(nn.GRU):
    """One-layer BiGRU whose two directions are averaged; parameters are named as in ``nn.GRU``.

    Called with one input sequence ``(N, d)`` and the sizes ``(U,)``, it gives ``(U, N, H)``: row u holds the states of
    the sequence cut at ``sizes[u]``, exactly as if nothing followed (positions past the cut are zero). The states are
    computed in float32 at least, whatever autocast or the parameters say: a softmax at temperature 0.1 follows.
    """

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__(d_in, d_hidden, num_layers=1, batch_first=True, bidirectional=True)

    def forward(self, inputs: Tensor, sizes: Tensor) -> Tensor:  # type: ignore[override]
        dtype = torch.promote_types(self.weight_ih_l0.dtype, torch.float32)
        parameters = [weight.to(dtype) for weight in self._flat_weights if weight is not None]
        inputs = inputs.to(dtype)
        if inputs.dim() == 2 and usable_on(inputs, *parameters):
            return cast(tuple[Tensor, ...], scan_states(inputs, sizes, parameters))[0]
        return plain_states(inputs, sizes, parameters)


def plain_states(inputs: Tensor, sizes: Tensor, parameters: list[Tensor]) -> Tensor:
    """The definition in torch operators, for one shared sequence ``(N, d)`` or one per set ``(U, N, d)``."""
    if inputs.dim() == 2:
        inputs = inputs.unsqueeze(0)
    total, hidden = inputs.shape[1], parameters[1].shape[1]
    count = sizes.shape[0]
    place = torch.arange(total, device=inputs.device)
    valid = place < sizes.unsqueeze(1)  # (U, N)
    mirror = (sizes.unsqueeze(1) - 1 - place).clamp(min=0).unsqueeze(-1)  # (U, N, 1): its own inverse where valid
    with torch.autocast(inputs.device.type, enabled=False):
        ahead = _gru(inputs, parameters[:4])  # (1 or U, N, H)
        turned = inputs.expand(count, -1, -1).gather(1, mirror.expand(-1, -1, inputs.shape[2]))
        back = _gru(turned, parameters[4:]).gather(1, mirror.expand(-1, -1, hidden))
    return ((ahead + back) / 2).masked_fill(~valid.unsqueeze(-1), 0)


def _gru(inputs: Tensor, parameters: list[Tensor]) -> Tensor:
    start = inputs.new_zeros(1, inputs.shape[0], parameters[1].shape[1])
    gru = cast(Any, torch.gru)
    states: Tensor = gru(inputs, start, parameters, True, 1, 0.0, False, False, True)[0]
    return states


@torch.library.custom_op("vse::bigru_scan", mutates_args=())
def scan_states(inputs: Tensor, sizes: Tensor, parameters: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Averaged states ``(U, N, H)``; the states of both directions ``(1 + U, N, H)`` and their gates ``(1 + U, N, 4H)``
    follow for the backward pass (row 0 is the forward direction, which serves every size)."""
    from vse.pooling.kernels.bigru_scan import scan

    total, hidden, count = inputs.shape[0], parameters[1].shape[1], sizes.shape[0]
    states = inputs.new_zeros(1 + count, total, hidden)
    gates = inputs.new_empty(1 + count, total, 4 * hidden)
    for direction, rows in _directions(count):
        w_ih, w_hh, b_ih, b_hh = parameters[4 * direction : 4 * direction + 4]
        projected = torch.addmm(b_ih, inputs, w_ih.T).numpy()
        arrays = (projected, w_hh.T.contiguous().numpy(), b_hh.contiguous().numpy())
        ends = sizes if direction else sizes.new_tensor([total])
        outputs = (states[rows].numpy(), gates[rows].numpy())
        run_in_ranges(
            lambda first, last, a=arrays, e=ends.numpy(), d=bool(direction), o=outputs: scan(*a, e, d, *o, first, last),
            int(ends.shape[0]),
        )
    place = torch.arange(total)
    averaged = ((states[:1] + states[1:]) / 2).masked_fill_((place >= sizes.unsqueeze(1)).unsqueeze(-1), 0)
    return averaged, states, gates


@scan_states.register_fake
def _(inputs: Tensor, sizes: Tensor, parameters: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    total, hidden, count = inputs.shape[0], parameters[1].shape[1], sizes.shape[0]
    return (
        inputs.new_empty(count, total, hidden),
        inputs.new_empty(1 + count, total, hidden),
        inputs.new_empty(1 + count, total, 4 * hidden),
    )


@torch.library.custom_op("vse::bigru_scan_backward", mutates_args=())
def scan_states_backward(
    grad: Tensor, inputs: Tensor, sizes: Tensor, states: Tensor, gates: Tensor, parameters: list[Tensor]
) -> list[Tensor]:
    """Gradients for the inputs and for the eight parameters."""
    from vse.pooling.kernels.bigru_scan import scan_backward

    total, hidden, count = inputs.shape[0], parameters[1].shape[1], sizes.shape[0]
    valid = (torch.arange(total) < sizes.unsqueeze(1)).unsqueeze(-1)
    half = (grad * valid / 2).contiguous()  # (U, N, H)
    grads: list[Tensor] = []
    grad_input = torch.zeros_like(inputs)
    for direction, rows in _directions(count):
        w_ih, w_hh, _, _ = parameters[4 * direction : 4 * direction + 4]
        incoming = half if direction else half.sum(dim=0, keepdim=True)
        ends = sizes if direction else sizes.new_tensor([total])
        grad_projected = inputs.new_zeros(incoming.shape[0], total, 3 * hidden)
        grad_pre = torch.zeros_like(grad_projected)
        arrays = (w_hh.contiguous().numpy(), ends.numpy(), bool(direction), states[rows].numpy(), gates[rows].numpy())
        outputs = (incoming.numpy(), grad_projected.numpy(), grad_pre.numpy())
        run_in_ranges(
            lambda first, last, a=arrays, o=outputs: scan_backward(*a, *o, first, last), int(incoming.shape[0])
        )
        before = torch.zeros_like(states[rows])
        if direction:
            before[:, :-1] = states[rows][:, 1:]
        else:
            before[:, 1:] = states[rows][:, :-1]
        by_position = grad_projected.sum(dim=0)  # (N, 3H): the inputs are shared by all sizes
        flat = grad_pre.flatten(0, 1)
        grads += [by_position.T @ inputs, flat.T @ before.flatten(0, 1), by_position.sum(dim=0), flat.sum(dim=0)]
        grad_input += by_position @ w_ih
    return [grad_input, *grads]


@scan_states_backward.register_fake
def _(
    grad: Tensor, inputs: Tensor, sizes: Tensor, states: Tensor, gates: Tensor, parameters: list[Tensor]
) -> list[Tensor]:
    return [torch.empty_like(inputs), *(torch.empty_like(p) for p in parameters)]


def _directions(count: int) -> tuple[tuple[int, slice], tuple[int, slice]]:
    return (0, slice(0, 1)), (1, slice(1, 1 + count))


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, list[Tensor]], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1], output[2], *inputs[2])


def _gradient(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, None, list[Tensor | None]]:
    inputs, sizes, states, gates, *parameters = ctx.saved_tensors
    if torch.is_grad_enabled():  # gradients of gradients: go through the definition
        tensors = [inputs, *parameters]
        wanted = [tensor for tensor in tensors if tensor.requires_grad]
        found = iter(torch.autograd.grad(plain_states(inputs, sizes, parameters), wanted, grad, create_graph=True))
        first, *others = [next(found) if tensor.requires_grad else None for tensor in tensors]
        return first, None, others
    grad_inputs, *grads = scan_states_backward(grad, inputs, sizes, states, gates, parameters)
    return grad_inputs, None, grads


scan_states.register_autograd(_gradient, setup_context=_save)
