"""What the pooling tests share: ready poolings with lively parameters, and batches of sets drawn by hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from vse.pooling import GPO, create_pooling, list_poolings

NAMES = list_poolings()
NEEDS_DIM = {"fspool", "self-attention", "seq2seq", "gcn-avg", "gcn-seq2seq"}
OPTIONS = {"k-max": {"k": 3}, "top-percent": {"percent": 40}}
ORDER_MATTERS = {"cls", "seq2seq", "gcn-seq2seq"}

VARIANTS = {
    "gpo-transformer": {"decoder": "transformer"},
    "gpo-mlp": {"decoder": "mlp"},
    "gpo-interpolation": {"decoder": "interpolation"},
    "gpo-index": {"position": "index", "max_size": 64},
    "gpo-mlp-head": {"head": "mlp"},
    "gpo-from-one": {"first_position": 1},
    "gpo-per-dimension": {"per_dimension": True},
    "gpo-data-dependent": {"data_dependent": True},
    "gpo-data-dependent-per-dimension": {"data_dependent": True, "per_dimension": True},
}
ALL = [*NAMES, *VARIANTS, "frozen"]
RANK_POOLINGS = ["avg", "max", "k-max", "top-percent", "linear", "fspool", "gpo"]
SIZE_ONLY_VARIANTS = [name for name in VARIANTS if "data-dependent" not in name]


def build(name: str, dim: int = 6, *, seed: int = 0, **options: object) -> nn.Module:
    """The named pooling in evaluation mode; no parameter is left at a value that would hide what it does."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name in VARIANTS:
            sizes = {"dim": dim} if {"per_dimension", "data_dependent"} & set(VARIANTS[name]) else {}
            pool = GPO(**VARIANTS[name], **sizes, **options)
        elif name == "frozen":
            pool = GPO().freeze(64)
        else:
            needed = {"dim": dim} if name in NEEDS_DIM else {}
            pool = create_pooling(name, **{**OPTIONS.get(name, {}), **needed, **options})
        for module in pool.modules():
            if isinstance(module, nn.BatchNorm1d):
                nn.init.uniform_(module.weight, 0.1, 0.3)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
                for tensor in (module.bias, module.running_mean):
                    nn.init.uniform_(tensor, -0.2, 0.2)
        if isinstance(pool, GPO) and pool.decoder == "interpolation":
            nn.init.normal_(pool.knots, std=0.2)
    return pool.eval()


@dataclass(frozen=True)
class Sets:
    """A batch of sets with a mask of any pattern."""

    features: Tensor
    mask: Tensor

    @property
    def sizes(self) -> Tensor:
        return self.mask.sum(dim=1)

    def compacted(self) -> list[Tensor]:
        """Each set by itself, without padding, as a batch of one."""
        return [self.features[b, self.mask[b]].unsqueeze(0) for b in range(self.features.shape[0])]


def random_mask(batch: int, total: int, generator: torch.Generator, *, prefix: bool = False) -> Tensor:
    """A mask with at least one True in every row."""
    if prefix:
        return torch.arange(total) < torch.randint(1, total + 1, (batch, 1), generator=generator)
    mask = torch.rand(batch, total, generator=generator) < torch.rand(batch, 1, generator=generator)
    spared = torch.randint(0, total, (batch, 1), generator=generator)
    return mask.scatter(1, spared, torch.tensor(True).expand(batch, 1))


def make_sets(
    batch: int, total: int, dim: int, *, seed: int = 0, prefix: bool = False, dtype: torch.dtype = torch.float32
) -> Sets:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(batch, total, dim, generator=generator).to(dtype)
    return Sets(features, random_mask(batch, total, generator, prefix=prefix))


@st.composite
def set_batches(
    draw: st.DrawFn, *, batch: int = 4, total: int = 12, dim: int | None = None, prefix: bool | None = None
) -> Sets:
    """Batches up to the given sizes, with prefix masks, ragged masks or both by turns."""
    return make_sets(
        draw(st.integers(1, batch)),
        draw(st.integers(1, total)),
        dim or draw(st.integers(1, 9)),
        seed=draw(st.integers(0, 2**31 - 1)),
        prefix=draw(st.booleans()) if prefix is None else prefix,
    )
