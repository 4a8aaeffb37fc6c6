"""Losses over a matrix of scores: row i and column i are a pair, all other entries are negatives.

They take scores, not embeddings, so that cosines, ensembles and multi-level scores share them. :class:`TripletLoss` and
:class:`ContrastiveLoss` wrap them for unit-norm embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from vse._util.plugins import Registry
from vse.errors import InputError, unknown_choice

Negatives = Literal["all", "hardest", "semi-hard"]
Reduction = Literal["sum", "mean"]
NEGATIVES: tuple[Negatives, ...] = ("all", "hardest", "semi-hard")
REDUCTIONS: tuple[Reduction, ...] = ("sum", "mean")
Choice = TypeVar("Choice", bound=str)
MARGIN = 0.2
TEMPERATURE = 0.05
LOSSES: Registry[Callable[..., Tensor] | None] = Registry(
    "vse.losses", dict.fromkeys(("triplet", "annealed", "contrastive", "matching"))
)
"""Objectives of a recipe by name; the built-in ones change during training, see :mod:`vse.training.schedule`."""


def triplet_from_scores(
    scores: Tensor,
    image_ids: Tensor | Sequence[int] | None = None,
    *,
    negatives: Negatives = "hardest",
    margin: float = MARGIN,
    reduction: Reduction = "sum",
) -> Tensor:
    """Return the triplet loss of both directions, ``[m + s(i, j) - s(i, i)]+ + [m + s(j, i) - s(i, i)]+``.

    Args:
        scores: ``(B, B)`` with images in rows and texts in columns.
        image_ids: ``(B,)``, the image of each pair: captions of the same image are not negatives of each other.
            Without it they are, as in the released code.
        negatives: the negatives j of each i: ``"all"``, summed; the ``"hardest"``, with the highest score; or
            ``"semi-hard"``, the hardest of those that score below the positive (0 if there is none).
        margin: m.
        reduction: ``"sum"``, or ``"mean"`` to divide by B.

    Raises:
        InputError: ``scores`` is not square, or an option is unknown.

    >>> scores = torch.tensor([[0.9, 0.8], [0.1, 0.5]])
    >>> round(triplet_from_scores(scores).item(), 4)
    0.6
    """
    _check_choice("negatives", negatives, NEGATIVES)
    _check_choice("reduction", reduction, REDUCTIONS)
    same = same_image(scores, image_ids)
    positive = scores.diagonal()
    image_costs = (margin + scores - positive.unsqueeze(1)).clamp(min=0)  # (B, B): image i against text j
    text_costs = (margin + scores - positive.unsqueeze(0)).clamp(min=0)  # (B, B): text j against image i
    if negatives == "semi-hard":
        image_excluded, text_excluded = (
            same | (scores >= positive.unsqueeze(1)),
            same | (scores >= positive.unsqueeze(0)),
        )
    else:
        image_excluded = text_excluded = same
    image_costs, text_costs = image_costs.masked_fill(image_excluded, 0), text_costs.masked_fill(text_excluded, 0)
    if negatives == "all":
        total = image_costs.sum() + text_costs.sum()
    else:
        total = image_costs.amax(dim=1).sum() + text_costs.amax(dim=0).sum()
    return total / len(scores) if reduction == "mean" else total


def contrastive_from_scores(
    scores: Tensor,
    image_ids: Tensor | Sequence[int] | None = None,
    *,
    temperature: float | Tensor = TEMPERATURE,
    margin: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the symmetric cross-entropy of ``softmax(s / t)`` over the batch (InfoNCE).

    With a margin m the scores of pairs are lowered first, ``s(i, i) - m``: additive margin softmax.

    Args:
        scores: ``(B, B)`` with images in rows and texts in columns.
        image_ids: ``(B,)``, the image of each pair: captions of the same image are left out of the denominator.
        temperature: t.
        margin: m, subtracted from the scores of pairs.
        reduction: ``"mean"`` over pairs, or ``"sum"``.

    Raises:
        InputError: If ``scores`` is not square, or an option is invalid.
    """
    _check_choice("reduction", reduction, REDUCTIONS)
    same = same_image(scores, image_ids)
    others = same & ~torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    if margin:
        scores = scores - margin * torch.eye(len(scores), dtype=scores.dtype, device=scores.device)
    logits = (scores / temperature).masked_fill(others, -torch.inf)
    positive = logits.diagonal()
    total = (logits.logsumexp(dim=1) - positive).sum() + (logits.logsumexp(dim=0) - positive).sum()
    return total / len(scores) if reduction == "mean" else total


def matching_from_scores(scores: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return the binary matching loss of pairs and their negatives.

    ``log(1 + exp(-s₀)) + mean over j of log(1 + exp(s_j))``: the cross-entropy of a classifier of matching pairs, with
    equal weight for the pair and for all of its negatives.

    Args:
        scores: logits ``(B, 1 + n)``: column 0 is a pair that matches, the others are its negatives.
        reduction: ``"mean"`` over rows, or ``"sum"``.

    Raises:
        InputError: If there are no negatives, or the reduction is unknown.

    >>> round(matching_from_scores(torch.tensor([[0.0, 0.0, 0.0]])).item(), 4)
    1.3863
    """
    _check_choice("reduction", reduction, REDUCTIONS)
    if scores.dim() != 2 or scores.shape[1] < 2:
        raise InputError(f"scores must be (B, 1 + negatives) logits, got {tuple(scores.shape)}")
    softplus = torch.nn.functional.softplus
    each = softplus(-scores[:, 0]) + softplus(scores[:, 1:]).mean(dim=1)
    return each.sum() if reduction == "sum" else each.mean()


def smooth_triplet_from_scores(
    scores: Tensor,
    image_ids: Tensor | Sequence[int] | None = None,
    *,
    temperature: float | Tensor,
    margin: float = MARGIN,
    reduction: Reduction = "sum",
) -> Tensor:
    """Return the hardest-negative triplet loss with both maxima softened by a temperature t.

    ``t · log(1 + Σ_j exp((m + s(i, j) - s(i, i)) / t))`` for every image, and the same for every text. Harder negatives
    have larger gradients. As t approaches 0 this becomes :func:`triplet_from_scores` with the hardest negative; with
    m = 0 it is t times the cross-entropy of :func:`contrastive_from_scores`. Lowering t thus moves smoothly from all
    negatives to the hardest one.

    Args:
        scores: ``(B, B)`` with images in rows and texts in columns.
        image_ids: ``(B,)``, the image of each pair: captions of the same image are not negatives of each other.
        temperature: t.
        margin: m.
        reduction: ``"sum"``, or ``"mean"`` to divide by B.

    Raises:
        InputError: If ``scores`` is not square, or an option is invalid.
    """
    _check_choice("reduction", reduction, REDUCTIONS)
    same = same_image(scores, image_ids)
    positive = scores.diagonal()
    total = scores.new_zeros(())
    for costs, along in ((margin + scores - positive.unsqueeze(1), 1), (margin + scores - positive.unsqueeze(0), 0)):
        pushed = (costs / temperature).masked_fill(same, -torch.inf)  # (B, B)
        total = total + temperature * nn.functional.softplus(pushed.logsumexp(dim=along)).sum()
    return total / len(scores) if reduction == "mean" else total


def satisfied(scores: Tensor, image_ids: Tensor | Sequence[int] | None = None, *, margin: float = MARGIN) -> float:
    """Return the share of pairs without loss: their negatives in both directions score at least ``margin`` lower."""
    with torch.no_grad():
        same = same_image(scores, image_ids)
        beaten = scores.masked_fill(same, -torch.inf) + margin
        positive = scores.diagonal()
        return float(((beaten.amax(dim=1) <= positive) & (beaten.amax(dim=0) <= positive)).float().mean())


def same_image(scores: Tensor, image_ids: Tensor | Sequence[int] | None) -> Tensor:
    """Return ``(B, B)``, True where row and column have the same image; the diagonal is always True."""
    if scores.dim() != 2 or scores.shape[0] != scores.shape[1]:
        raise InputError(f"scores of a batch must be (B, B), one text for each image, got {tuple(scores.shape)}")
    if len(scores) < 2:
        raise InputError("a batch of one pair has no negatives: use a batch size of at least 2")
    if image_ids is None:
        return torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    ids = torch.as_tensor(image_ids, device=scores.device)
    if ids.shape != (len(scores),):
        raise InputError(f"image_ids must have shape ({len(scores)},), one for each pair, got {tuple(ids.shape)}")
    return ids.unsqueeze(0) == ids.unsqueeze(1)


class TripletLoss(nn.Module):
    """:func:`triplet_from_scores` of unit-norm embeddings ``image (B, D)`` and ``text (B, D)``.

    With the hardest negatives all embeddings may collapse to one point, where the loss stays at ``2 · B · margin``.
    """

    def __init__(self, margin: float = MARGIN, negatives: Negatives = "hardest", reduction: Reduction = "sum") -> None:
        super().__init__()
        self.margin = _positive("margin", margin)
        self.negatives = _check_choice("negatives", negatives, NEGATIVES)
        self.reduction = _check_choice("reduction", reduction, REDUCTIONS)

    def forward(self, image: Tensor, text: Tensor, image_ids: Tensor | Sequence[int] | None = None) -> Tensor:
        return triplet_from_scores(
            pair_scores(image, text),
            image_ids,
            negatives=self.negatives,
            margin=self.margin,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        return f"margin={self.margin}, negatives={self.negatives!r}, reduction={self.reduction!r}"


class ContrastiveLoss(nn.Module):
    """:func:`contrastive_from_scores` of unit-norm embeddings ``image (B, D)`` and ``text (B, D)``."""

    def __init__(self, temperature: float = TEMPERATURE, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.temperature = _positive("temperature", temperature)
        self.reduction = _check_choice("reduction", reduction, REDUCTIONS)

    def forward(self, image: Tensor, text: Tensor, image_ids: Tensor | Sequence[int] | None = None) -> Tensor:
        scores = pair_scores(image, text)
        return contrastive_from_scores(scores, image_ids, temperature=self.temperature, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, reduction={self.reduction!r}"


def pair_scores(image: Tensor, text: Tensor) -> Tensor:
    """Return the cosine ``(B, B)`` of every image with every text of a batch."""
    if image.dim() != 2 or image.shape != text.shape:
        raise InputError(
            f"image and text must be (B, D) vectors of the same pairs, got {tuple(image.shape)} and {tuple(text.shape)}"
        )
    return image @ text.T


def _positive(name: str, value: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise InputError(f"{name} must be a number above 0, got {value!r}")
    return float(value)


def _check_choice(name: str, value: Choice, choices: Sequence[Choice]) -> Choice:
    if value not in choices:
        raise InputError(unknown_choice(name, value, choices))
    return value
