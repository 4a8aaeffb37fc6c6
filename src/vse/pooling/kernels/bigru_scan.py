"""Numba kernels of a small bidirectional GRU over the prefixes of one input sequence.

A coefficient generator runs its GRU over positions 0..n-1 for several sizes n at once. The forward states do not
depend on where the sequence ends, so they are computed once for the largest size; only the backward direction runs per
size. Gates are in torch's order: reset, update, new.
"""

import math

import numpy as np
from numba import njit
from numba.extending import register_jitable

from vse.pooling.kernels.vector import LANES, SUMS, add_scaled_rows

TANH_LIMIT = np.float32(7.90531110763549805)
"""For larger values tanh is 1 in float32."""


@register_jitable
def tanh32(x):
    """Compute tanh in float32 as a quotient of two polynomials, within 4e-7; it vectorises, unlike a library call."""
    x = min(max(x, -TANH_LIMIT), TANH_LIMIT)
    s = x * x
    top = np.float32(-2.76076847742355e-16) * s + np.float32(2.00018790482477e-13)
    top = top * s + np.float32(-8.60467152213735e-11)
    top = top * s + np.float32(5.12229709037114e-08)
    top = top * s + np.float32(1.48572235717979e-05)
    top = top * s + np.float32(6.37261928875436e-04)
    top = (top * s + np.float32(4.89352455891786e-03)) * x
    low = np.float32(1.19825839466702e-06) * s + np.float32(1.18534705686654e-04)
    low = low * s + np.float32(2.26843463243900e-03)
    low = low * s + np.float32(4.89352518554385e-03)
    return top / low


@njit(nogil=True, cache=True, error_model="numpy")
def scan_both(ahead_in, ahead_w, ahead_b, back_in, back_w, back_b, sizes, states, gates, averaged, first, last):
    """Run both directions for the sizes ``first..last`` and average them.

    Per direction: ``in (N, 3H)`` is ``x W_ih^T + b_ih``, ``w (3H, H)`` is ``W_hh``, ``b`` is ``b_hh``. Writes row
    ``1 + u`` of ``states (1 + U, N, H)`` and ``gates (1 + U, N, 4H)`` for the backward direction of size u, row 0 for
    the forward direction, and ``averaged (U, N, H)``. A range that does not start at 0 recomputes the forward
    direction, which is cheaper than waiting for another thread.
    """
    total = ahead_in.shape[0]
    half = ahead_in.dtype.type(0.5)
    ahead_rows, back_rows = np.ascontiguousarray(ahead_w.T), np.ascontiguousarray(back_w.T)
    if first == 0:
        ahead = states[0]
        _scan(ahead_in, ahead_rows, ahead_b, total, False, ahead, gates[0])
    else:
        ahead = np.empty(states.shape[1:], states.dtype)
        _scan(ahead_in, ahead_rows, ahead_b, total, False, ahead, np.empty(gates.shape[1:], gates.dtype))
    for u in range(first, last):
        _scan(back_in, back_rows, back_b, sizes[u], True, states[1 + u], gates[1 + u])
        for k in range(sizes[u]):
            for h in range(ahead.shape[1]):
                averaged[u, k, h] = half * (ahead[k, h] + states[1 + u, k, h])


@njit(nogil=True, cache=True, error_model="numpy")
def _scan(inputs, recurrent, bias, size, backwards, states, gates):
    """Run one direction over positions ``0..size-1``, reversed if ``backwards``; ``recurrent (H, 3H)`` is ``W_hh^T``.

    Writes ``states (N, H)`` and ``gates (N, 4H)``: reset, update, new, and the recurrent part of new. No gates are
    written if ``gates`` is empty.
    """
    keep = gates.shape[0] > 0
    hidden = recurrent.shape[0]
    single = inputs.itemsize == 4
    half = inputs.dtype.type(0.5)
    one = inputs.dtype.type(1)
    in_vectors = 3 * hidden // (SUMS * LANES) * (SUMS * LANES)
    state = np.zeros(hidden, inputs.dtype)
    pre = np.empty(3 * hidden, inputs.dtype)
    both = np.empty(2 * hidden, inputs.dtype)  # reset and update
    new = np.empty(hidden, inputs.dtype)
    for t in range(size):
        k = size - 1 - t if backwards else t
        pre[:] = bias
        for start in range(0, in_vectors, SUMS * LANES):
            add_scaled_rows(pre, recurrent, state, start)
        for i in range(hidden):
            for g in range(in_vectors, 3 * hidden):
                pre[g] += recurrent[i, g] * state[i]
        if single:
            for g in range(2 * hidden):
                both[g] = half * tanh32(half * (inputs[k, g] + pre[g])) + half  # the logistic function
            for h in range(hidden):
                new[h] = tanh32(inputs[k, 2 * hidden + h] + both[h] * pre[2 * hidden + h])
        else:
            for g in range(2 * hidden):
                both[g] = one / (one + math.exp(-(inputs[k, g] + pre[g])))
            for h in range(hidden):
                new[h] = math.tanh(inputs[k, 2 * hidden + h] + both[h] * pre[2 * hidden + h])
        if keep:
            for h in range(hidden):
                gates[k, h] = both[h]
                gates[k, hidden + h] = both[hidden + h]
                gates[k, 2 * hidden + h] = new[h]
                gates[k, 3 * hidden + h] = pre[2 * hidden + h]
        for h in range(hidden):
            state[h] = new[h] + both[hidden + h] * (state[h] - new[h])
            states[k, h] = state[h]


@njit(nogil=True, cache=True, error_model="numpy")
def scan_backward(weight, sizes, backwards, states, gates, grad, grad_inputs, grad_pre, first, last):
    """Compute the gradients of one direction with respect to the gates' inputs, for the sequences ``first..last``.

    ``weight (3H, H)`` is ``W_hh``; ``grad (U, N, H)``. Writes ``grad_inputs (U, N, 3H)``, with respect to
    ``x W_ih^T + b_ih``, and ``grad_pre (U, N, 3H)``, with respect to ``h W_hh^T + b_hh``; both must be zero on entry.
    """
    hidden = weight.shape[1]
    carried = np.empty(hidden, states.dtype)
    for u in range(first, last):
        size = sizes[u]
        carried[:] = 0
        for t in range(size - 1, -1, -1):
            k = size - 1 - t if backwards else t
            before = k + 1 if backwards else k - 1
            for h in range(hidden):
                reset = gates[u, k, h]
                update = gates[u, k, hidden + h]
                new = gates[u, k, 2 * hidden + h]
                recurrent_new = gates[u, k, 3 * hidden + h]
                previous = states[u, before, h] if t > 0 else states.dtype.type(0)
                total = carried[h] + grad[u, k, h]
                to_new = total * (1 - update) * (1 - new * new)
                to_update = total * (previous - new) * update * (1 - update)
                to_reset = to_new * recurrent_new * reset * (1 - reset)
                grad_inputs[u, k, h] = to_reset
                grad_inputs[u, k, hidden + h] = to_update
                grad_inputs[u, k, 2 * hidden + h] = to_new
                grad_pre[u, k, h] = to_reset
                grad_pre[u, k, hidden + h] = to_update
                grad_pre[u, k, 2 * hidden + h] = to_new * reset
                carried[h] = total * update
            for g in range(3 * hidden):
                scale = grad_pre[u, k, g]
                for h in range(hidden):
                    carried[h] += weight[g, h] * scale
