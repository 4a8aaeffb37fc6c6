"""Several processes that train one model (``torchrun``): their ranks, and the two exchanges a step needs.

Each process encodes its local batch. All embeddings are gathered, so that every pair is compared with all negatives of
the global batch, and every process computes the loss of the global batch. Its gradient with respect to the local
embeddings is exact; summed over the processes (torch's DDP averages, hence the factor ``world`` in the step) the
gradients of the weights are those of one process with the global batch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from vse.errors import InputError, VSEError, first_line

# The others wait while the first process evaluates on dev. A dead process is detected by the broken connection (gloo)
# or by torchrun, not by this timeout.
TIMEOUT = timedelta(hours=2)
GLOO_DRAIN_SECONDS = 0.2
LOST = ("Connection closed", "Connection reset", "Connection refused", "gloo")


CPU = torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """This process among ``world``; rank 0 writes files and reports."""

    rank: int = 0
    world: int = 1
    local: int = 0
    device: torch.device = CPU

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.world == 1

    def part(self, size: int) -> slice:
        """Return the rows of a batch of ``size`` that this process encodes."""
        if size % self.world:
            raise InputError(
                f"a batch of {size} cannot be shared by {self.world} processes: set schedule.batch_size to a multiple"
            )
        local_batch = size // self.world
        return slice(self.rank * local_batch, (self.rank + 1) * local_batch)

    def gather(self, vectors: Tensor) -> Tensor:
        """Return the rows of all processes ``(world · b, D)`` in rank order; only local rows carry a gradient."""
        if self.alone:
            return vectors
        parts = [torch.empty_like(vectors) for _ in range(self.world)]
        dist.all_gather(parts, vectors.detach().contiguous())
        parts[self.rank] = vectors
        return torch.cat(parts)

    def widest(self, tensor: Tensor) -> Tensor:
        """Return ``(B, N, …)`` padded with zeros to the largest N of all processes, so that rows can be gathered."""
        if self.alone or tensor.dim() < 2:
            return tensor
        size = torch.tensor([tensor.shape[1]], device=tensor.device)
        dist.all_reduce(size, dist.ReduceOp.MAX)
        missing = int(size.item()) - tensor.shape[1]
        return torch.nn.functional.pad(tensor, (0, 0) * (tensor.dim() - 2) + (0, missing)) if missing else tensor

    def share(self, value: Any) -> Any:
        """Return the value of the first process in every process."""
        if self.alone:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        if self.alone:
            return flag
        up = torch.tensor([int(flag)], device=self.device)
        dist.all_reduce(up, dist.ReduceOp.MAX)
        return bool(up.item())


def ranks_of_environment() -> Ranks:
    """Return the ranks that ``torchrun`` set, or those of a single process; nothing is connected."""
    values = {key: os.environ.get(key) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    if values["RANK"] is None or values["WORLD_SIZE"] is None:
        return Ranks()
    return Ranks(int(values["RANK"]), int(values["WORLD_SIZE"]), int(values["LOCAL_RANK"] or 0))


@contextmanager
def process_group(device: torch.device) -> Iterator[Ranks]:
    """Join the other processes inside a ``with`` block; a single process, or an inner block, does nothing."""
    ranks = replace(ranks_of_environment(), device=device)
    if ranks.alone or dist.is_initialized():
        yield ranks
        return
    gloo = device.type != "cuda"
    if gloo:
        dist.init_process_group("gloo", timeout=TIMEOUT)
    else:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", timeout=TIMEOUT, device_id=device)
    failed = True
    try:
        yield ranks
        failed = False
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or any(sign in str(error) for sign in LOST):
            raise VSEError(
                f"rank {ranks.rank} lost the other processes, one of them ended ({first_line(error)}): the last "
                "checkpoint is intact, run the same command again to resume"
            ) from error
        raise
    finally:
        if gloo:
            # torch joins the gloo threads with the GIL held; a thread that still drops a finished all-reduce needs it.
            time.sleep(GLOO_DRAIN_SECONDS)
        if gloo or not failed:  # NCCL would wait here for processes that are gone
            dist.destroy_process_group()
