"""Numba kernels of the sorted weighted sum: a sorting network over the set axis, vectorised over features.

For each set, the rows (elements) of a block of feature columns are copied into a scratch buffer that stays in cache.
The comparators of the network run over whole rows, many columns per instruction. The order of operations never depends
on the data, so there are no mispredicted branches.

A comparator only swaps two values or leaves them, so the output values are exactly the input values, NaN included. A
NaN is never moved, but it makes the sum of its column NaN wherever it is, so the sum is still correct. Only the
gradients depend on its rank: for them, a set with a NaN is sorted again, column by column.

The backward pass reruns the network, records which comparators swapped (one bit each), and propagates ``weight * grad``
through the comparators in reverse. Only the inputs are kept between the passes.
"""

import numpy as np
from numba import njit

from vse.pooling.kernels.vector import LANES, compare_swap, swap_by_mask


@njit(nogil=True, cache=True)
def comparator_bound(size):
    """Return an upper bound of the number of comparators: half a row in each of log2 (log2 + 1) / 2 levels."""
    levels = 0
    merged = 1
    while merged < size:
        merged *= 2
        levels += 1
    return size * levels * (levels + 1) // 4 + 1


@njit(nogil=True, cache=True)
def write_comparators(size, pairs):
    """Write the comparators that sort ``size`` rows into ``pairs (P, 2)``; return their number.

    A pair (i, j) has i < j and moves the larger value to row i, so sets are sorted in descending order.
    """
    count = 0
    merged = 1  # sorted runs of this many rows are merged in pairs
    while merged < size:
        step = merged
        while step >= 1:
            for start in range(step % merged, size - step, 2 * step):
                for i in range(start, min(start + step, size - step)):
                    if i // (2 * merged) == (i + step) // (2 * merged):
                        pairs[count, 0] = i
                        pairs[count, 1] = i + step
                        count += 1
            step //= 2
        merged *= 2
    return count


def comparators(size: int) -> np.ndarray:
    """Return the comparators as an array ``(P, 2)``, for inspection and tests."""
    pairs = np.zeros((int(comparator_bound(size)), 2), np.int32)
    return pairs[: write_comparators(size, pairs)]


SCRATCH = 52 * 1024
"""Size of a scratch buffer in bytes, close to the L1 cache. Measured, like the bounds below."""
MIN_COLUMNS, MAX_COLUMNS = 64, 256


def columns_per_block(size: int, width: int, itemsize: int) -> int:
    """Return how many feature columns are sorted together, a multiple of the vector width."""
    columns = MAX_COLUMNS
    while columns > MIN_COLUMNS and columns * size * itemsize > SCRATCH:
        columns //= 2
    return min(columns, max(1, -(-width // LANES)) * LANES)


@njit(nogil=True, cache=True)
def _scratch(rows, columns, like):
    """Return a flat array for ``rows x columns`` values of the dtype of ``like``; no vector straddles a cache line."""
    space = np.zeros(rows * columns + LANES, like.dtype)
    skip = -(space.ctypes.data // space.itemsize) % LANES
    return space[skip : skip + rows * columns]


@njit(nogil=True, cache=True)
def _valid_rows(mask, b, rows):
    """Write the positions of the valid elements of set ``b`` to ``rows``; return their number."""
    row = b if mask.shape[0] > 1 else 0
    count = 0
    for n in range(mask.shape[1]):
        if mask[row, n]:
            rows[count] = n
            count += 1
    return count


@njit(nogil=True, cache=True)
def _load(features, b, rows, size, start, columns, values):
    for k in range(size):
        n = rows[k]
        for x in range(columns):
            values[k, x] = features[b, n, start + x]


@njit(nogil=True, cache=True)
def sum_sorted(features, mask, weights, out, block, first, last):
    """Compute ``out[b] = sum_k weights[b, k] * (k-th largest valid row of set b)`` for the sets ``first..last``.

    ``features (B, N, D)``, ``mask (B or 1, N)``, ``weights (B or 1, N)`` or ``(B or 1, N, D)``, ``out (B, D)``.
    """
    total, width = features.shape[1], features.shape[2]
    flat = _scratch(total, block, features)
    values = flat.reshape(total, block)
    sums = np.empty(block, features.dtype)
    rows = np.empty(total, np.int64)
    pairs = np.empty((comparator_bound(total), 2), np.int32)
    known_size = -1
    count = 0
    for b in range(first, last):
        wb = b if weights.shape[0] > 1 else 0
        size = _valid_rows(mask, b, rows)
        if size != known_size:
            count = write_comparators(size, pairs)
            known_size = size
        for start in range(0, width, block):
            columns = min(block, width - start)
            _load(features, b, rows, size, start, columns, values)
            for p in range(count):
                i, j = pairs[p, 0] * block, pairs[p, 1] * block
                for x in range(0, columns, LANES):
                    compare_swap(flat, i + x, j + x)
            sums[:columns] = 0
            for k in range(size):
                if weights.ndim == 2:
                    weight = weights[wb, k]
                    for x in range(columns):
                        sums[x] += weight * values[k, x]
                else:
                    for x in range(columns):
                        sums[x] += weights[wb, k, start + x] * values[k, x]
            for x in range(columns):
                out[b, start + x] = sums[x]


@njit(nogil=True, cache=True)
def sum_sorted_backward(features, mask, weights, grad, grad_features, grad_weights, block, first, last):
    """Compute the gradients of :func:`sum_sorted` for the sets ``first..last``.

    ``grad (B, D)``; ``grad_features (B, N, D)`` and ``grad_weights (B, N)`` or ``(B, N, D)`` must be zero on entry
    unless the mask is full. Equal values are ranked as the network leaves them, which is a valid subgradient.
    """
    total, width = features.shape[1], features.shape[2]
    flat_values, flat_flow = _scratch(total, block, features), _scratch(total, block, features)
    values, flow = flat_values.reshape(total, block), flat_flow.reshape(total, block)
    lanes = _scratch(total, block, features).reshape(total, block)
    rows = np.empty(total, np.int64)
    pairs = np.empty((comparator_bound(total), 2), np.int32)
    swaps = np.empty((comparator_bound(total), block // LANES), np.uint16)
    known_size = -1
    count = 0
    for b in range(first, last):
        wb = b if weights.shape[0] > 1 else 0
        size = _valid_rows(mask, b, rows)
        if size != known_size:
            count = write_comparators(size, pairs)
            known_size = size
        careful = False
        while True:
            lanes[:size] = 0
            for start in range(0, width, block):
                columns = min(block, width - start)
                _load(features, b, rows, size, start, columns, values)
                if careful:
                    _sort_with_nans(values, flow, size, columns, weights, wb, start, grad[b])
                else:
                    for p in range(count):
                        i, j = pairs[p, 0] * block, pairs[p, 1] * block
                        for x in range(0, columns, LANES):
                            swaps[p, x // LANES] = compare_swap(flat_values, i + x, j + x)
                    _flow_by_rank(flow, size, columns, weights, wb, start, grad[b])
                    for q in range(count):
                        p = count - 1 - q
                        i, j = pairs[p, 0] * block, pairs[p, 1] * block
                        for x in range(0, columns, LANES):
                            swap_by_mask(flat_flow, i + x, j + x, swaps[p, x // LANES])
                for k in range(size):
                    n = rows[k]
                    for x in range(columns):
                        grad_features[b, n, start + x] = flow[k, x]
                    if weights.ndim == 2:
                        # Sum per lane: a running scalar sum would not vectorise.
                        for x in range(columns):
                            lanes[k, x] += grad[b, start + x] * values[k, x]
                    else:
                        for x in range(columns):
                            grad_weights[b, k, start + x] = grad[b, start + x] * values[k, x]
            if weights.ndim == 2:
                for k in range(size):
                    grad_weights[b, k] = lanes[k, : min(block, width)].sum()
            # A NaN in the features makes the weights' gradient NaN; search for it only then.
            if careful or not np.isnan(grad_weights[b, :size]).any():
                break
            careful = True


@njit(nogil=True, cache=True)
def _flow_by_rank(flow, size, columns, weights, wb, start, grad):
    """Write the gradient of the k-th largest value, ``weights[k] * grad``, to row k."""
    for k in range(size):
        if weights.ndim == 2:
            weight = weights[wb, k]
            for x in range(columns):
                flow[k, x] = weight * grad[start + x]
        else:
            for x in range(columns):
                flow[k, x] = weights[wb, k, start + x] * grad[start + x]


@njit(nogil=True, cache=True)
def _sort_with_nans(values, flow, size, columns, weights, wb, start, grad):
    """Insertion-sort every column, NaN before +inf, leaving sorted ``values`` and each element's ``flow``."""
    column = np.empty(size, values.dtype)
    order = np.empty(size, np.int64)
    for x in range(columns):
        for k in range(size):
            value = values[k, x]
            place = k
            while place > 0:
                other = column[place - 1]
                if not (value > other or (np.isnan(value) and not np.isnan(other))):
                    break
                column[place] = other
                order[place] = order[place - 1]
                place -= 1
            column[place] = value
            order[place] = k
        for k in range(size):
            values[k, x] = column[k]
            weight = weights[wb, k] if weights.ndim == 2 else weights[wb, k, start + x]
            flow[order[k], x] = weight * grad[start + x]
