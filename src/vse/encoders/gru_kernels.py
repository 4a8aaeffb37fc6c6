"""Numba kernels of a GRU over a tree of prefixes: everything in a step except the matrix products.

Gates are in torch's order: reset, update, new. ``gates (K, 4H)`` holds them, followed by the recurrent part of new.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from vse.pooling.kernels.bigru_scan import tanh32


@njit(nogil=True, cache=True, error_model="numpy")
def step_forward(
    projected: Any,
    words: Any,
    recurrent: Any,
    bias: Any,
    before: Any,
    stems: Any,
    starts: Any,
    places: Any,
    gates: Any,
    after: Any,
    out: Any,
    first: int,
    last: int,
) -> None:
    """Compute the states of the prefixes ``first..last`` of one level, which has n prefixes and m stems.

    ``projected[words]`` is ``x W_ih^T + b_ih``; ``before (m, H)`` holds the states h of the stems, ``recurrent
    (m, 3H)`` is ``h W_hh^T`` and ``bias`` is ``b_hh``. Writes ``gates (n, 4H)`` unless it is empty, and ``after
    (m', H)``, the states of the first m' prefixes, which have extensions. Adds half of each state to its places in
    ``out``.
    """
    hidden = before.shape[1]
    single = out.itemsize == 4
    half = out.dtype.type(0.5)
    one = out.dtype.type(1)
    both = np.empty(2 * hidden, out.dtype)  # reset and update
    inner = np.empty(hidden, out.dtype)
    new = np.empty(hidden, out.dtype)
    for k in range(first, last):
        given, stem, state = projected[words[k]], recurrent[stems[k]], before[stems[k]]
        for h in range(hidden):
            inner[h] = stem[2 * hidden + h] + bias[2 * hidden + h]
        if single:
            for g in range(2 * hidden):
                both[g] = half * tanh32(half * (given[g] + (stem[g] + bias[g]))) + half  # the logistic function
            for h in range(hidden):
                new[h] = tanh32(given[2 * hidden + h] + both[h] * inner[h])
        else:
            for g in range(2 * hidden):
                both[g] = one / (one + math.exp(-(given[g] + (stem[g] + bias[g]))))
            for h in range(hidden):
                new[h] = math.tanh(given[2 * hidden + h] + both[h] * inner[h])
        if gates.shape[0] > 0:
            kept = gates[k]
            kept[: 2 * hidden] = both
            kept[2 * hidden : 3 * hidden] = new
            kept[3 * hidden :] = inner
        for h in range(hidden):
            new[h] += both[hidden + h] * (state[h] - new[h])
        if k < after.shape[0]:
            after[k] = new
        for place in range(starts[k], starts[k + 1]):
            target = out[places[place]]
            for h in range(hidden):
                target[h] += half * new[h]


@njit(nogil=True, cache=True, error_model="numpy")
def step_backward(
    grad_out: Any,
    starts: Any,
    places: Any,
    child_starts: Any,
    children: Any,
    before: Any,
    gates: Any,
    carried: Any,
    grad_projected: Any,
    grad_recurrent: Any,
    grad_before: Any,
    first: int,
    last: int,
) -> None:
    """Compute the gradients of one level for its stems ``first..last``; prefixes and their arrays cover the whole tree.

    ``carried (m', H)`` is the gradient of the states of the level's first m' prefixes, which have extensions. Writes
    ``grad_projected (K, 3H)`` for the children of each stem, ``grad_recurrent (m, 3H)``, with respect to
    ``h W_hh^T + b_hh``, and ``grad_before (m, H)``, the direct part of the gradient of h.
    """
    hidden = before.shape[1]
    half = before.dtype.type(0.5)
    one = before.dtype.type(1)
    level = children[child_starts[0] : child_starts[-1]].min()
    total = np.empty(hidden, before.dtype)
    for s in range(first, last):
        state, direct, summed = before[s], grad_before[s], grad_recurrent[s]
        direct[:] = 0
        summed[:] = 0
        for child in range(child_starts[s], child_starts[s + 1]):
            k = children[child]
            total[:] = 0
            if k - level < carried.shape[0]:
                total[:] = carried[k - level]
            for place in range(starts[k], starts[k + 1]):
                source = grad_out[places[place]]
                for h in range(hidden):
                    total[h] += half * source[h]
            row, grad = gates[k], grad_projected[k]
            for h in range(hidden):
                reset, update, new = row[h], row[hidden + h], row[2 * hidden + h]
                to_new = total[h] * (one - update) * (one - new * new)
                grad[h] = to_new * row[3 * hidden + h] * reset * (one - reset)
                grad[hidden + h] = total[h] * (state[h] - new) * update * (one - update)
                grad[2 * hidden + h] = to_new
            for h in range(hidden):
                direct[h] += total[h] * row[hidden + h]
                summed[2 * hidden + h] += grad[2 * hidden + h] * row[h]
            for g in range(2 * hidden):
                summed[g] += grad[g]


@njit(nogil=True, cache=True, error_model="numpy")
def sum_groups(rows: Any, starts: Any, members: Any, out: Any, first: int, last: int) -> None:
    """Write to ``out[g]`` the sum of the rows of group g, in the order of its members, for groups ``first..last``."""
    for g in range(first, last):
        total = out[g]
        total[:] = 0
        for place in range(starts[g], starts[g + 1]):
            row = rows[members[place]]
            for c in range(total.shape[0]):
                total[c] += row[c]
