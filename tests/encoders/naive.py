"""The encoders a second time: one input at a time, in float64, straight from the definitions, on the released names.

Nothing here imports ``vse``. A state is a dictionary of tensors under the names of the released checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from tests.pooling.naive import bigru_states, gpo, linear, softmax
from torch import Tensor
from torch.nn import functional as F

State = Mapping[str, Tensor]
EPSILON = 1e-5  # of every batch norm
BERT_EPSILON = 1e-12
BERT_HEAD = 64


def part(state: State, prefix: str) -> dict[str, Tensor]:
    """The tensors below ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def unit(vector: Tensor) -> Tensor:
    return vector / math.sqrt(float((vector * vector).sum()))


def normed(rows: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A batch norm over the last axis, with these statistics."""
    return (rows - mean.double()) / torch.sqrt(variance.double() + EPSILON) * weight.double() + bias.double()


def project_regions(rows: Tensor, state: State) -> Tensor:
    """``fc(x) + mlp(x)`` of ``rows (n, F)`` in evaluation mode."""
    hidden = linear(rows.double(), state, "mlp.layers.0.")
    of = part(state, "mlp.bns.0.")
    hidden = normed(hidden, of["running_mean"], of["running_var"], of["weight"], of["bias"])
    return linear(rows.double(), state, "fc.") + linear(hidden.clamp(min=0), state, "mlp.layers.1.")


def region(rows: Tensor, state: State) -> Tensor:
    """The unit vector of one image, ``rows (n, F)`` being its regions and nothing else."""
    return unit(gpo(project_regions(rows, state), part(state, "gpool.")))


def grid(cells: Tensor, state: State) -> Tensor:
    """The unit vector of one image from its cells ``(C, h, w)``."""
    rows = cells.double().flatten(1).T
    return unit(gpo(linear(rows, state, "image_encoder.fc."), part(state, "image_encoder.gpool.")))


def bigru(tokens: Tensor, state: State) -> Tensor:
    """The unit vector of one sentence of ``tokens (n,)``, padding left out."""
    words = torch.stack([state["embed.weight"][int(token)].double() for token in tokens])
    return unit(gpo(bigru_states(words, state, "rnn."), part(state, "gpool.")))


def bert(tokens: Tensor, state: State) -> Tensor:
    """The unit vector of one sentence by BERT and a linear map."""
    hidden = bert_states(tokens, part(state, "bert."))
    return unit(gpo(linear(hidden, state, "linear."), part(state, "gpool.")))


def bert_states(tokens: Tensor, state: State) -> Tensor:
    """The last hidden states ``(n, H)`` of BERT, all of one segment, without dropout."""
    rows = []
    for position, token in enumerate(tokens):
        word = state["embeddings.word_embeddings.weight"][int(token)]
        place = state["embeddings.position_embeddings.weight"][position]
        rows.append((word + place + state["embeddings.token_type_embeddings.weight"][0]).double())
    states = layer_norm(torch.stack(rows), state, "embeddings.LayerNorm.")
    layers = {int(name.split(".")[2]) for name in state if name.startswith("encoder.layer.")}
    for layer in sorted(layers):
        states = bert_layer(states, part(state, f"encoder.layer.{layer}."))
    return states


def bert_layer(states: Tensor, state: State) -> Tensor:
    query, key, value = (linear(states, state, f"attention.self.{name}.") for name in ("query", "key", "value"))
    heads = []
    for start in range(0, states.shape[1], BERT_HEAD):
        of = slice(start, start + BERT_HEAD)
        rows = [
            softmax(key[:, of] @ query[n, of] / math.sqrt(BERT_HEAD)) @ value[:, of] for n in range(states.shape[0])
        ]
        heads.append(torch.stack(rows))
    attended = linear(torch.cat(heads, dim=1), state, "attention.output.dense.")
    states = layer_norm(states + attended, state, "attention.output.LayerNorm.")
    inner = linear(states, state, "intermediate.dense.")
    inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
    return layer_norm(states + linear(inner, state, "output.dense."), state, "output.LayerNorm.")


def layer_norm(rows: Tensor, state: State, prefix: str) -> Tensor:
    centred = rows - rows.mean(dim=-1, keepdim=True)
    scaled = centred / torch.sqrt((centred**2).mean(dim=-1, keepdim=True) + BERT_EPSILON)
    return scaled * state[f"{prefix}weight"].double() + state[f"{prefix}bias"].double()


def resnet(pixels: Tensor, state: State, layout: Literal["caffe", "usual"]) -> Tensor:
    """The last feature map ``(B, C, h, w)`` of a bottleneck ResNet or ResNeXt; the layout says where it strides."""
    x = F.conv2d(pixels.double(), state["conv1.weight"].double(), stride=2, padding=3)
    x = map_norm(x, state, "bn1.").clamp(min=0)
    if layout == "caffe":
        x = F.max_pool2d(x, 3, stride=2, padding=0, ceil_mode=True)
    else:
        x = F.max_pool2d(x, 3, stride=2, padding=1)
    for stage in (1, 2, 3, 4):
        blocks = {int(name.split(".")[1]) for name in state if name.startswith(f"layer{stage}.")}
        for block in sorted(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            x = bottleneck(x, part(state, f"layer{stage}.{block}."), stride, layout)
    return x


def bottleneck(x: Tensor, state: State, stride: int, layout: str) -> Tensor:
    first, second = (stride, 1) if layout == "caffe" else (1, stride)
    kernels = {name: value.double() for name, value in state.items() if name.endswith("weight")}
    out = map_norm(F.conv2d(x, kernels["conv1.weight"], stride=first), state, "bn1.").clamp(min=0)
    groups = kernels["conv2.weight"].shape[0] // kernels["conv2.weight"].shape[1]
    out = F.conv2d(out, kernels["conv2.weight"], stride=second, padding=1, groups=groups)
    out = map_norm(out, state, "bn2.").clamp(min=0)
    out = map_norm(F.conv2d(out, kernels["conv3.weight"]), state, "bn3.")
    if "downsample.0.weight" in state:
        x = map_norm(F.conv2d(x, kernels["downsample.0.weight"], stride=stride), state, "downsample.1.")
    return (out + x).clamp(min=0)


def map_norm(x: Tensor, state: State, prefix: str) -> Tensor:
    of = part(state, prefix)
    rows = normed(x.movedim(1, -1), of["running_mean"], of["running_var"], of["weight"], of["bias"])
    return rows.movedim(-1, 1)
