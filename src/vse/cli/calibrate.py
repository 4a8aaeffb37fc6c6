"""``vse calibrate``: what a model's scores are worth as confidence, kept in its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption
from vse.errors import InputError


def calibrate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, or an export's.")],
    data: Annotated[Path, typer.Option(metavar="DIR", help="Captioned data that the model was not trained on.")],
    split: Annotated[
        str, typer.Option(metavar="NAME", help="The split to fit on; keep the test split for tests.")
    ] = "dev",
    features: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A store of 'vse features' to use in the place of pictures.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit the confidence of search results to a model: writes MODEL/confidence.json, which 'vse search' then uses."""
    from dataclasses import replace

    folder = _local_folder(model)

    from vse.cli.options import embed
    from vse.index.calibration import calibrate_embeddings, write_coefficients

    with progress_on_stderr() as progress:
        found = embed(str(folder), data, split, features=features, progress=progress)
        report = calibrate_embeddings(found, progress)
    show(replace(report, written=write_coefficients(folder, report.coefficients)), as_json=as_json)


def _local_folder(model: str) -> Path:
    """A model's folder that can be written into; found out before anything is encoded."""
    from vse.cli.options import refuse_shipped
    from vse.models.sources import model_folder

    refuse_shipped(model, "the next install would lose what was fitted")
    folder = Path(model).expanduser()
    if (folder / "ensemble.json").is_file() and not (folder / "config.json").is_file():
        raise InputError(f"{model!r}: an ensemble, which cannot be searched with: calibrate one of its models")
    if not folder.exists():
        raise InputError(f"{model!r}: no such folder; a model on the hub becomes one with 'vse export {model} DIR'")
    model_folder(folder)
    if not os.access(folder, os.W_OK):
        raise InputError(f"{model!r}: may not be written, and the coefficients go there: copy the folder first")
    return folder
