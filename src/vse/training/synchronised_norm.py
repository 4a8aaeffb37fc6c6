"""Batch norm whose statistics are those of the whole batch, although each process sees a part of it.

torch's own ``SyncBatchNorm`` needs a GPU; this one runs wherever the processes can exchange tensors.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed.nn.functional as collective
from torch import Tensor, nn


class SynchronisedBatchNorm(nn.BatchNorm1d):
    """:class:`torch.nn.BatchNorm1d` over the rows ``(R, H)`` of all processes; R may differ between them.

    ``mean = Σ x / n`` and then ``var = Σ (x - mean)² / n``, each sum over all processes and differentiable, so that the
    gradients too are those of one process with all rows. Running statistics are equal in every process.
    """

    @classmethod
    def around(cls, norm: nn.BatchNorm1d) -> SynchronisedBatchNorm:
        """The same parameters and statistics, the very tensors."""
        new = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        new._parameters, new._buffers, new.training = norm._parameters, norm._buffers, norm.training
        return new

    def forward(self, rows: Tensor) -> Tensor:
        if not self.training:
            return super().forward(rows)
        given, rows = rows.dtype, rows if rows.dtype == torch.float64 else rows.float()  # halves cannot count rows
        count = rows.new_tensor([len(rows)])
        total = _sum(torch.cat([rows.sum(dim=0), count]))  # (H + 1,)
        number = total[-1].detach()
        mean = total[:-1] / number
        variance = _sum(((rows - mean) ** 2).sum(dim=0)) / number
        self._remember(mean.detach(), variance.detach(), float(number))
        return ((rows - mean) / (variance + self.eps).sqrt() * self.weight + self.bias).to(given)

    def _remember(self, mean: Tensor, variance: Tensor, number: float) -> None:
        tracked = cast(Any, self)
        tracked.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1 / float(tracked.num_batches_tracked)
        tracked.running_mean.lerp_(mean, share)
        tracked.running_var.lerp_(variance * number / max(1.0, number - 1), share)


def synchronise_norms(module: nn.Module) -> None:
    """Exchange every :class:`torch.nn.BatchNorm1d` below ``module`` for one that knows of the other processes."""
    for name, child in module.named_children():
        if type(child) is nn.BatchNorm1d:
            setattr(module, name, SynchronisedBatchNorm.around(child))
        else:
            synchronise_norms(child)


def _sum(value: Tensor) -> Tensor:
    return cast(Tensor, collective.all_reduce(value))
