"""How well the frames of a video show the phrases of a sentence, for every video and every sentence.

For frames ``e_f`` and a phrase ``q``::

    c_f = cos(e_f, q)        a = softmax_f(4 · n)   with n = relu(c) / ‖relu(c)‖, over the real frames
    score = cos(Σ_f a_f e_f, q)                     and of a sentence the mean over its phrases, 0 if it has none

:func:`plain_phrase_scores` computes just that, through an attended frame for every pair of video and phrase,
``(V, T, P, D)``. :func:`phrase_scores` is the same without it, since both parts of the last cosine follow from numbers
for each frame: ``(Σ a_f e_f) · q = Σ a_f (e_f · q)`` and ``‖Σ a_f e_f‖² = aᵀ G a`` with ``G`` the frames' Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

SHARPNESS = 4.0
SMALLEST = 1e-10  # length that a vector of zeros is divided by


@dataclass(frozen=True, eq=False)
class FrameSet:
    """The frames of V videos and what every phrase needs of them.

    ``frames (V, F, D)``, finite also where they are padding; ``gram (V, F, F)``; ``inverse (V, F, 1)`` is one through
    a frame's length, 0 for padding; ``barrier (V, F, 1)`` is 0, -inf for padding.
    """

    frames: Tensor
    gram: Tensor
    inverse: Tensor
    barrier: Tensor

    @classmethod
    def of(cls, frames: Tensor, mask: Tensor) -> FrameSet:
        """Of ``frames (V, F, D)`` and ``mask (V, F)``."""
        gram = frames @ frames.mT
        lengths = (gram.diagonal(dim1=1, dim2=2) + SMALLEST**2).sqrt()
        inverse = lengths.reciprocal().masked_fill(~mask, 0)
        barrier = torch.zeros_like(inverse).masked_fill(~mask, float("-inf"))
        return cls(frames, gram, inverse.unsqueeze(-1), barrier.unsqueeze(-1))


def phrase_scores(videos: FrameSet, phrases: Tensor, phrase_mask: Tensor) -> Tensor:
    """Scores ``(V, T)`` of ``phrases (T, P, D)`` with ``phrase_mask (T, P)``.

    Memory is some arrays of F numbers for each pair of a video and a phrase that exists. The length of the attended
    frame is a difference of large numbers where frames cancel: in float32 the score is off by about ``1e-7 r²``, with
    r the ratio of the frames' length to it.
    """
    unit = normalize(phrases[phrase_mask], dim=1, eps=SMALLEST)  # (N, D)
    found = _attended_cosines(videos, unit)  # (V, N)
    spread = found.new_zeros(len(found), *phrase_mask.shape)  # (V, T, P)
    number, place = phrase_mask.nonzero(as_tuple=True)
    spread = spread.index_put((torch.arange(len(found), device=found.device)[:, None], number, place), found)
    return spread.sum(dim=2) / phrase_mask.sum(dim=1).clamp(min=1)


def plain_phrase_scores(frames: Tensor, mask: Tensor, phrases: Tensor, phrase_mask: Tensor) -> Tensor:
    """The definition of :func:`phrase_scores`, of ``frames (V, F, D)`` and ``mask (V, F)``."""
    padding = ~mask[:, None, None, :]  # (V, 1, 1, F)
    unit = normalize(phrases, dim=2, eps=SMALLEST)
    cosines = torch.einsum("vfd,tpd->vtpf", normalize(frames, dim=2, eps=SMALLEST), unit)
    shown = normalize(cosines.relu().masked_fill(padding, 0), dim=3, eps=SMALLEST)
    attention = (SHARPNESS * shown).masked_fill(padding, float("-inf")).softmax(dim=3)
    attended = torch.einsum("vtpf,vfd->vtpd", attention, frames)
    scores = torch.einsum("vtpd,tpd->vtp", normalize(attended, dim=3, eps=SMALLEST), unit)
    return scores.masked_fill(~phrase_mask, 0).sum(dim=2) / phrase_mask.sum(dim=1).clamp(min=1)


def _attended_cosines(videos: FrameSet, unit: Tensor) -> Tensor:
    """The cosine of each of ``unit (N, D)`` with what it attends to in each video, ``(V, N)``."""
    raw = videos.frames @ unit.T  # (V, F, N)
    shown = (raw * videos.inverse).relu()
    scale = SHARPNESS / torch.linalg.vector_norm(shown, dim=1, keepdim=True).clamp(min=SMALLEST)  # (V, 1, N)
    attention = (shown * scale + videos.barrier).softmax(dim=1)
    del shown  # without gradients, a quarter of the memory
    dots = (attention * raw).sum(dim=1)
    del raw
    squares = (attention * (videos.gram @ attention)).sum(dim=1)
    # No dot product exceeds the length: where rounding says otherwise, frames cancel and the length is noise.
    return dots / torch.maximum(squares, dots.square()).clamp(min=SMALLEST**2).sqrt()
