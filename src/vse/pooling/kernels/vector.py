"""Two SIMD instructions for numba kernels: compare and swap two stretches of values, and swap them again by a mask.

Written as loops, the compiler would have to prove that two rows of one scratch do not overlap, and would store a byte
per comparison; written as vectors of :data:`LANES` values, a comparison leaves one bit per value, which is what the
vector units give. Wider than the machine's registers is fine: the compiler splits them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 16
"""Values handled at once; a mask of them is a uint16."""


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def compare_swap(typing: Any, values: Any, i: Any, j: Any) -> Any:
    """For the 16 values from ``i`` and the 16 from ``j`` of a flat array: move the larger of each pair to ``i``.

    Returns the pairs that were exchanged, a bit each. A pair with a NaN stays as it is.
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
    """Exchange the 16 values from ``i`` with those from ``j`` where the mask has a bit."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        upper_place, lower_place, align = _places(context, builder, signature, arguments)
        upper, lower = _load(builder, upper_place, align), _load(builder, lower_place, align)
        swapped = builder.bitcast(arguments[3], ir.VectorType(ir.IntType(1), LANES))
        _store_swapped(builder, swapped, (upper_place, upper), (lower_place, lower), align)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, types.uint16), generate


def _places(context: Any, builder: Any, signature: Any, arguments: Any) -> tuple[Any, Any, int]:
    array_type = signature.args[0]
    array = context.make_array(array_type)(context, builder, arguments[0])
    vector = ir.VectorType(context.get_data_type(array_type.dtype), LANES).as_pointer()
    upper, lower = (builder.bitcast(builder.gep(array.data, [offset]), vector) for offset in arguments[1:3])
    return upper, lower, array_type.dtype.bitwidth // 8


def _load(builder: Any, place: Any, align: int) -> Any:
    value = builder.load(place)
    value.align = align  # of one value: rows of a scratch need not start on a vector's boundary
    return value


def _store_swapped(builder: Any, swapped: Any, upper: tuple[Any, Any], lower: tuple[Any, Any], align: int) -> None:
    builder.store(builder.select(swapped, lower[1], upper[1]), upper[0], align=align)
    builder.store(builder.select(swapped, upper[1], lower[1]), lower[0], align=align)
