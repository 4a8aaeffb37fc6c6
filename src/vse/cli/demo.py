"""``vse demo``: everything that works, on generated data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption, output_folder


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results are written.")] = Path("vse-demo"),
    as_json: JsonOption = False,
) -> None:
    """Show what works on generated data; no download, no dataset."""
    folder = output_folder(out)

    from vse.demo import run

    with progress_on_stderr() as progress:
        result = run(out=folder, progress=progress)
    show(result, as_json=as_json)
