"""Reduce exported towers to half-precision weights or 8-bit arithmetic.

``fp16`` stores every large weight in half precision and widens it on loading; arithmetic stays in float32. CPUs compute
no faster in half precision, so this halves the file and loses almost nothing.

``int8`` computes in 8 bits. Matrix products are quantized dynamically (weights per channel, activations at run time);
convolutions need the range of their activations in advance, measured on calibration images. The recurrence of a GRU
has no 8-bit operator in ONNX Runtime and keeps half-precision weights.

``mixed`` is fp16 for images and int8 for texts, whose weights dominate a model with a transformer. The table of word
embeddings stays in fp16.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import require

# The steps between convolutions are quantized with them: otherwise every convolution's output is rounded once more
# before its activation has cut the range (cosine to float32 0.89 instead of 0.99 for EfficientNet-Lite0).
CONVOLUTIONAL = ["Conv", "Add", "Clip", "Relu", "MaxPool"]
SMALLEST = 1024  # values; smaller weights are not worth converting


def halve_weights(path: Path) -> None:
    """Rewrite the model in ``path`` with its large float32 weights in half precision.

    A weight is widened when the model is loaded. A table of embeddings is not: the rows that are looked up are.
    """
    onnx = require("onnx", "train", "exporting to ONNX")
    model = onnx.load(str(path))
    graph = model.graph
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    halves: dict[str, str] = {}
    for weight in graph.initializer:
        if weight.data_type != onnx.TensorProto.FLOAT or np.prod(weight.dims) < SMALLEST:
            continue
        values = onnx.numpy_helper.to_array(weight)
        if np.abs(values).max() > np.finfo(np.float16).max:
            continue
        half = f"{weight.name}.half"
        if half in taken:
            continue
        halves[weight.name] = half
        weight.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), half))
    tables = _lookup_tables(graph, halves)

    def widened(source: str, target: str) -> Any:
        return onnx.helper.make_node("Cast", [source], [target], to=onnx.TensorProto.FLOAT)

    nodes = [widened(half, name) for name, half in halves.items() if name not in tables]
    for node in graph.node:
        nodes.append(node)
        if node.op_type == "Gather" and node.input[0] in tables:
            output, node.input[0] = node.output[0], halves[node.input[0]]
            node.output[0] = f"{output}.half"
            nodes.append(widened(f"{output}.half", output))
    rewritten = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(rewritten)
    onnx.save(model, str(path))


def _lookup_tables(graph: Any, names: Iterable[str]) -> set[str]:
    """Return which weights are only ever read by rows, at the top level of the graph."""
    wanted = set(names)
    read: set[str] = set()
    for node in graph.node:
        inner = {name for each in node.attribute for part in each.g.node for name in part.input}
        by_row = {node.input[0]} if node.op_type == "Gather" and node.input[0] not in node.input[1:] else set()
        read |= by_row & wanted
        wanted -= (inner | set(node.input)) - by_row
    return read & wanted


def quantize(path: Path, calibration: Iterable[NDArray[np.float32]] | None, *, tables: bool = True) -> None:
    """Rewrite the model in ``path`` in 8 bits.

    Args:
        path: The ONNX file.
        calibration: Batches of pixels for its convolutions.
        tables: Also quantize tables of word embeddings. One scale for a whole table costs more than 8-bit products do.
    """
    require("onnx", "train", "exporting to ONNX")
    from onnxruntime.quantization import (
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    source, target = path.with_suffix(".float.onnx"), path.with_suffix(".int8.onnx")
    path.replace(source)
    _forget_shapes(source)
    logging.getLogger().addFilter(_advice)
    try:
        if calibration is not None and "Conv" in _operators(source):
            quantize_static(
                str(source),
                str(target),
                _Reader(calibration),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=CONVOLUTIONAL,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                reduce_range=True,  # without VNNI, sums of two products of eight bits overflow 16
            )
        else:
            quantize_dynamic(
                str(source),
                str(target),
                op_types_to_quantize=["MatMul", "Gemm", *(["Gather"] if tables else [])],
                per_channel=True,
                weight_type=QuantType.QInt8,
                reduce_range=True,
            )
        target.replace(path)
        halve_weights(path)  # weights that were not quantized
    finally:
        logging.getLogger().removeFilter(_advice)
        source.unlink(missing_ok=True)
        target.unlink(missing_ok=True)


class _Reader:
    """Calibration batches in the form that ONNX Runtime expects."""

    def __init__(self, batches: Iterable[NDArray[np.float32]]) -> None:
        self._batches: Iterator[NDArray[np.float32]] = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self._batches, None)
        return None if batch is None else {"pixels": batch}


def _forget_shapes(path: Path) -> None:
    """Remove the shapes of intermediate values: fused layers leave stale ones, and quantization infers them anew."""
    onnx = require("onnx", "train", "exporting to ONNX")
    model = onnx.load(str(path), load_external_data=False)
    del model.graph.value_info[:]
    onnx.save(model, str(path))


def _operators(path: Path) -> set[str]:
    onnx = require("onnx", "train", "exporting to ONNX")
    return {node.op_type for node in onnx.load(str(path)).graph.node}


def _advice(record: logging.LogRecord) -> bool:
    return "pre-processing before quantization" not in record.getMessage()
