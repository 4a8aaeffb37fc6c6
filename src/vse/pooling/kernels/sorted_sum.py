"""Numba kernels of the sorted weighted sum: a sorting network over the set axis, vectorised over features.

For one set, a block of feature columns is sorted in a scratch that stays in cache: every comparator of the network is
a maximum and a minimum of two rows of the block, which the compiler turns into SIMD instructions. The order of work
never depends on the data, so no branch is mispredicted.

A comparator swaps two values or leaves them, nothing else, so the values that come out are exactly those that went
in, NaN included. A NaN is never moved, but it makes its column's sum NaN wherever it stands; only the backward pass
has to know its rank, and sorts a block that holds one column by column.

The backward pass runs the network again, this time with the row numbers travelling along in an array of their own,
and sends each rank's ``weight * grad`` to the row its value came from. Nothing but the inputs is kept between passes.
"""

import numpy as np
from numba import njit

from vse.pooling.kernels.sorting_network import PAIR, step_bound, write_comparators, write_steps

FORWARD_SCRATCH = 40 * 1024
"""Bytes the forward pass sorts at a time, near the first-level cache. Measured, like the widths below."""
MIN_COLUMNS, MAX_COLUMNS = 64, 256
BACKWARD_COLUMNS = 128


def forward_columns(size: int, width: int, itemsize: int) -> int:
    """How many feature columns the forward pass sorts together."""
    columns = MAX_COLUMNS
    while columns > MIN_COLUMNS and columns * size * itemsize > FORWARD_SCRATCH:
        columns //= 2
    return max(1, min(columns, width))


def backward_columns(width: int) -> int:
    """How many feature columns the backward pass sorts together."""
    return max(1, min(BACKWARD_COLUMNS, width))


def row_numbers(size: int) -> np.ndarray:
    """An empty array of the narrowest type that can number ``size`` rows."""
    return np.empty(0, np.uint8 if size <= 256 else np.uint16)


@njit(nogil=True, cache=True)
def _larger(a, b):
    return b if b > a else a


@njit(nogil=True, cache=True)
def _smaller(a, b):
    return a if b > a else b


@njit(nogil=True, cache=True)
def _valid_rows(mask, b, rows):
    """The positions of the valid elements of set ``b`` in ``rows``; returns their number."""
    row = b if mask.shape[0] > 1 else 0
    count = 0
    for n in range(mask.shape[1]):
        if mask[row, n]:
            rows[count] = n
            count += 1
    return count


@njit(nogil=True, cache=True)
def sum_sorted(features, mask, weights, out, block, first, last):
    """``out[b] = sum_k weights[b, k] * (k-th largest valid row of set b)`` for the sets ``first..last``.

    ``features (B, N, D)``, ``mask (B or 1, N)``, ``weights (B or 1, N)`` or ``(B or 1, N, D)``, ``out (B, D)``.
    """
    total, width = features.shape[1], features.shape[2]
    values = np.empty((total, block), features.dtype)
    sums = np.empty(block, features.dtype)
    rows = np.empty(total, np.int64)
    steps = np.empty((step_bound(total), 5), np.int32)
    known_size = -1
    count = 0
    for b in range(first, last):
        wb = b if weights.shape[0] > 1 else 0
        size = _valid_rows(mask, b, rows)
        if size != known_size:
            count = write_steps(size, steps)
            known_size = size
        fours = size // 4
        for start in range(0, width, block):
            columns = min(block, width - start)
            for q in range(fours):  # the SORT steps, straight from the features
                i = 4 * q
                n0, n1, n2, n3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
                for x in range(columns):
                    a, b_ = features[b, n0, start + x], features[b, n1, start + x]
                    c, d = features[b, n2, start + x], features[b, n3, start + x]
                    a, b_ = _larger(a, b_), _smaller(a, b_)
                    c, d = _larger(c, d), _smaller(c, d)
                    a, c = _larger(a, c), _smaller(a, c)
                    b_, d = _larger(b_, d), _smaller(b_, d)
                    values[i, x], values[i + 3, x] = a, d
                    values[i + 1, x], values[i + 2, x] = _larger(b_, c), _smaller(b_, c)
            for i in range(4 * fours, size):
                for x in range(columns):
                    values[i, x] = features[b, rows[i], start + x]
            for s in range(fours, count):
                r0, r1, r2, r3 = steps[s, 1], steps[s, 2], steps[s, 3], steps[s, 4]
                if steps[s, 0] == PAIR:
                    for x in range(columns):
                        a, b_ = values[r0, x], values[r1, x]
                        values[r0, x], values[r1, x] = _larger(a, b_), _smaller(a, b_)
                else:
                    for x in range(columns):
                        a, b_, c, d = values[r0, x], values[r1, x], values[r2, x], values[r3, x]
                        a, c = _larger(a, c), _smaller(a, c)
                        b_, d = _larger(b_, d), _smaller(b_, d)
                        values[r0, x], values[r3, x] = a, d
                        values[r1, x], values[r2, x] = _larger(b_, c), _smaller(b_, c)
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
def sum_sorted_backward(features, mask, weights, grad, grad_features, grad_weights, numbers, block, first, last):
    """Gradients of :func:`sum_sorted` for the sets ``first..last``.

    ``grad (B, D)``; ``grad_features (B, N, D)`` and ``grad_weights (B, N)`` or ``(B, N, D)`` hold zeros where the mask
    is not full. ``numbers`` is an empty array of the unsigned type that row numbers fit in; the narrower, the faster.
    Equal values get their ranks in the order the network leaves them in, which is a valid subgradient.
    """
    total = features.shape[1]
    values = np.empty((total, block), features.dtype)
    origin = np.empty((total, block), numbers.dtype)
    flow = np.empty((total, block), features.dtype)
    lanes = np.empty((total, block), features.dtype)
    rows = np.empty(total, np.int64)
    pairs = np.empty((step_bound(total), 2), np.int32)
    known_size = -1
    count = 0
    for b in range(first, last):
        weight = weights[b if weights.shape[0] > 1 else 0]
        size = _valid_rows(mask, b, rows)
        if size != known_size:
            count = write_comparators(size, pairs)
            known_size = size
        inputs = features[b], rows[:size], pairs[:count], weight, grad[b]
        outputs = grad_features[b], grad_weights[b]
        scratch = values, origin, flow, lanes
        _one_set_backward(*inputs, *outputs, scratch, False)
        if np.isnan(grad_weights[b, :size]).any():
            # A NaN among the features shows in the weights' gradient; only then is it worth looking for.
            _one_set_backward(*inputs, *outputs, scratch, True)


@njit(nogil=True, cache=True)
def _one_set_backward(features, rows, pairs, weights, grad, grad_features, grad_weights, scratch, careful):
    """Gradients of one set: ``features (N, D)``, its valid ``rows``, the comparators ``pairs`` for their number."""
    values, origin, flow, lanes = scratch
    size, width, block = rows.shape[0], features.shape[1], values.shape[1]
    lanes[:size] = 0
    for start in range(0, width, block):
        columns = min(block, width - start)
        for k in range(size):
            n = rows[k]
            for x in range(columns):
                values[k, x] = features[n, start + x]
            origin[k, :columns] = k
        if careful:
            _sort_with_nans(values, origin, size, columns)
        else:
            for p in range(pairs.shape[0]):
                i, j = pairs[p, 0], pairs[p, 1]
                for x in range(columns):
                    upper, lower = values[i, x], values[j, x]
                    above, below = origin[i, x], origin[j, x]
                    values[i, x], values[j, x] = _larger(upper, lower), _smaller(upper, lower)
                    origin[i, x] = below if lower > upper else above
                    origin[j, x] = above if lower > upper else below
        for k in range(size):
            if weights.ndim == 1:
                weight = weights[k]
                for x in range(columns):
                    flow[origin[k, x], x] = weight * grad[start + x]
                # Summed lane by lane: a running scalar sum could not be vectorised.
                for x in range(columns):
                    lanes[k, x] += grad[start + x] * values[k, x]
            else:
                for x in range(columns):
                    flow[origin[k, x], x] = weights[k, start + x] * grad[start + x]
                for x in range(columns):
                    grad_weights[k, start + x] = grad[start + x] * values[k, x]
        for k in range(size):
            n = rows[k]
            for x in range(columns):
                grad_features[n, start + x] = flow[k, x]
    if weights.ndim == 1:
        for k in range(size):
            grad_weights[k] = lanes[k, : min(block, width)].sum()


@njit(nogil=True, cache=True)
def _sort_with_nans(values, origin, size, columns):
    """Insertion sort of every column, NaN before +inf; ``origin`` gets the rows the values came from."""
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
            origin[k, x] = order[k]
