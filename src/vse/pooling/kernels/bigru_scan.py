"""Numba kernels of a small bidirectional GRU that reads the prefixes of one input sequence.

A pooling generator runs its GRU over positions 0..n-1 for several sizes n at once. The states of the forward
direction do not depend on where the sequence ends, so they are computed once for the longest size; only the backward
direction is run per size. Gates are in torch's order: reset, update, new.
"""

import math

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def _sigmoid(x):
    return 1 / (1 + math.exp(-x))


@njit(nogil=True, cache=True)
def scan(inputs, recurrent, bias, sizes, backwards, states, gates, first, last):
    """Run the recurrence for the sequences ``first..last``.

    ``inputs (N, 3H)`` is ``x W_ih^T + b_ih``; ``recurrent (H, 3H)`` is ``W_hh^T``; sequence u reads positions
    ``0..sizes[u]-1``, from the end when ``backwards``. Writes ``states (U, N, H)`` and, for the backward pass,
    ``gates (U, N, 4H)``: reset, update, new, and the recurrent part of new.
    """
    hidden = recurrent.shape[0]
    state = np.empty(hidden, inputs.dtype)
    pre = np.empty(3 * hidden, inputs.dtype)
    for u in range(first, last):
        size = sizes[u]
        state[:] = 0
        for t in range(size):
            k = size - 1 - t if backwards else t
            pre[:] = bias
            for i in range(hidden):
                scale = state[i]
                for g in range(3 * hidden):
                    pre[g] += recurrent[i, g] * scale
            for h in range(hidden):
                reset = _sigmoid(inputs[k, h] + pre[h])
                update = _sigmoid(inputs[k, hidden + h] + pre[hidden + h])
                new = math.tanh(inputs[k, 2 * hidden + h] + reset * pre[2 * hidden + h])
                gates[u, k, h] = reset
                gates[u, k, hidden + h] = update
                gates[u, k, 2 * hidden + h] = new
                gates[u, k, 3 * hidden + h] = pre[2 * hidden + h]
                value = new + update * (state[h] - new)
                state[h] = value
                states[u, k, h] = value


@njit(nogil=True, cache=True)
def scan_backward(weight, sizes, backwards, states, gates, grad, grad_inputs, grad_pre, first, last):
    """Gradients of :func:`scan` with respect to the gates' inputs, for the sequences ``first..last``.

    ``weight (3H, H)`` is ``W_hh``; ``grad (U, N, H)``. Writes ``grad_inputs (U, N, 3H)``, with respect to
    ``x W_ih^T + b_ih``, and ``grad_pre (U, N, 3H)``, with respect to ``h W_hh^T + b_hh``; both zero-filled before.
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
