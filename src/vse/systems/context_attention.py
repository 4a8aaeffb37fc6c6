"""Scores of pairs by attention that knows its context: CAAN weights regions and words by their relations to the pair.

For regions ``V (N, D)`` and words ``U (L, D)``:

- affinity ``H = tanh(V K Uᵀ)``, clipped at 0: ``A = [H]₊``;
- inter-modal attention: ``A_v`` and ``A_u``, A with the weights of each region over the words, and of each word over
  the regions, scaled to unit length (or by a softmax, ``normalise``);
- intra-modal attention: ``A_v A_vᵀ``, how much two regions respond to the same words, and ``A_uᵀ A_u`` for words. This
  is the second-order attention of the paper;
- ``f = softmax(w_v · tanh(A_v A_vᵀ V Q₁ + A_v U Q₂))`` weights the regions, and likewise g the words;
- the score is the cosine of ``Σ f_i v_i`` and ``Σ g_j u_j``.

``A_v A_vᵀ V Q₁ + A_v U Q₂ = A_v (A_vᵀ V Q₁ + U Q₂)``, so no matrix of regions by regions is computed for a pair, and
``V Q₁`` and ``U Q₂`` are computed once for all pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vse.encoders.functional import SMALLEST_NORM
from vse.models.pair_options import CaanOptions
from vse.systems.cross_attention import PairScoring, Sets


class SideAttention(nn.Module):
    """Attend to the elements of one side of a pair, given the alignments with those of the other side."""

    def __init__(self, options: CaanOptions, size: int) -> None:
        super().__init__()
        hidden = options.hidden_size or size
        self.intra = options.intra
        self.normalise = options.normalise
        self.other = nn.Linear(size, hidden, bias=False)
        self.weight = nn.Linear(hidden, 1, bias=False)
        self.own = nn.Linear(size, hidden, bias=False) if options.intra != "none" else None
        self.relation = nn.Linear(size, size, bias=False) if options.intra == "feature" else None

    def forward(self, own: Sets, other: Sets, alignments: Tensor) -> Tensor:
        """Return the attended elements ``(X, Y, D)`` of X own sets, for each of Y other sets.

        Args:
            own: sets of K elements.
            other: sets of M elements.
            alignments: ``(X, Y, M, K)``, 0 for padding; normalised here over the M elements.
        """
        if self.normalise == "softmax":
            alignments = alignments.masked_fill(~other.mask[None, :, :, None], float("-inf")).softmax(dim=2)
        else:
            lengths = torch.linalg.vector_norm(alignments, dim=2, keepdim=True)
            alignments = alignments / (lengths + SMALLEST_NORM)
        context = self.other(other.elements)  # (Y, M, H)
        if self.own is not None and self.relation is None:
            second = alignments.flatten(1, 2) @ self.own(own.elements)  # (X, Y·M, H)
            context = context + second.unflatten(1, alignments.shape[1:3])
        hidden = alignments.mT @ context  # (X, Y, K, H)
        if self.own is not None and self.relation is not None:
            related = self.relation(own.elements) @ own.elements.mT @ self.own(own.elements)  # (X, K, H)
            hidden = hidden + related.unsqueeze(1)
        logits = self.weight(hidden.tanh()).squeeze(3).masked_fill(~own.mask.unsqueeze(1), float("-inf"))
        attended: Tensor = logits.softmax(dim=2) @ own.elements
        return attended


class ContextAwareAttention(PairScoring):
    """CAAN: the cosine of attended regions and attended words, see the head of this module.

    K starts as the identity, so that the affinities of a new model are those of the encoders.
    """

    def __init__(self, options: CaanOptions, size: int) -> None:
        super().__init__()
        self.options = options
        self.affinity = nn.Linear(size, size, bias=False)
        nn.init.eye_(self.affinity.weight)
        self.image_attention = SideAttention(options, size)
        self.text_attention = SideAttention(options, size)

    def forward(self, images: Sets, texts: Sets) -> Tensor:
        sets, words = texts.mask.shape
        flat = texts.elements.flatten(0, 1)  # (Y·L, D)
        affinities = flat @ self.affinity(images.elements).mT  # (X, Y·L, N)
        alignments = affinities.tanh().relu().unflatten(1, (sets, words))  # (X, Y, L, N)
        seen = self.image_attention(images, texts, alignments)  # (X, Y, D)
        read = self.text_attention(texts, images, alignments.permute(1, 0, 3, 2)).transpose(0, 1)  # (X, Y, D)
        lengths = torch.linalg.vector_norm(seen, dim=2) * torch.linalg.vector_norm(read, dim=2)
        return (seen * read).sum(dim=2) / lengths.clamp(min=SMALLEST_NORM)

    def numbers(self, regions: int, words: int, size: int) -> int:
        hidden = self.options.hidden_size or size
        return 5 * regions * words + 3 * (regions + words) * hidden + 3 * size
