"""Several processes that train one model (``torchrun``): who they are, and the two exchanges a step needs.

Each process encodes its own part of the batch. All vectors are gathered, so that every pair is compared with all
negatives of the whole batch, and every process computes the loss of the whole batch. Its gradient with respect to the
process's own vectors is exact; summed over the processes (torch's DDP averages, hence the factor ``world`` in the
step) the gradients of the weights are those of one process with the whole batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from vse.errors import InputError, VSEError, first_line

# Others wait while the first process evaluates on dev. A process that dies is noticed by the broken connection (gloo)
# or by torchrun, not by this.
PATIENCE = timedelta(hours=2)
LOST = ("Connection closed", "Connection reset", "Connection refused", "gloo")


CPU = torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """This process among ``world``; 0 is the one that writes and speaks."""

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
        """This process's rows of a batch of ``size``."""
        if size % self.world:
            raise InputError(
                f"a batch of {size} cannot be shared by {self.world} processes: set schedule.batch_size to a multiple"
            )
        own = size // self.world
        return slice(self.rank * own, (self.rank + 1) * own)

    def gather(self, vectors: Tensor) -> Tensor:
        """The rows of all processes ``(world · b, D)`` in the order of ranks; only one's own carry a gradient."""
        if self.alone:
            return vectors
        parts = [torch.empty_like(vectors) for _ in range(self.world)]
        dist.all_gather(parts, vectors.detach().contiguous())
        parts[self.rank] = vectors
        return torch.cat(parts)

    def share(self, value: Any) -> Any:
        """The first process's value, in every process."""
        if self.alone:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def any(self, flag: bool) -> bool:
        """Whether the flag is up in any process."""
        if self.alone:
            return flag
        up = torch.tensor([int(flag)], device=self.device)
        dist.all_reduce(up, dist.ReduceOp.MAX)
        return bool(up.item())


def ranks_of_environment() -> Ranks:
    """What ``torchrun`` says about this process; one process of its own otherwise. Nothing is connected."""
    values = {key: os.environ.get(key) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    if values["RANK"] is None or values["WORLD_SIZE"] is None:
        return Ranks()
    return Ranks(int(values["RANK"]), int(values["WORLD_SIZE"]), int(values["LOCAL_RANK"] or 0))


@contextmanager
def process_group(device: torch.device) -> Iterator[Ranks]:
    """Join the other processes for as long as the block lasts; alone, or within such a block, nothing happens."""
    ranks = replace(ranks_of_environment(), device=device)
    if ranks.alone or dist.is_initialized():
        yield ranks
        return
    gloo = device.type != "cuda"
    if gloo:
        dist.init_process_group("gloo", timeout=PATIENCE)
    else:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", timeout=PATIENCE, device_id=device)
    failed = True
    try:
        yield ranks
        failed = False
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or any(sign in str(error) for sign in LOST):
            raise VSEError(
                f"rank {ranks.rank} lost the other processes, one of them ended ({first_line(error)}): the last "
                "checkpoint is intact, run the same command again to continue"
            ) from error
        raise
    finally:
        if gloo or not failed:  # NCCL would wait here for processes that are gone
            dist.destroy_process_group()
