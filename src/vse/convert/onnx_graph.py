"""One tower to one ONNX file, by torch's exporter."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vse.convert.onnx_gru import gru_translations
from vse.errors import VSEError, first_line, require
from vse.onnx_model import MARK, WEIGHTS_ENDING


def write_graph(
    tower: nn.Module,
    example: tuple[Tensor, ...],
    dynamic: Sequence[dict[int, Any]],
    inputs: Sequence[str],
    outputs: Sequence[str],
    path: Path,
) -> None:
    """Export ``tower`` to ``path``. ``dynamic`` names the dimensions of each input that may change."""
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
    """Write a model's fingerprint into an ONNX file, for :class:`vse.onnx_model.OnnxModel` to compare.

    Large weights move to a file beside it: ONNX Runtime maps that instead of copying it, which takes a tenth of the
    time, and processes share it. Its name has the fingerprint, so that a tower never meets another's weights.
    """
    onnx = require("onnx", "train", "exporting to ONNX")
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {MARK: mark})
    onnx.save(model, str(path), save_as_external_data=True, location=f"{path.stem}-{mark}{WEIGHTS_ENDING}")


def tower_bytes(path: Path) -> int:
    """The size of an ONNX file with the weights beside it."""
    return sum(each.stat().st_size for each in (path, *path.parent.glob(f"{path.stem}-*{WEIGHTS_ENDING}")))


def _cause(error: BaseException) -> str:
    """The first line of the error at the root: those above it say only where in the exporter it went wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter narrates on stdout and warns of its own deprecations; neither is for our users."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
