"""The interface of poolings: how sets are passed, and how poolings that depend on ranks alone are computed."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor, nn

from vse.errors import InputError
from vse.pooling.kernels.runtime import compiled
from vse.pooling.sets import Lengths, check_width, merge_masks, positive_int, prefix_mask, read_sets, sizes_of
from vse.pooling.sorted_sum import sum_checked

if TYPE_CHECKING:
    from vse.pooling.frozen import Beyond, FrozenPooling


class Pooling(nn.Module):
    """Map sets ``(B, N, D)`` to vectors ``(B, D)``.

    Pass ``lengths (B,)`` (the first n elements of each set are valid), a boolean ``mask (B, N)`` of any pattern, the
    ``attention_mask (B, N)`` of a transformers tokenizer, or none of them if every element is valid. Invalid elements
    never affect the result, even if they are NaN. ``check_finite=True``, in the constructor or per call, raises on NaN
    and inf.
    """

    def __init__(self, *, check_finite: bool = False) -> None:
        super().__init__()
        self.check_finite = check_finite

    def forward(
        self,
        features: Tensor,
        lengths: Lengths | None = None,
        mask: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        check_finite: bool | None = None,
    ) -> Tensor:
        mask = merge_masks(mask, attention_mask)
        return self.pool(features, self.read(features, lengths, mask, check_finite))

    def read(
        self, features: Tensor, lengths: Lengths | None, mask: Tensor | None, check_finite: bool | None
    ) -> Tensor | None:
        """Check the arguments and return the mask, None if every element is valid."""
        check = self.check_finite if check_finite is None else check_finite
        mask = read_sets(features, lengths, mask, check_finite=check)
        own = self.device
        if own is not None and own != features.device:
            raise InputError(
                f"features are on {features.device} but this {type(self).__name__} is on {own}; "
                "move one with .to(device)"
            )
        return mask

    @property
    def device(self) -> torch.device | None:
        """Device of the parameters and buffers; None if there are none, and any device works."""
        tensor = next(chain(self.parameters(), self.buffers()), None)
        return None if tensor is None else tensor.device

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Pool checked sets; ``mask`` is None if every element is valid."""
        raise NotImplementedError


class RankPooling(Pooling):
    """Weight the sorted values, ``v_d = sum_k theta_k max_k(phi_d)``, with weights that depend on the set size alone.

    The coefficients theta do not depend on the features. They are computed once per distinct size in a batch, and can
    be inspected (:meth:`coefficients`), tabulated (:meth:`table`) and frozen for inference (:meth:`freeze`).
    ``return_coefficients=True``, in the constructor or per call, returns them with the pooled vectors.
    """

    return_coefficients: bool = False  # of the class: modules that were pickled before it existed lack it

    def __init__(self, *, check_finite: bool = False, return_coefficients: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        self.return_coefficients = return_coefficients

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return the coefficients for ``sizes (U,)``: ``(U, total)`` or ``(U, total, D)``, zero past each size.

        Poolings without parameters return ``dtype`` (torch's default if None), others that of their parameters.
        """
        raise NotImplementedError

    @overload
    def forward(
        self,
        features: Tensor,
        lengths: Lengths | None = ...,
        mask: Tensor | None = ...,
        *,
        attention_mask: Tensor | None = ...,
        return_coefficients: Literal[False] | None = ...,
        check_finite: bool | None = ...,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        features: Tensor,
        lengths: Lengths | None = ...,
        mask: Tensor | None = ...,
        *,
        attention_mask: Tensor | None = ...,
        return_coefficients: Literal[True],
        check_finite: bool | None = ...,
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        features: Tensor,
        lengths: Lengths | None = None,
        mask: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        return_coefficients: bool | None = None,
        check_finite: bool | None = None,
    ) -> Any:
        """Pool; on request also return the coefficients ``(B, N)`` or ``(B, N, D)``, differentiable."""
        mask = self.read(features, lengths, merge_masks(mask, attention_mask), check_finite)
        both = self.return_coefficients if return_coefficients is None else return_coefficients
        return self.pool_with_coefficients(features, mask) if both else self.pool(features, mask)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        return self.pool_with_coefficients(features, mask)[0]

    def pool_with_coefficients(self, features: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the pooled vectors ``(B, D)`` and their coefficients, ``(B, N)`` or ``(B, N, D)``."""
        weights = self.batch_coefficients(features, mask)
        if weights.dim() == 3:
            check_width(features, weights.shape[2], type(self).__name__)
        return sum_checked(features, weights, mask), weights.expand(features.shape[0], *weights.shape[1:])

    def batch_coefficients(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return the coefficients of each set, ``(B, N)`` or ``(B, N, D)``; a single row if all sizes are equal."""
        total = features.shape[1]
        dtype = torch.promote_types(features.dtype, torch.float32)
        if mask is None:
            size = torch.full((1,), total, dtype=torch.int64, device=features.device)
            return self.size_coefficients(size, total, dtype)
        sizes = sizes_of(features, mask)
        if compiled() or not sizes.numel():  # the number of distinct sizes would be a data-dependent shape
            return self.size_coefficients(sizes, total, dtype)
        # Sizes are small integers: counting is faster than torch.unique, which sorts.
        present = sizes.bincount(minlength=total + 1) > 0
        which = (present.cumsum(dim=0) - 1)[sizes]
        return self.size_coefficients(present.nonzero().squeeze(1), total, dtype)[which]

    @torch.no_grad()
    def coefficients(self, size: int) -> Tensor:
        """Return the coefficients of a set of ``size`` elements, largest value first: ``(size[, D])``, detached."""
        positive_int("size", size)
        return self.size_coefficients(torch.tensor([size], device=self.device), size)[0]

    @torch.no_grad()
    def table(self, max_size: int) -> Tensor:
        """Return ``(max_size, max_size[, D])``; row n-1 holds the coefficients for size n, zero past n."""
        positive_int("max_size", max_size)
        return self.size_coefficients(torch.arange(1, max_size + 1, device=self.device), max_size)

    def freeze(self, max_size: int, *, beyond: Beyond = "error") -> FrozenPooling:
        """Return a parameter-free copy that looks up the coefficients for sizes 1 to ``max_size`` in a table."""
        from vse.pooling.frozen import FrozenPooling

        return FrozenPooling(
            self.table(max_size),
            beyond=beyond,
            check_finite=self.check_finite,
            return_coefficients=self.return_coefficients,
        )


def normalised(weights: Tensor, sizes: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Zero the weights past each size and divide by their sum: ``(U or 1, N)`` and ``(U,)`` to ``(U, N)``."""
    valid = prefix_mask(sizes, weights.shape[-1])
    kept = torch.where(valid, weights, 0).to(dtype or torch.get_default_dtype())
    return kept / kept.sum(dim=-1, keepdim=True)
