"""``vse inspect``: show what a saved model is, and what its pooling has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vse.cli.console import show
from vse.cli.options import JsonOption
from vse.errors import UsageError


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model folder or hub id.")],
    out: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Plot the pooling curves to this .png, .svg or .pdf file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a model: towers, data, scores and pooling curves."""
    from dataclasses import replace

    from vse.models.curves_plot import SUFFIXES, plot_curves
    from vse.models.inspection import inspect_folder
    from vse.models.sources import model_folder

    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {str(out)!r}: the name must end in one of {', '.join(SUFFIXES)}")
    report = inspect_folder(model_folder(model))
    if out is not None:
        report = replace(report, plot=str(plot_curves(report.curves, out)))
    show(report, as_json=as_json)
