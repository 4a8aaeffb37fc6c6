"""``vse calibrate``: fit the confidence and the relevance of search results to a model."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import DeviceOption, JsonOption, ThreadsOption
from vse.errors import InputError

if TYPE_CHECKING:
    from vse.index.calibration import CalibrationReport
    from vse.index.relevance_fit import RelevanceReport


@dataclass(frozen=True)
class Calibrated:
    """What was fitted to a model."""

    confidence: CalibrationReport
    relevance: RelevanceReport

    def to_json(self) -> dict[str, Any]:
        """Return the report of confidence, with that of relevance under its name."""
        return {**self.confidence.to_json(), "relevance": self.relevance.to_json()}


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
    """Fit the confidence and relevance of search results to a model.

    Writes MODEL/confidence.json and MODEL/relevance.json, which 'vse search' then uses.
    """
    folder = _local_folder(model)

    from vse.evaluation.models import embed_model
    from vse.index.calibration import calibrate_embeddings, write_coefficients
    from vse.index.relevance_fit import fit_embeddings, write_relevance
    from vse.models.sources import load_towers

    with progress_on_stderr() as progress:
        loaded = load_towers(str(folder), device=device, threads=threads)
        found = embed_model(loaded, data, split, features=features, progress=progress)
        confidence = calibrate_embeddings(found, progress)
        relevance = fit_embeddings(found, loaded)
    confidence = replace(confidence, written=write_coefficients(folder, confidence.coefficients))
    relevance = replace(relevance, written=write_relevance(folder, relevance.coefficients))
    show(Calibrated(confidence, relevance), as_json=as_json)


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
