"""A trained rank pooling as a table, for inference without its coefficient generator."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vse.errors import InputError
from vse.pooling.base import RankPooling
from vse.pooling.kernels.runtime import compiled
from vse.pooling.sets import interpolate_knots, one_of, prefix_mask

Beyond = Literal["error", "stretch"]


class FrozenPooling(RankPooling):
    """Pool with the coefficients in ``coefficient_table (M, M[, D])``; row n-1 is for sets of n elements.

    ``beyond`` decides what happens to sets larger than M:

    - ``"error"`` (default): raise :class:`~vse.errors.InputError`. In a traced graph, where Python cannot check sizes,
      the table lookup fails as out of range.
    - ``"stretch"``: stretch the curve of size M over the N ranks by linear interpolation, rescaled to keep its sum (by
      M / N if there are negative weights). This is an approximation; traced graphs do not support it and fail.

    It has no parameters; the table is a buffer and is saved with the state dict.
    """

    coefficient_table: Tensor

    def __init__(
        self,
        table: Tensor,
        *,
        beyond: Beyond = "error",
        check_finite: bool = False,
        return_coefficients: bool = False,
    ) -> None:
        super().__init__(check_finite=check_finite, return_coefficients=return_coefficients)
        if table.dim() not in (2, 3) or table.shape[0] != table.shape[1] or not table.shape[0]:
            raise InputError(f"a coefficient table has shape (M, M) or (M, M, D), got {tuple(table.shape)}")
        self.beyond = one_of("beyond", beyond, ("error", "stretch"))
        self.register_buffer("coefficient_table", table.detach().clone())

    @property
    def max_size(self) -> int:
        """Largest set size in the table."""
        return self.coefficient_table.shape[0]

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        if compiled():
            return self._within(sizes, total)
        largest = int(sizes.max()) if sizes.numel() else 0
        if largest <= self.max_size:
            return self._within(sizes, total)
        if self.beyond == "error":
            raise InputError(
                f"a set of {largest} elements is larger than this frozen pooling's table ({self.max_size}); freeze "
                f"again with max_size={largest}, or with beyond='stretch' to stretch the last curve"
            )
        rows = [self._row(int(size)) for size in sizes]
        pad = [torch.nn.functional.pad(r.movedim(0, -1), (0, total - r.shape[0])).movedim(-1, 0) for r in rows]
        return torch.stack(pad)

    def _within(self, sizes: Tensor, total: int) -> Tensor:
        if compiled():  # a slice would tie the set size to the table size
            rank = torch.arange(total, device=sizes.device)
            rows = self.coefficient_table[sizes.unsqueeze(1) - 1, rank.clamp(max=self.max_size - 1)]  # (U, N[, D])
            beyond = ~prefix_mask(sizes, total)
            return rows.masked_fill(beyond if rows.dim() == 2 else beyond.unsqueeze(-1), 0)
        rows = self.coefficient_table[sizes - 1, :total]  # (U, min(M, total)[, D])
        missing = total - rows.shape[1]
        if missing <= 0:
            return rows
        return torch.cat((rows, rows.new_zeros(rows.shape[0], missing, *rows.shape[2:])), dim=1)

    def _row(self, size: int) -> Tensor:
        if size <= self.max_size:
            return self.coefficient_table[size - 1, :size]
        last = self.coefficient_table[-1]  # (M[, D])
        stretched = interpolate_knots(last.view(self.max_size, -1), torch.tensor([size], device=last.device), size)
        row = stretched[0].view(size, *last.shape[1:])
        if bool((last < 0).any()):  # signed weights may sum to zero, so they cannot be scaled by their sum
            return row * (self.max_size / size)
        return row * (last.sum(dim=0) / row.sum(dim=0))

    def extra_repr(self) -> str:
        return f"max_size={self.max_size}, beyond={self.beyond!r}"
