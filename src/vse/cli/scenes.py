"""``vse data scenes``: write a data set of generated pictures and captions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption


def scenes(
    into: Annotated[Path, typer.Argument(metavar="DIR", help="Where the data set is written.", show_default=False)],
    train: Annotated[int, typer.Option(metavar="N", min=0, help="Scenes to train on.")] = 2400,
    dev: Annotated[int, typer.Option(metavar="N", min=0, help="Scenes to choose a model by.")] = 200,
    test: Annotated[int, typer.Option(metavar="N", min=0, help="Scenes to evaluate on.")] = 500,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Another seed gives other scenes.")] = 0,
    size: Annotated[int, typer.Option(metavar="PIXELS", help="Width and height of a picture.")] = 128,
    as_json: JsonOption = False,
) -> None:
    """Write pictures of coloured shapes with five true captions each; no download."""
    from vse.data.scenes import write_scenes

    with progress_on_stderr() as progress:
        result = write_scenes(into, train, dev, test, seed=seed, size=size, progress=progress)
    show(result, as_json=as_json)
