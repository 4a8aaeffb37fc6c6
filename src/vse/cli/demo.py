"""``vse demo``: everything that works, on generated data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption, output_folder, parse_seeds


def demo(
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where results are written [default: vse-demo, or vse-demo-quick]."),
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="LIST", help="Seeds to train each method with, separated by commas.")
    ] = "0,1,2",
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke run on few scenes: shows the way, not the result.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train VSE++ and VSE∞ on generated scenes and compare them; no download, no dataset, about two minutes."""
    folder = output_folder(out or Path("vse-demo-quick" if quick else "vse-demo"))
    chosen = parse_seeds(seeds)

    from vse.demo import run

    with progress_on_stderr() as progress:
        result = run(out=folder, seeds=chosen, quick=quick, progress=progress)
    show(result, as_json=as_json)
