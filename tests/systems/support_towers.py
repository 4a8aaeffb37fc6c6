"""Tiny models of every system, and recipes that train them in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.training.support import WIDTH, tiny_recipe

from vse._util.strict import parse
from vse.models.config import ModelConfig
from vse.models.vse_model import VSEModel
from vse.training.recipe import Recipe

SIZE, WORDS = 6, 13
DECODER = {"hidden_size": 5, "word_size": 4, "dropout": 0.0}
REGION = {"kind": "region", "feature_size": 7, "head": "linear", "pooling": "avg"}
GRU = {"kind": "gru", "vocabulary_size": WORDS, "word_size": 4}
BIGRU = {"kind": "bigru", "vocabulary_size": WORDS, "word_size": 4, "pooling": "avg"}
GRAPH = {"name": "gcn-seq2seq", "options": {"blocks": 2, "normalised": True}}
GRAPH_F30K = {"name": "gcn-seq2seq", "options": {"blocks": 2, "normalised": "readout", "batch_norm": True}}
CHARACTERS = {"kind": "characters", "character_size": 3, "characters": 4, "hidden_sizes": [6, 5], "word_size": 4}
SYSTEMS: dict[str, dict[str, Any]] = {
    "vsrn": {
        "system": {"name": "vsrn", "decoder": DECODER},
        "image": REGION | {"pooling": GRAPH},
        "text": GRU,
    },
    "liwe": {
        "system": "liwe",
        "image": REGION | {"head": "leaky-unit"},
        "text": CHARACTERS | {"vocabulary_size": WORDS},
    },
    "de": {"system": "de", "image": REGION, "text": BIGRU},
    "cvse": {
        "system": {"name": "cvse", "concepts": 5, "concept_size": 3, "dropout": 0.0, "consensus_share": 0.05},
        "image": REGION,
        "text": BIGRU,
    },
    "sco": {"system": {"name": "sco", "concepts": 5, "decoder": DECODER}, "image": REGION, "text": GRU},
    "gxn": {
        "system": {"name": "gxn", "noise_size": 3, "generator_size": 4, "decoder": DECODER},
        "image": REGION,
        "text": GRU,
    },
}


def built(name: str, **changes: Any) -> VSEModel:
    """A tiny model of a system in double precision and evaluation mode, with its training parts and random buffers."""
    config = parse(ModelConfig, {"embed_size": SIZE} | SYSTEMS[name] | changes, "test")
    torch.manual_seed(1)
    model = VSEModel.build(config, training=True).double().eval()
    for key, value in model.state_dict().items():
        if key.endswith("of_token"):
            value.copy_(torch.tensor([-1, -1, -1, -1, -1, 0, 1, 2, 3, 4, 0, 1, 2]))
        elif key.endswith("running_var") or (".norm" in key and key.endswith("weight")):
            value.uniform_(0.5, 1.5)
        elif key.endswith(("running_mean", "adjacency")):
            value.normal_()
    return model


def state_of(model: VSEModel) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in model.state_dict().items()}


def inputs(seed: int = 0, lengths: tuple[int, ...] = (4, 2, 3), padding: int = 0) -> dict[str, torch.Tensor]:
    """Three images of up to four regions and three captions of up to five tokens; padding holds rubbish."""
    generator = torch.Generator().manual_seed(seed)
    count, longest = len(lengths), max(lengths)
    images = torch.randn(count, longest, 7, dtype=torch.float64, generator=generator)
    tokens = torch.randint(5, WORDS, (count, 5), generator=generator)
    tokens[:, 0] = 1
    if padding:
        images = torch.cat((images, torch.full((count, padding, 7), 7.0, dtype=torch.float64)), 1)
        tokens = torch.cat((tokens, torch.full((count, padding), 9)), 1)
    return {
        "images": images,
        "image_lengths": torch.tensor(lengths),
        "image_mask": None,  # type: ignore[dict-item]
        "tokens": tokens,
        "text_lengths": torch.tensor([5, 3, 4][:count]),
    }


def rows_of(batch: dict[str, torch.Tensor]) -> list[tuple[list[np.ndarray], list[int]]]:
    """Every pair of a batch as a list of regions and a list of tokens."""
    return [
        ([*image[:size].numpy()], tokens[:length].tolist())
        for image, size, tokens, length in zip(
            batch["images"],
            batch["image_lengths"].tolist(),
            batch["tokens"],
            batch["text_lengths"].tolist(),
            strict=True,
        )
    ]


def recipe_of(name: str, data: Path, **changes: Any) -> Recipe:
    """A recipe of a system over ``write_pairs``."""
    model = {
        side: {key: value for key, value in SYSTEMS[name][side].items() if key != "vocabulary_size"}
        for side in ("image", "text")
    }
    model["image"]["feature_size"] = WIDTH
    model["system"] = SYSTEMS[name]["system"]
    tables: dict[str, Any] = {
        "model": model,
        "schedule": {"epochs": 2, "batch_size": 16, "decay_epochs": 1},
        "augmentation": {"text": "drop" if name in {"liwe", "de", "cvse"} else "none"},
        "loss": {"objective": "contrastive"} if name == "de" else {"objective": "triplet", "warmup_epochs": 0},
    }
    for table, given in changes.items():
        tables[table] = tables.get(table, {}) | given
    return tiny_recipe(data, **tables)
