"""Small models, batches and features for the tests of HGR."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vse.hgr import GraphBatch, HGRConfig, HGRModel, RoleGraph, SentenceFeatures, VideoFeatures

SIZE, WIDTH, VOCABULARY = 12, 7, 20


def model(pooling: str = "attention", seed: int = 0, **changes: object) -> HGRModel:
    """A small model in evaluation mode, float64."""
    torch.manual_seed(seed)
    settings = {"feature_size": WIDTH, "vocabulary_size": VOCABULARY, "word_size": 5, "embed_size": SIZE}
    config = HGRConfig.model_validate(settings | {"video_pooling": pooling, "sentence_pooling": pooling} | changes)
    return HGRModel(config).double().eval()


def entry(verbs: Sequence[Sequence[int]], nouns: dict[str, tuple[str, Sequence[int]]], edges: Sequence[tuple]) -> list:
    """An entry of the official file: verbs are named v0, v1, …"""
    nodes = {"ROOT": {"role": "ROOT", "spans": list(range(30)), "words": []}}
    nodes |= {f"v{number}": {"role": "V", "spans": list(spans), "words": []} for number, spans in enumerate(verbs)}
    nodes |= {name: {"role": role, "spans": list(spans), "words": []} for name, (role, spans) in nouns.items()}
    return [nodes, [list(edge) for edge in edges]]


GRAPHS = (
    RoleGraph.from_official(
        entry(
            [[2], [5, 6]],
            {"a": ("ARG0", [0, 1]), "b": ("ARG1", [3, 4]), "c": ("ARGM-LOC", [7])},
            [("v0", "a", "ARG0"), ("v0", "b", "ARG1"), ("v1", "a", "ARG0")],
        ),
        8,
    ),
    RoleGraph.from_official(entry([], {"a": ("NOUN", [1])}, []), 3),
    RoleGraph.from_official(entry([[0]], {}, []), 1),
    RoleGraph(5),
)
"""Two verbs that share a noun and a noun without a verb; a noun alone; a verb alone; nothing."""


def sentences(graphs: Sequence[RoleGraph] = GRAPHS, length: int | None = None, seed: int = 3) -> dict[str, Tensor]:
    """The arguments of ``embed_sentences`` for random words."""
    batch = GraphBatch.of(graphs, length)
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (len(graphs), 30), generator=random)[:, : batch.verb_words.shape[2]]
    tensors = {name: torch.from_numpy(array) for name, array in batch.arrays().items()}
    return {"tokens": tokens, "lengths": torch.tensor([graph.n_words for graph in graphs]), **tensors}


def features(
    videos: int, texts: int, frames: int = 6, size: int = 10, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[VideoFeatures, SentenceFeatures]:
    """Random features with ragged frames; the first sentence has no verb, the last no noun."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=dtype)

    lengths = torch.randint(1, frames + 1, (videos, 1), generator=random)
    masks = [torch.rand(texts, count, generator=random) < 0.5 for count in (4, 6)]
    for mask, row in zip(masks, (slice(0, 1), slice(-1, None)), strict=True):
        mask[row] = False
    seen = VideoFeatures(
        normal(videos, size), normal(videos, frames, size), normal(videos, frames, size), torch.arange(frames) < lengths
    )
    return seen, SentenceFeatures(normal(texts, size), normal(texts, 4, size), normal(texts, 6, size), *masks)
