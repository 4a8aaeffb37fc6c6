"""Aggregators that the paper compares with GPO: a recurrent network, and graph convolution before pooling."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from vse.errors import InputError
from vse.pooling.base import Pooling
from vse.pooling.rank_poolings import AvgPool
from vse.pooling.sets import check_width, compact, positive_int, sizes_of


class Seq2SeqPool(Pooling):
    """Run a unidirectional GRU, ``D -> D``, and return its state after the last valid element. Order matters.

    6.3 M parameters at D = 1024.
    """

    def __init__(self, dim: int, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        positive_int("dim", dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        check_width(features, self.gru.input_size, type(self).__name__)
        if features.shape[0] == 0:
            return features.new_empty(0, features.shape[2])
        sequence, sizes = compact(features, mask)
        if torch.compiler.is_compiling() or mask is None:
            states = self.gru(sequence)[0]
            last = (sizes - 1).view(-1, 1, 1).expand(-1, 1, states.shape[2])
            return states.gather(1, last).squeeze(1).to(features.dtype)
        packed = pack_padded_sequence(sequence, sizes.cpu(), batch_first=True, enforce_sorted=False)
        last_state: Tensor = self.gru(packed)[1][0]
        return last_state.to(features.dtype)

    def extra_repr(self) -> str:
        return f"dim={self.gru.input_size}"


class RelationBlock(nn.Module):
    """Apply one graph convolution with a residual over the complete graph of the set.

    ``phi' = phi + BN(W (R g(phi)))``, ``R_nm = theta(phi_n) . psi(phi_m) / N``: four D x D maps with bias and a batch
    norm over the valid elements, 4.2 M parameters at D = 1024. The scale of the batch norm is initialised to zero, so a
    new block is the identity.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.theta = nn.Linear(dim, dim)
        self.psi = nn.Linear(dim, dim)
        self.g = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.norm = nn.BatchNorm1d(dim)
        nn.init.zeros_(self.norm.weight)
        nn.init.zeros_(self.norm.bias)

    def forward(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Map ``(B, N, D)`` to ``(B, N, D)``; invalid elements stay zero."""
        if mask is not None:
            features = features.masked_fill(~mask.unsqueeze(-1), 0)
        relation = self.theta(features) @ self.psi(features).transpose(1, 2)  # (B, N, N)
        relation = relation / sizes_of(features, mask).view(-1, 1, 1)
        if mask is not None:  # g's bias is nonzero for padding
            relation = relation.masked_fill(~mask.unsqueeze(1), 0)
        message = self.out(relation @ self.g(features))
        return features + self._normalise(message, mask).to(features.dtype)

    def _normalise(self, message: Tensor, mask: Tensor | None) -> Tensor:
        """Apply batch norm; its statistics cover valid elements only."""
        if mask is None or (torch.compiler.is_compiling() and not self.training):
            normal = self.norm(message.flatten(0, 1)).view_as(message)
            return normal if mask is None else normal.masked_fill(~mask.unsqueeze(-1), 0)
        rows = self.norm(message[mask])
        return torch.zeros_like(message, dtype=rows.dtype).masked_scatter(mask.unsqueeze(-1), rows)


SMALLEST = 1e-12  # a norm below it counts as this


def unit_dimensions(features: Tensor, mask: Tensor | None) -> Tensor:
    """Scale each dimension of a set ``(B, N, D)`` so that its values over the N elements have norm 1.

    VSRN's released code normalises along this axis, not along the dimensions of an element. Padding becomes zero.
    """
    if mask is not None:
        features = features.masked_fill(~mask.unsqueeze(-1), 0)
    return nn.functional.normalize(features, dim=1, eps=SMALLEST)


Normalised = bool | Literal["readout"]


class GraphPool(Pooling):
    """Apply ``blocks`` relation blocks, then the mean (``gcn-avg``) or a GRU's last state (``gcn-seq2seq``).

    With ``normalised`` the values are scaled by :func:`unit_dimensions` before the first block and before the readout,
    as VSRN does on COCO; ``"readout"`` scales them before the readout alone. ``batch_norm`` normalises the pooled
    vector over the batch. VSRN does both on Flickr30K. In training mode a batch norm needs at least two valid elements
    or sets in the batch.
    """

    def __init__(
        self,
        dim: int,
        *,
        blocks: int,
        readout: Pooling,
        normalised: Normalised = False,
        batch_norm: bool = False,
        check_finite: bool = False,
    ) -> None:
        super().__init__(check_finite=check_finite)
        if normalised not in (False, True, "readout"):
            raise InputError(f'normalised must be true, false or "readout", got {normalised!r}')
        self.normalised = normalised
        positive_int("dim", dim)
        self.blocks = nn.ModuleList(RelationBlock(dim) for _ in range(positive_int("blocks", blocks)))
        self.dim = dim
        self.readout = readout
        self.norm = nn.BatchNorm1d(dim) if batch_norm else None

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        check_width(features, self.dim, type(self).__name__)
        if features.shape[0] == 0:
            return features.new_empty(0, features.shape[2])
        return self.read_out(self.relate(features, mask), mask)

    def relate(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return the elements ``(B, N, D)`` after the blocks, before the readout."""
        if self.normalised is True:
            features = unit_dimensions(features, mask)
        for block in self.blocks:
            features = block(features, mask)
        return unit_dimensions(features, mask) if self.normalised else features

    def read_out(self, related: Tensor, mask: Tensor | None) -> Tensor:
        """Reduce the elements of :meth:`relate` to ``(B, D)``."""
        pooled = self.readout.pool(related, mask)
        return pooled if self.norm is None else self.norm(pooled).to(pooled.dtype)


def gcn_avg(dim: int, *, blocks: int = 1, check_finite: bool = False) -> GraphPool:
    """Create GCN+AvgPool, 4.2 M parameters at D = 1024."""
    return GraphPool(dim, blocks=blocks, readout=AvgPool(), check_finite=check_finite)


def gcn_seq2seq(
    dim: int,
    *,
    blocks: int = 4,
    normalised: Normalised = False,
    batch_norm: bool = False,
    check_finite: bool = False,
) -> GraphPool:
    """Create GCN+Seq2Seq as in VSRN: four blocks and a GRU, 23.1 M parameters at D = 1024.

    VSRN also normalises: ``normalised=True`` on COCO, ``normalised="readout", batch_norm=True`` on Flickr30K. Without
    it, models that were saved before keep their embeddings.
    """
    readout = Seq2SeqPool(dim)
    return GraphPool(
        dim,
        blocks=blocks,
        readout=readout,
        normalised=normalised,
        batch_norm=batch_norm,
        check_finite=check_finite,
    )
