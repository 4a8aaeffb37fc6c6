"""Validate batches of sets: ``features (B, N, D)`` with ``lengths (B,)`` or ``mask (B, N)``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from vse.errors import InputError, unknown_choice
from vse.pooling.kernels.runtime import compiled

Lengths = Tensor | Sequence[int]


def read_sets(
    features: Tensor,
    lengths: Lengths | None = None,
    mask: Tensor | None = None,
    *,
    check_finite: bool = False,
) -> Tensor | None:
    """Check a batch of sets and return its mask.

    Args:
        features: ``(B, N, D)``; every set needs at least one valid element.
        lengths: ``(B,)``: the first n elements of each set are valid.
        mask: ``(B, N)`` boolean: marks the valid elements, in any pattern.
        check_finite: Also reject NaN and infinite values among the valid elements.

    Returns:
        The boolean mask ``(B, N)``, or None if every element is valid.

    Raises:
        InputError: If the arguments are invalid or inconsistent.
    """
    if not isinstance(features, Tensor):
        raise InputError(f"features must be a torch.Tensor of shape (B, N, D), got {type(features).__name__}")
    if features.dim() != 3:
        raise InputError(f"features must have shape (B, N, D), got {tuple(features.shape)}")
    if not features.is_floating_point():
        raise InputError(f"features must be floating point, got {features.dtype}; convert them with .float()")
    if lengths is not None and mask is not None:
        raise InputError("give lengths or mask, not both")
    batch, total = features.shape[0], features.shape[1]
    if lengths is not None:
        mask = _mask_of_lengths(features, lengths)
    elif mask is not None:
        _check_mask(features, mask)
    elif batch and total == 0:
        raise InputError(f"features of shape {tuple(features.shape)} hold empty sets; a set needs at least one element")
    if check_finite and not compiled():
        _check_finite(features, mask)
    return mask


def merge_masks(mask: Tensor | None, attention_mask: Tensor | None) -> Tensor | None:
    """Return ``mask``, or ``attention_mask`` (1 for valid elements, as transformers has it) as a boolean mask."""
    if attention_mask is None:
        return mask
    if mask is not None:
        raise InputError("give mask or attention_mask, not both")
    if not isinstance(attention_mask, Tensor) or attention_mask.is_floating_point():
        kind = attention_mask.dtype if isinstance(attention_mask, Tensor) else type(attention_mask).__name__
        raise InputError(
            f"attention_mask must be a tensor of integers, 1 for valid elements and 0 for others, got {kind}"
        )
    return attention_mask.bool()


def check_width(features: Tensor, dim: int, name: str) -> None:
    """Reject features whose width differs from that of a pooling's parameters."""
    if features.shape[2] != dim:
        raise InputError(f"features have {features.shape[2]} dimensions, this {name} was made for {dim}")


def sizes_of(features: Tensor, mask: Tensor | None) -> Tensor:
    """Return the number of valid elements of each set, ``(B,)`` int64."""
    if mask is None:
        return torch.full((features.shape[0],), features.shape[1], dtype=torch.int64, device=features.device)
    return mask.sum(dim=1)


def prefix_mask(sizes: Tensor, total: int) -> Tensor:
    """Return ``(B, total)``: True for the first ``sizes[b]`` positions of row b."""
    return torch.arange(total, device=sizes.device) < sizes.unsqueeze(1)


def compact(features: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Move the valid elements to the front, in order, and drop padding that no set needs.

    Returns ``(features (B, M, D), sizes (B,))`` with M the largest size; padding is zero.
    """
    sizes = sizes_of(features, mask)
    if mask is None:
        return features, sizes
    longest = features.shape[1] if compiled() or not sizes.numel() else int(sizes.max())
    order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, :longest]  # (B, M)
    moved = features.gather(1, order.unsqueeze(-1).expand(-1, -1, features.shape[2]))
    return moved.masked_fill(~prefix_mask(sizes, longest).unsqueeze(-1), 0), sizes


def _mask_of_lengths(features: Tensor, lengths: Lengths) -> Tensor | None:
    batch, total = features.shape[0], features.shape[1]
    if not isinstance(lengths, Tensor):
        if isinstance(lengths, (str, bytes)) or not isinstance(lengths, Sequence):
            raise InputError(f"lengths must be an integer tensor of shape ({batch},), got {type(lengths).__name__}")
        if not all(isinstance(n, int) and not isinstance(n, bool) for n in lengths):
            raise InputError(f"lengths must be whole numbers, got {list(lengths)!r}")
        lengths = torch.tensor(lengths, dtype=torch.int64, device=features.device)
    if lengths.dtype == torch.bool or lengths.is_floating_point() or lengths.is_complex():
        raise InputError(f"lengths must be integers, got {lengths.dtype}; a boolean tensor goes in as mask=")
    if lengths.shape != (batch,):
        raise InputError(f"lengths must have shape ({batch},), one per set, got {tuple(lengths.shape)}")
    _check_device(features, "lengths", lengths)
    lengths = lengths.to(torch.int64)
    if not compiled() and batch:
        smallest, largest = (int(bound) for bound in lengths.aminmax())
        if smallest < 1:
            where = int((lengths < 1).nonzero()[0])
            raise InputError(
                f"lengths[{where}] is {int(lengths[where])}; a set needs at least one element, drop empty sets first"
            )
        if largest > total:
            where = int((lengths > total).nonzero()[0])
            raise InputError(f"lengths[{where}] is {int(lengths[where])}, but the sets are padded to {total}")
        if smallest == total:
            return None
    return prefix_mask(lengths, total)


def _check_mask(features: Tensor, mask: Tensor) -> None:
    expected = tuple(features.shape[:2])
    if not isinstance(mask, Tensor):
        raise InputError(f"mask must be a boolean tensor of shape {expected}, got {type(mask).__name__}")
    if mask.dtype != torch.bool:
        raise InputError(f"mask must be boolean (True = valid element), got {mask.dtype}; convert it with mask.bool()")
    if tuple(mask.shape) != expected:
        raise InputError(f"mask must have shape {expected}, got {tuple(mask.shape)}")
    _check_device(features, "mask", mask)
    if compiled() or mask.shape[0] == 0:
        return
    filled = mask.any(dim=1)
    if not bool(filled.all()):
        where = int((~filled).nonzero()[0])
        raise InputError(f"mask[{where}] is all False; a set needs at least one element, drop empty sets first")


def _check_device(features: Tensor, name: str, other: Tensor) -> None:
    if other.device != features.device:
        raise InputError(
            f"{name} is on {other.device} but features are on {features.device}; move it with .to(features.device)"
        )


def _check_finite(features: Tensor, mask: Tensor | None) -> None:
    bad = ~torch.isfinite(features)
    if mask is not None:
        bad &= mask.unsqueeze(-1)
    if bool(bad.any()):
        b, n, d = (int(i) for i in bad.nonzero()[0])
        raise InputError(
            f"{int(bad.sum())} feature values are not finite, the first at set {b}, element {n}, dimension {d}: "
            f"{float(features[b, n, d])}"
        )


def positive_int(name: str, value: int, *, least: int = 1) -> int:
    """Return ``value`` if it is an integer of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return value


def positive_number(name: str, value: float, *, least: float = 0.0) -> float:
    """Return ``value`` if it is a finite number above 0 and at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value!r}")
    if value <= 0 or value < least:
        bound = f"at least {least}" if least else "above 0"
        raise InputError(f"{name} must be {bound}, got {value!r}")
    return float(value)


def one_of(name: str, value: str, valid: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``valid``."""
    choices = tuple(valid)
    if value not in choices:
        raise InputError(unknown_choice(name, value, choices))
    return value


def interpolate_knots(knots: Tensor, sizes: Tensor, total: int) -> Tensor:
    """Stretch ``knots (K, D)`` over ``sizes (U,)`` ranks by linear interpolation: ``(U, total, D)``, zero past a size.

    Rank k of a set of N lies at ``k / (N - 1)`` between the first knot and the last; for a set of one, at the first.
    """
    last = knots.shape[0] - 1
    rank = torch.arange(total, device=sizes.device)
    rank = rank.to(torch.promote_types(knots.dtype, torch.float32))
    place = (rank / (sizes.unsqueeze(1) - 1).clamp(min=1) * last).clamp(max=last)  # (U, N)
    lower = place.floor().long().clamp(max=max(last - 1, 0))
    share = (place - lower).unsqueeze(-1).to(knots.dtype)
    values = knots[lower] * (1 - share) + knots[(lower + 1).clamp(max=last)] * share  # (U, N, D)
    return values.masked_fill(~prefix_mask(sizes, total).unsqueeze(-1), 0)
