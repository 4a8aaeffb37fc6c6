"""Distributed training: two processes with half a batch each get the gradients of one process with all of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

SCRIPT = """
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from vse.pooling import GPO


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 12, 128, generator=generator), torch.tensor([12, 3, 7, 1, 12, 12, 5, 9])


def gradients(model, features, lengths):
    model(features, lengths=lengths).pow(2).sum().backward()
    return {name.removeprefix("module."): p.grad for name, p in model.named_parameters()}


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.manual_seed(rank)  # different at first: DDP sends round the parameters of rank 0
    model = DistributedDataParallel(GPO())
    features, lengths = data()
    own = slice(4 * rank, 4 * rank + 4)
    found = gradients(model, features[own], lengths[own])
    torch.save(found, f"{folder}/gradients-{rank}.pt")
    dist.barrier()
    # No destructors: DDP may destroy the gloo group with the GIL held, while a gloo thread waits for the GIL.
    os._exit(0)


if __name__ == "__main__":
    folder = sys.argv[1]
    mp.spawn(work, args=(folder,), nprocs=2)
    torch.manual_seed(0)
    alone = {name: grad / 2 for name, grad in gradients(GPO(), *data()).items()}
    torch.save(alone, f"{folder}/alone.pt")
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_gpo_gradients_in_two_processes_match_one(tmp_path):
    """DistributedDataParallel over two gloo processes averages to the gradients of the whole batch, on both ranks."""
    script = tmp_path / "two_processes.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script, tmp_path], timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    alone, *ranks = (torch.load(tmp_path / f"{name}.pt") for name in ("alone", "gradients-0", "gradients-1"))
    assert len(alone) == 9
    for name, expected in alone.items():
        for found in ranks:
            scale = expected.abs().max() + 1e-12
            torch.testing.assert_close(found[name] / scale, expected / scale, rtol=1e-4, atol=1e-5, msg=name)
