"""``vse calibrate``: fit the confidence of search results to a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import DeviceOption, JsonOption, ThreadsOption
from vse.errors import InputError


def calibrate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a model or an export.")],
    data: Annotated[Path, typer.Option(metavar="DIR", help="A captioned dataset that the model was not trained on.")],
    split: Annotated[
        str, typer.Option(metavar="NAME", help="The split to fit on; keep the test split for evaluation.")
    ] = "dev",
    features: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Features from 'vse features' to use instead of images.")
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit the confidence of search results to a model.

    Writes MODEL/confidence.json, which 'vse search' then uses.
    """
    from dataclasses import replace

    folder = _local_folder(model)

    from vse.evaluation.models import embed_model
    from vse.index.calibration import calibrate_embeddings, write_coefficients

    with progress_on_stderr() as progress:
        found = embed_model(
            str(folder), data, split, features=features, device=device, threads=threads, progress=progress
        )
        report = calibrate_embeddings(found, progress)
    show(replace(report, written=write_coefficients(folder, report.coefficients)), as_json=as_json)


def _local_folder(model: str) -> Path:
    """The folder of a model, checked to be writable before anything is encoded."""
    from vse.cli.options import reject_bundled
    from vse.models.sources import model_folder, pulled_folder

    reject_bundled(model, "the next install would overwrite the fitted coefficients")
    folder = Path(model).expanduser()
    if (folder / "ensemble.json").is_file() and not (folder / "config.json").is_file():
        raise InputError(f"{model!r}: an ensemble cannot be used for search: calibrate one of its models")
    folder = folder if folder.exists() else pulled_folder(model) or folder
    if not folder.exists():
        raise InputError(f"{model!r}: no such folder; 'vse pull {model}' keeps a copy of a hub model in one")
    model_folder(folder)
    if not os.access(folder, os.W_OK):
        raise InputError(f"{model!r}: is not writable, and the coefficients are stored there: copy the folder first")
    return folder
