"""SIMD instructions for numba kernels: compare and swap, swap by a mask, and a small matrix product.

With plain loops, the compiler would have to prove that two rows of one buffer do not overlap, would store a byte per
comparison, and would keep sums in memory. With vectors of :data:`LANES` values, a comparison yields one bit per value
and sums stay in registers. Vectors may be wider than the machine's registers: the compiler splits them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
"""Values per vector; a mask is a uint16."""


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def compare_swap(typing: Any, values: Any, i: Any, j: Any) -> Any:
    """Compare the 16 values at ``i`` with the 16 at ``j`` of a flat array and move the larger of each pair to ``i``.

    Returns a mask of the pairs that were swapped. Pairs with a NaN are left unchanged.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        upper_place, lower_place, align = _places(context, builder, signature, arguments)
        upper, lower = _load(builder, upper_place, align), _load(builder, lower_place, align)
        swapped = builder.fcmp_ordered(">", lower, upper)
        _store_swapped(builder, swapped, (upper_place, upper), (lower_place, lower), align)
        return builder.bitcast(swapped, ir.IntType(LANES))

    return types.uint16(values, types.int64, types.int64), generate


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def swap_by_mask(typing: Any, values: Any, i: Any, j: Any, mask: Any) -> Any:
    """Swap the 16 values at ``i`` with those at ``j`` where the mask bit is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        upper_place, lower_place, align = _places(context, builder, signature, arguments)
        upper, lower = _load(builder, upper_place, align), _load(builder, lower_place, align)
        swapped = builder.bitcast(arguments[3], ir.VectorType(ir.IntType(1), LANES))
        _store_swapped(builder, swapped, (upper_place, upper), (lower_place, lower), align)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, types.uint16), generate


SUMS = 6
"""Vectors of sums that :func:`add_scaled_rows` keeps in registers: 96 values, the gates of a GRU of width 32."""


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def add_scaled_rows(typing: Any, sums: Any, rows: Any, scales: Any, start: Any) -> Any:
    """Add ``sum_i scales[i] * rows[i, start + c]`` to ``sums[start + c]`` for 96 values c; ``rows`` is contiguous."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, matrix, factors = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
        )
        count, width = cgutils.unpack_tuple(builder, matrix.shape, 2)
        align = signature.args[0].dtype.bitwidth // 8
        vector = ir.VectorType(context.get_data_type(signature.args[0].dtype), LANES)

        def place(base: Any, offset: Any, number: int) -> Any:
            lane = builder.add(offset, ir.Constant(offset.type, number * LANES))
            return builder.bitcast(builder.gep(base, [lane]), vector.as_pointer())

        kept = [cgutils.alloca_once(builder, vector) for _ in range(SUMS)]  # is promoted to registers
        for number, register in enumerate(kept):
            builder.store(_load(builder, place(out.data, arguments[3], number), align), register)
        with cgutils.for_range(builder, count) as loop:
            factor = _splat(builder, builder.load(builder.gep(factors.data, [loop.index])), vector)
            row = builder.add(builder.mul(loop.index, width), arguments[3])
            for number, register in enumerate(kept):
                product = builder.fmul(factor, _load(builder, place(matrix.data, row, number), align), flags=FUSE)
                builder.store(builder.fadd(builder.load(register), product, flags=FUSE), register)
        for number, register in enumerate(kept):
            builder.store(builder.load(register), place(out.data, arguments[3], number), align=align)
        return context.get_dummy_value()

    return types.void(sums, rows, scales, types.int64), generate


FUSE = ("contract",)
"""Fuse multiply and add if the CPU supports it."""


def _splat(builder: Any, value: Any, vector: Any) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


def _places(context: Any, builder: Any, signature: Any, arguments: Any) -> tuple[Any, Any, int]:
    array_type = signature.args[0]
    array = context.make_array(array_type)(context, builder, arguments[0])
    vector = ir.VectorType(context.get_data_type(array_type.dtype), LANES).as_pointer()
    upper, lower = (builder.bitcast(builder.gep(array.data, [offset]), vector) for offset in arguments[1:3])
    return upper, lower, array_type.dtype.bitwidth // 8


def _load(builder: Any, place: Any, align: int) -> Any:
    value = builder.load(place)
    value.align = align  # aligned to one value: rows need not start on a vector boundary
    return value


def _store_swapped(builder: Any, swapped: Any, upper: tuple[Any, Any], lower: tuple[Any, Any], align: int) -> None:
    builder.store(builder.select(swapped, lower[1], upper[1]), upper[0], align=align)
    builder.store(builder.select(swapped, upper[1], lower[1]), lower[0], align=align)
