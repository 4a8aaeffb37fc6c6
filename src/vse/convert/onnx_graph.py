"""Export one tower to one ONNX file with torch's exporter, and compare embeddings."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vse.convert.onnx_towers import gru_translations
from vse.errors import VSEError, first_line, require
from vse.evaluation import retrieval_metrics
from vse.models.onnx import MARK, WEIGHTS_ENDING
from vse.models.protocols import Vectors


def write_graph(
    tower: nn.Module,
    example: tuple[Tensor, ...],
    dynamic: Sequence[dict[int, Any]],
    inputs: Sequence[str],
    outputs: Sequence[str],
    path: Path,
) -> None:
    """Export ``tower`` to ``path``; ``dynamic`` names the dimensions of each input that may vary."""
    require("onnx", "train", "exporting to ONNX")
    require("onnxscript", "train", "exporting to ONNX")
    with _quiet():
        try:
            program = torch.onnx.export(
                tower.eval(),
                example,
                dynamo=True,
                verbose=False,
                dynamic_shapes=tuple(dynamic),
                input_names=list(inputs),
                output_names=list(outputs),
                custom_translation_table=gru_translations(tower) or None,
            )
        except Exception as error:  # the exporter raises its own and those of torch.export
            raise VSEError(f"torch could not export the {path.stem} tower: {_cause(error)}") from error
        if program is None:
            raise VSEError(f"torch exported nothing for the {path.stem} tower")
        program.save(str(path))


def write_mark(path: Path, mark: str) -> None:
    """Write a model's fingerprint into an ONNX file; :class:`vse.models.onnx.OnnxModel` checks it.

    Large weights move to a file beside it, which ONNX Runtime memory-maps instead of copying: it loads in a tenth of
    the time, and processes share it. Its name has the fingerprint, so that a tower never loads another model's weights.
    """
    onnx = require("onnx", "train", "exporting to ONNX")
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {MARK: mark})
    strip_traces(model)
    onnx.save(model, str(path), save_as_external_data=True, location=f"{path.stem}-{mark}{WEIGHTS_ENDING}")


def strip_traces(model: Any) -> None:
    """Remove the stack traces that torch's exporter records: they name folders of the machine that exported."""
    graphs = [model.graph, *model.functions]
    while graphs:
        graph = graphs.pop()
        values = (graph.value_info, *((graph.input, graph.output) if hasattr(graph, "initializer") else ()))
        for part in (graph, *graph.node, *(value for group in values for value in group)):
            del part.metadata_props[:]
            part.doc_string = ""
        graphs += [each.g for node in graph.node for each in node.attribute if each.HasField("g")]


def tower_bytes(path: Path) -> int:
    """Return the size of an ONNX file and the weights beside it."""
    return sum(each.stat().st_size for each in (path, *path.parent.glob(f"{path.stem}-*{WEIGHTS_ENDING}")))


def _cause(error: BaseException) -> str:
    """Return the first line of the root error: those above it only say where the exporter failed."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's output and deprecation warnings."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@dataclass(frozen=True)
class TowerAgreement:
    """How well two sets of embeddings ``(n, D)`` of the same inputs agree."""

    max_difference: float
    mean_cosine: float
    twins_lost: float  # percent of embeddings whose counterpart is not their nearest neighbour

    @classmethod
    def between(cls, expected: Vectors, found: Vectors) -> TowerAgreement:
        """Compare row by row; any NaN makes the difference NaN, which counts as disagreement."""
        scores = found @ expected.T
        own = np.diagonal(scores)
        lost = (scores > own[:, None]).any(axis=1)
        return cls(
            float(np.abs(expected - found).max()),
            float((expected * found).sum(axis=1).mean()),
            100.0 * float(lost.mean()),
        )

    def to_json(self) -> dict[str, float]:
        """Return the three values."""
        return {
            "max_difference": self.max_difference,
            "mean_cosine": self.mean_cosine,
            "twins_lost_percent": self.twins_lost,
        }


def recalls(images: Vectors, texts: Vectors, text_to_image: NDArray[np.int64]) -> dict[str, float]:
    """Return R@1, 5 and 10 in percent, in both directions."""
    figures = retrieval_metrics(images, texts, text_to_image).figures()
    return {name: value for name, value in figures.items() if re.search(r"_r\d+$", name)}


def random_token_batches(vocabulary: int, longest: int, seed: int = 0) -> list[tuple[Any, Any]]:
    """Return batches of several sizes and lengths, including a text of one token and one of maximum length."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for count, length in ((1, 1), (2, min(7, longest)), (200, min(14, longest)), (2, longest)):
        tokens = torch.randint(0, vocabulary, (count, length), generator=generator)
        lengths = torch.randint(1, length + 1, (count,), generator=generator)
        lengths[0] = length
        batches.append((tokens.numpy(), lengths.numpy()))
    return batches


def random_feature_batches(width: int, largest: int, seed: int = 0) -> list[tuple[Any, Any]]:
    """Return batches of several sizes, including a set of one element and one of maximum size."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for count, size in ((1, 1), (2, min(5, largest)), (100, min(36, largest)), (1, largest)):
        features = torch.randn(count, size, width, generator=generator)
        lengths = torch.randint(1, size + 1, (count,), generator=generator)
        lengths[0] = size
        batches.append((features.numpy(), lengths.numpy()))
    return batches
