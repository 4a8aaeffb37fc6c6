"""Tiny models and pictures that tests of several parts share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vse.errors import MissingDependencyError
from vse.inputs import TextTokenizer, Vocabulary
from vse.models.config import BackboneConfig, BiGRUConfig, GridConfig, ModelConfig, RegionConfig, TransformerConfig
from vse.models.vse_model import VSEModel

SIZE, FEATURES, SIDE = 16, 7, 40
CAPTIONS = ["a dog runs in the snow", "two cats sleep on a red chair", "the man rides a horse", "snow"]
BERT: Mapping[str, Any] = {
    "model_type": "bert",
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 24,
}
RESNET = {"blocks": [1, 1, 1, 1], "width": 2}


def word_tokenizer(max_length: int = 20) -> TextTokenizer:
    return Vocabulary.build(CAPTIONS, min_count=1).tokenizer(max_length)


def write_wordpieces(folder: Path, size: int = 30) -> Path:
    """A folder with the ``vocab.txt`` of a WordPiece model of ``size`` pieces."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "runs", "snow", "##s"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*pieces, *(f"word{n}" for n in range(size - len(pieces)))]))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 16}))
    return folder


def region_config(**changes: Any) -> RegionConfig:
    return RegionConfig(**{"feature_size": FEATURES, "hidden_size": 5} | changes)


def grid_config(**changes: Any) -> GridConfig:
    values = {"backbone": BackboneConfig(name="caffe-resnet", options=RESNET), "image_size": SIDE}
    return GridConfig(**values | changes)


def bigru_config(**changes: Any) -> BiGRUConfig:
    return BiGRUConfig(**{"vocabulary_size": word_tokenizer().vocab_size, "word_size": 5} | changes)


def bert_config(**changes: Any) -> TransformerConfig:
    return TransformerConfig(**{"architecture": dict(BERT)} | changes)


def build(
    image: RegionConfig | GridConfig | None = None,
    text: BiGRUConfig | TransformerConfig | None = None,
    *,
    tokenizer: TextTokenizer | None = None,
    seed: int = 0,
    **about: Any,
) -> VSEModel:
    """A model with keyed random weights in evaluation mode; region × BiGRU and its words unless told otherwise."""
    text = text or bigru_config()
    if tokenizer is None and isinstance(text, BiGRUConfig):
        tokenizer = word_tokenizer()
    config = ModelConfig(embed_size=SIZE, image=image or region_config(), text=text, **about)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return VSEModel.build(config, tokenizer).eval()


def feature_sets(*sizes: int, width: int = FEATURES, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal((size, width)).astype(np.float32) for size in sizes]


def picture(seed: int = 0, height: int = 30, width: int = 50) -> np.ndarray:
    """A colourful uint8 (H, W, 3): two ramps and noise of its own."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    ramps = np.stack([rows * 255 / height, columns * 255 / width, generator.random((height, width)) * 255], axis=-1)
    return np.roll(ramps, seed, axis=-1).astype(np.uint8)


def draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save as an install without matplotlib does: drawing the card's image takes longer than all the rest."""

    def absent(*arguments: object, **options: object) -> None:
        raise MissingDependencyError("no matplotlib")

    monkeypatch.setattr("vse.models.card.plot_curves", absent)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file and what it holds."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_unit(vectors: np.ndarray, rows: int, size: int = SIZE) -> None:
    assert vectors.shape == (rows, size)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def assert_same_model(found: VSEModel, expected: VSEModel) -> None:
    """Equal configurations, tokenizers, fingerprints and, exactly, tensors."""
    assert found.config == expected.config
    theirs, ours = expected.state_dict(), found.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        assert torch.equal(ours[name], tensor), name
    assert (found.tokenizer is None) == (expected.tokenizer is None)
    if found.tokenizer is not None and expected.tokenizer is not None:
        assert found.tokenizer.to_json() == expected.tokenizer.to_json()
    assert found.fingerprint() == expected.fingerprint()
