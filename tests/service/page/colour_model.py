"""A model with ten dimensions for ten colours, written as ONNX by hand, so that tests can predict its results.

A pixel is a softmax over its distances to the colours, a cell is the mean of its pixels, and an image is the normalized
sum of its cells. A sentence is the sum of its colours. So "red" finds red images, and their evidence is where they are
red.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, save_model

from vse.data.scenes.scene import PALETTE
from vse.inputs import Vocabulary
from vse.models.coefficients import RELEVANCE_FILE, RelevanceCoefficients, encode_reference
from vse.models.curves import CURVES_FILE, PoolingCurve, write_curves

SIDE, CELLS = 96, 6
GROUNDS = {"white": (245, 245, 245), "grey": (150, 150, 150)}
COLOURS = {**PALETTE, **GROUNDS}
SHARPNESS = 12.0
GROUND_WEIGHT = 0.2
"""What lies behind the shapes counts less than they do."""
MARK = "colours"
SENTENCES = [
    "a red circle",
    "two orange or yellow squares",
    "green and blue stars",
    "purple, pink and black",
    "white grey",
]


def write_colour_model(folder: Path, *, graded: bool = False) -> Path:
    """Write an exported model as ``vse.load`` reads it; with ``graded``, its results have a relevance."""
    folder.mkdir(parents=True)
    tokenizer = Vocabulary.build(SENTENCES, min_count=1).tokenizer(20)
    tokenizer.save(folder)
    table = np.full((tokenizer.vocab_size, len(COLOURS)), 0, np.float32)
    for word, ids in zip(COLOURS, tokenizer.encode(list(COLOURS)).tokens, strict=True):
        table[ids[1], list(COLOURS).index(word)] = 1
    _save(folder / "image.onnx", _image_tower())
    _save(folder / "text.onnx", _text_tower(table))
    write_curves(folder / CURVES_FILE, _curves())
    (folder / "config.json").write_text(json.dumps(_config(tokenizer.vocab_size)))
    if graded:
        (folder / RELEVANCE_FILE).write_text(json.dumps(asdict(_relevance())))
    return folder


def _relevance() -> RelevanceCoefficients:
    """Strong from a cosine of 0.8, good from 0.71, weak from 0.62, whatever the query."""
    reference = encode_reference(np.eye(len(COLOURS)))
    return RelevanceCoefficients(-9.6, 12.0, 0.0, 0.0, len(COLOURS), reference, "a test")


def _image_tower() -> ModelProto:
    points = np.array(list(COLOURS.values()), np.float32) / 127.5 - 1
    weights = np.array([GROUND_WEIGHT if name in GROUNDS else 1 for name in COLOURS], np.float32)
    values = {
        "points": 2 * SHARPNESS * points[:, :, None, None],
        "offsets": -SHARPNESS * (points**2).sum(axis=1),
        "weights": weights[None, :, None, None],
        "flat": np.array([0, len(COLOURS), CELLS**2], np.int64),
    }
    size = SIDE // CELLS
    nodes = [
        helper.make_node("Conv", ["pixels", "points", "offsets"], ["likeness"], kernel_shape=[1, 1]),
        helper.make_node("Softmax", ["likeness"], ["shared"], axis=1),
        helper.make_node("AveragePool", ["shared"], ["means"], kernel_shape=[size, size], strides=[size, size]),
        helper.make_node("Mul", ["means", "weights"], ["weighted"]),
        helper.make_node("Reshape", ["weighted", "flat"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["cells"], perm=[0, 2, 1]),
        helper.make_node("ReduceSum", ["cells", "axis"], ["whole"], keepdims=1),
        *_unit("whole", "length", "unit"),
        helper.make_node("Squeeze", ["unit", "axis"], ["vectors"]),
        helper.make_node("Div", ["cells", "length"], ["contributions"]),
    ]
    inputs = [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])]
    return _model(nodes, inputs, ["vectors", "contributions"], values)


def _text_tower(table: np.ndarray) -> ModelProto:
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["words"]),
        helper.make_node("ReduceSum", ["words", "axis"], ["sum"], keepdims=0),
        helper.make_node("Add", ["sum", "little"], ["whole"]),
        *_unit("whole", "length", "vectors"),
        helper.make_node("Identity", ["lengths"], ["unused"]),
    ]
    inputs = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "words"]),
        helper.make_tensor_value_info("lengths", TensorProto.INT64, ["batch"]),
    ]
    little = np.full(len(COLOURS), 1e-3, np.float32)  # a sentence without a colour needs a direction too
    return _model(nodes, inputs, ["vectors"], {"table": table, "little": little})


def _unit(whole: str, length: str, unit: str) -> list:
    return [
        helper.make_node("ReduceL2", [whole, "last"], [length], keepdims=1),
        helper.make_node("Div", [whole, length], [unit]),
    ]


def _model(nodes: list, inputs: list, outputs: list[str], values: dict[str, np.ndarray]) -> ModelProto:
    values = {**values, "axis": np.array([1], np.int64), "last": np.array([-1], np.int64)}
    given = [numpy_helper.from_array(value, name) for name, value in values.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, MARK, inputs, made, given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {"vse_fingerprint": MARK})
    return model


def _save(path: Path, model: ModelProto) -> None:
    save_model(model, str(path))


def _curves() -> list[PoolingCurve]:
    """A learned curve for two set sizes, and a pooling without one."""

    def curve(size: int) -> PoolingCurve:
        weights = np.exp(-np.arange(size) / size * 6)
        return PoolingCurve("image", "gpo", size, tuple((weights / weights.sum()).tolist()))

    return [curve(9), curve(CELLS**2), PoolingCurve("text", "gem", note="a generalized mean: no curve by rank")]


def _config(words: int) -> dict:
    preprocessing = {"size": [SIDE, SIDE], "mean": [127.5] * 3, "std": [127.5] * 3, "fit": "crop", "crop_ratio": 0.9}
    return {
        "format": 1, "runtime": "onnx", "vse_version": "0.1.0", "fingerprint": MARK, "precision": "fp32",
        "embed_size": len(COLOURS), "feature_size": 3, "preprocessing": preprocessing, "grid": [CELLS, CELLS],
        "largest_image_set": CELLS**2, "longest_text": 20, "vocabulary_size": words, "explains": True,
        "agreement": {}, "source": {},
    }  # fmt: skip
