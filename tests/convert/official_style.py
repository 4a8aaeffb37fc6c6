"""Checkpoints in the format of the released code, put together by hand: names and shapes written out, random values.

Nothing here imports ``vse``, so that a converter which agrees with our own modules by accident cannot pass.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

State = dict[str, Tensor]
SIZE = 12  # dimensions of the joint space
FEATURES, HIDDEN = 10, 6
WORDS, WORD_SIZE = 21, 7
PIECES, BERT_SIZE, BERT_INNER, BERT_POSITIONS = 30, 128, 16, 20
# Second copy of the backbone's tensors, in the order in which the released code runs them.
COPIES = {
    "conv1": "base.0",
    "bn1": "base.1",
    "layer1": "base.4",
    "layer2": "base.5",
    "layer3": "base.6",
    "layer4": "top.0",
}


def random_state(shapes: Mapping[str, Sequence[int]], seed: int) -> State:
    """Values that keep activations near one: by fan-in for weights, positive variances, small shifts."""
    generator = torch.Generator().manual_seed(seed)
    state: State = {}
    for name, shape in shapes.items():
        if name.endswith("num_batches_tracked"):
            state[name] = torch.tensor(7)
        elif name.endswith("running_var") or (name.endswith("weight") and len(shape) == 1):
            state[name] = torch.rand(*shape, generator=generator) + 0.5
        elif len(shape) < 2:
            state[name] = torch.randn(*shape, generator=generator) * 0.1
        else:
            state[name] = torch.randn(*shape, generator=generator) * math.sqrt(1.5 / math.prod(shape[1:]))
    return state


def gru_shapes(prefix: str, inputs: int, size: int) -> dict[str, Sequence[int]]:
    shapes = {
        "weight_ih": (3 * size, inputs),
        "weight_hh": (3 * size, size),
        "bias_ih": (3 * size,),
        "bias_hh": (3 * size,),
    }
    return {f"{prefix}{name}_l0{way}": shape for way in ("", "_reverse") for name, shape in shapes.items()}


def gpool_shapes(prefix: str = "gpool.") -> dict[str, Sequence[int]]:
    return gru_shapes(f"{prefix}gru.", 32, 32) | {f"{prefix}linear.weight": (1, 32)}


def linear_shapes(prefix: str, inputs: int, outputs: int) -> dict[str, Sequence[int]]:
    return {f"{prefix}weight": (outputs, inputs), f"{prefix}bias": (outputs,)}


def norm_shapes(prefix: str, size: int) -> dict[str, Sequence[int]]:
    vectors = {f"{prefix}{name}": (size,) for name in ("weight", "bias", "running_mean", "running_var")}
    return vectors | {f"{prefix}num_batches_tracked": ()}


def region_state(seed: int = 0, size: int = SIZE) -> State:
    return random_state(
        linear_shapes("fc.", FEATURES, size)
        | linear_shapes("mlp.layers.0.", FEATURES, HIDDEN)
        | linear_shapes("mlp.layers.1.", HIDDEN, size)
        | norm_shapes("mlp.bns.0.", HIDDEN)
        | norm_shapes("mlp.bns.1.", size)
        | gpool_shapes(),
        seed,
    )


def bigru_state(seed: int = 1, size: int = SIZE) -> State:
    shapes = {"embed.weight": (WORDS, WORD_SIZE)} | gru_shapes("rnn.", WORD_SIZE, size) | gpool_shapes()
    return random_state(shapes, seed)


def bert_state(seed: int = 2, size: int = SIZE, *, hidden: int = BERT_SIZE, layers: int = 2) -> State:
    shapes: dict[str, Sequence[int]] = {
        "bert.embeddings.word_embeddings.weight": (PIECES, hidden),
        "bert.embeddings.position_embeddings.weight": (BERT_POSITIONS, hidden),
        "bert.embeddings.token_type_embeddings.weight": (2, hidden),
        "bert.embeddings.LayerNorm.weight": (hidden,),
        "bert.embeddings.LayerNorm.bias": (hidden,),
    }
    for layer in range(layers):
        prefix = f"bert.encoder.layer.{layer}."
        for name in (
            "attention.self.query.",
            "attention.self.key.",
            "attention.self.value.",
            "attention.output.dense.",
        ):
            shapes |= linear_shapes(prefix + name, hidden, hidden)
        shapes |= linear_shapes(prefix + "intermediate.dense.", hidden, BERT_INNER)
        shapes |= linear_shapes(prefix + "output.dense.", BERT_INNER, hidden)
        for name in ("attention.output.LayerNorm.", "output.LayerNorm."):
            shapes |= {f"{prefix}{name}weight": (hidden,), f"{prefix}{name}bias": (hidden,)}
    shapes |= linear_shapes("bert.pooler.dense.", hidden, hidden)
    shapes |= linear_shapes("linear.", hidden, size) | gpool_shapes()
    state = random_state(shapes, seed)
    state["bert.embeddings.position_ids"] = torch.arange(BERT_POSITIONS).unsqueeze(0)
    return state


def resnet_state(
    seed: int = 3, *, blocks: Sequence[int] = (1, 1, 1, 1), stem: int = 4, width: int = 4, groups: int = 1
) -> State:
    """A bottleneck ResNet under its usual names; ``width`` is that of one group in the first stage."""
    shapes: dict[str, Sequence[int]] = {"conv1.weight": (stem, 3, 7, 7)} | norm_shapes("bn1.", stem)
    inputs = stem
    for stage, count in enumerate(blocks):
        inner, outputs = groups * width * 2**stage, stem * 4 * 2**stage
        for block in range(count):
            prefix = f"layer{stage + 1}.{block}."
            shapes |= {
                f"{prefix}conv1.weight": (inner, inputs, 1, 1),
                f"{prefix}conv2.weight": (inner, width * 2**stage, 3, 3),
                f"{prefix}conv3.weight": (outputs, inner, 1, 1),
            }
            shapes |= norm_shapes(f"{prefix}bn1.", inner) | norm_shapes(f"{prefix}bn2.", inner)
            shapes |= norm_shapes(f"{prefix}bn3.", outputs)
            if block == 0:
                shapes |= {f"{prefix}downsample.0.weight": (outputs, inputs, 1, 1)}
                shapes |= norm_shapes(f"{prefix}downsample.1.", outputs)
            inputs = outputs
    return random_state(shapes, seed)


def grid_state(resnet: Mapping[str, Tensor], seed: int = 4, size: int = SIZE) -> State:
    """The grid encoder around a ResNet: every tensor of it twice, and the classifier it does not use."""
    channels = resnet["layer4.0.conv3.weight"].shape[0]
    state = {f"backbone.resnet.{name}": value for name, value in resnet.items()}
    for name, value in resnet.items():
        first, _, rest = name.partition(".")
        state[f"backbone.{COPIES[first]}.{rest}"] = value
    state |= random_state(linear_shapes("backbone.resnet.fc.", channels, 9), seed)
    shapes = linear_shapes("image_encoder.fc.", channels, size) | gpool_shapes("image_encoder.gpool.")
    return state | random_state(shapes, seed)


def options(**changes: Any) -> argparse.Namespace:
    """What the released training script saves of its arguments, and more that nobody asks for."""
    values: dict[str, Any] = {
        "data_name": "f30k_precomp",
        "precomp_enc_type": "basic",
        "backbone_source": "detector",
        "input_scale_factor": 1,
        "no_imgnorm": False,
        "no_txtnorm": False,
        "margin": 0.2,
        "unheard_of": ["ignored"],
    }
    return argparse.Namespace(**(values | changes))


def write(path: Path, image: Mapping[str, Tensor], text: Mapping[str, Tensor], **changes: Any) -> Path:
    """Save both halves as the released code does; ``changes`` replace options, or entries by ``entries={...}``."""
    entries = changes.pop("entries", {})
    content = {
        "epoch": 3,
        "model": [dict(image), dict(text)],
        "best_rsum": 123.5,
        "opt": options(**changes),
        "Eiters": 9,
    }
    torch.save(content | entries, path)
    return path
