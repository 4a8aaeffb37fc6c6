"""Small systems of pairs, sets and data for their tests."""

from __future__ import annotations

import numpy as np
import torch
from tests.support_models import grid_config, word_tokenizer

from vse.models.config import PairConfig
from vse.models.pair_options import read_options
from vse.systems.cross_attention import PairScoring, Sets
from vse.systems.pair_model import PairModel, create_scoring

SIZE, WIDTH, VOCABULARY = 6, 5, 20
SYSTEMS = ("scan", "imram", "caan")


def pair_config(system: str = "scan", options: dict | None = None, **changes: object) -> PairConfig:
    """The configuration of a small model of regions."""
    image = {"kind": "region", "feature_size": WIDTH, "head": "linear"}
    text = {"kind": "bigru", "vocabulary_size": VOCABULARY, "word_size": 4}
    values = {"embed_size": SIZE, "image": image, "text": text, "system": system, "options": options or {}}
    return PairConfig.model_validate(values | changes)


def pair_model(system: str = "scan", options: dict | None = None, tokenizer=None, **changes: object) -> PairModel:
    """A small model in evaluation mode with weights of seed 0."""
    torch.manual_seed(0)
    return PairModel.build(pair_config(system, options, **changes), tokenizer).eval()


def reranking_model() -> PairModel:
    """A small SCAN of image files, as a search re-ranks with."""
    tokenizer = word_tokenizer()
    text = {"kind": "bigru", "vocabulary_size": tokenizer.vocab_size, "word_size": 4}
    return pair_model("scan", None, tokenizer, image=grid_config(pooling="none").model_dump(), text=text)


def scoring(system: str, options: dict | None = None, size: int = SIZE, seed: int = 0) -> PairScoring:
    """The scores of a system in float64, with random weights that are large enough to matter."""
    torch.manual_seed(seed)
    made = create_scoring(pair_config(system, options, embed_size=size)).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return made


def options_of(system: str, options: dict | None = None):
    """The options with their defaults."""
    return read_options(system, options or {})


def random_sets(sizes: list[int], size: int = SIZE, seed: int = 0, padding: int = 0) -> Sets:
    """Sets of random unit vectors in float64, padded to the largest and ``padding`` more."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(sizes) + padding
    vectors = torch.randn(len(sizes), longest, size, generator=generator, dtype=torch.float64)
    mask = torch.arange(longest) < torch.tensor(sizes)[:, None]
    return Sets(torch.nn.functional.normalize(vectors, dim=2).masked_fill(~mask[..., None], 0), mask)


def elements(sets: Sets) -> list[np.ndarray]:
    """The valid elements of each set."""
    return [each[mask].numpy() for each, mask in zip(sets.elements, sets.mask, strict=True)]


def weights_of(made: PairScoring) -> dict[str, np.ndarray]:
    """The parameters of a system by name."""
    return {name: value.detach().numpy() for name, value in made.named_parameters()}
