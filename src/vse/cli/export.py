"""``vse export``: write a model for ONNX Runtime, and compare it with torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import PRECISIONS, JsonOption
from vse.errors import UsageError, unknown_choice

if TYPE_CHECKING:
    from vse.models.onnx import Precision


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model folder or a hub id.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the export is written.")],
    precision: Annotated[
        str, typer.Option(metavar="P", help="fp32, fp16 (half the size), int8, or mixed (int8 for text only).")
    ] = "fp32",
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A captioned dataset to measure the loss of recall on.")
    ] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="The split of --data to use.")] = "test",
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder of images to calibrate an int8 export with.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Export a model to ONNX, and compare it with torch.

    The folder holds both towers, the tokenizer and the preprocessing.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"--precision: {unknown_choice('precision', precision, PRECISIONS)}")
    from vse.cli.options import reject_bundled
    from vse.errors import require

    reject_bundled(model, "it is already an export")
    require("torch", "train", "vse export")
    from vse.convert.onnx_export import export_onnx
    from vse.data import open_data
    from vse.models.coefficients import own_coefficients, own_relevance
    from vse.models.sources import load_torch, model_folder

    source = model_folder(model, pulled=False)
    captioned = None if data is None else open_data(data, split)
    chosen = None if pictures is None else open_data(pictures, "all", layout="folder").images
    with progress_on_stderr() as progress:
        result = export_onnx(
            load_torch(model, folder=source),
            folder,
            precision=cast("Precision", precision),
            data=captioned,
            images=chosen,
            confidence=own_coefficients(source),
            relevance=own_relevance(source),
            progress=progress,
        )
    show(result, as_json=as_json)
