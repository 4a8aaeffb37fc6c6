"""Parity of the encoders with the released implementation: its tensors, its inputs, its embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from vse.encoders import BiGRUEncoder, RegionEncoder, TransformerTextEncoder
from vse.encoders.backbones import CaffeResNet
from vse.encoders.functional import unit_norm
from vse.encoders.image import create_projection
from vse.encoders.transformer_text import create_transformer
from vse.pooling import GPO

safetensors = pytest.importorskip("safetensors.torch")
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def read(folder: Path, name: str, renamed: dict[str, str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The numbers, and the state under our names."""
    numbers = safetensors.load_file(folder / f"{name}.safetensors")
    state = {}
    for key in [key for key in numbers if key.startswith("state.")]:
        old = key.removeprefix("state.")
        prefix = next((prefix for prefix in renamed if old.startswith(prefix)), None)
        if prefix is not None:
            state[renamed[prefix] + old.removeprefix(prefix)] = numbers[key]
    return numbers, state


def test_region_encoder_matches_released_outputs(shared_reference):
    """Regions of ragged images."""
    names = {"fc.": "projection.fc.", "mlp.layers.0.": "projection.hidden.", "mlp.layers.1.": "projection.out."}
    names |= {"mlp.bns.0.": "projection.norm.", "gpool.": "pooling."}
    numbers, state = read(shared_reference, "region_encoder", names)
    model = RegionEncoder(create_projection("residual-mlp", 96, 48, 24), GPO(), 96)
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        found = model.eval()(numbers["features"], lengths=numbers["lengths"])
    torch.testing.assert_close(found, numbers["embedding"], **TOLERANCE)


def test_bigru_encoder_matches_released_outputs(shared_reference):
    """Sentences of ragged length."""
    names = {"embed.": "embed.", "rnn.": "rnn.", "gpool.": "pooling."}
    numbers, state = read(shared_reference, "bigru_encoder", names)
    model = BiGRUEncoder(57, 30, 48, GPO())
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        found = model.eval()(numbers["tokens"], lengths=numbers["lengths"])
    torch.testing.assert_close(found, numbers["embedding"], **TOLERANCE)


def test_caffe_resnet_matches_released_outputs(shared_reference):
    """The feature map of images that no stride divides."""
    numbers, state = read(shared_reference, "caffe_resnet", {"": ""})
    model = CaffeResNet((2, 1, 2, 1), 8)
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        found = model.eval().feature_map(numbers["pixels"])
    torch.testing.assert_close(found, numbers["features"], **TOLERANCE)


def test_bert_head_matches_released_outputs(shared_reference):
    """What follows BERT's hidden states: linear map, pooling over all tokens, unit norm."""
    pytest.importorskip("transformers")
    numbers, state = read(shared_reference, "bert_head", {"linear.": "linear.", "gpool.": "pooling."})
    architecture = {"model_type": "bert", "vocab_size": 5, "num_hidden_layers": 1, "intermediate_size": 8}
    model = TransformerTextEncoder(create_transformer(architecture), 48, GPO())
    model.load_state_dict(state | {f"transformer.{k}": v for k, v in model.transformer.state_dict().items()})
    with torch.no_grad():
        projected = model.project(numbers["hidden"])
        found = unit_norm(model.pooling(projected, lengths=numbers["lengths"]))
    torch.testing.assert_close(found, numbers["embedding"], **TOLERANCE)
