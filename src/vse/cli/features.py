"""``vse features``: compute the features of pictures once, for training to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption
from vse.errors import UsageError, require, unknown_choice


def features(
    images: Annotated[Path, typer.Argument(metavar="IMAGES", help="A folder of pictures, or a data set.")],
    backbone: Annotated[str, typer.Option(metavar="NAME", help="The network, such as efficientnet-lite0.")],
    into: Annotated[Path, typer.Option(metavar="DIR", help="Where the features go; a run that stopped goes on here.")],
    size: Annotated[
        int | None, typer.Option(min=1, metavar="PIXELS", help="The side of a picture [default: the network's own].")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Pictures computed at once.")] = 16,
    layout: Annotated[str, typer.Option(metavar="NAME", help="How a data set is laid out.")] = "auto",
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="One split of a data set [default: all of them].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Extract grid features into a memory-mapped store; run again to resume."""
    from vse.data.layouts import AUTO, LAYOUTS

    if layout not in {AUTO, *LAYOUTS}:
        raise UsageError(f"--layout: {unknown_choice('layout', layout, (AUTO, *LAYOUTS))}")
    require("torch", "train", "vse features")
    from vse.features import extract_features, find_images

    found = find_images(images, layout=layout, split=split)
    with progress_on_stderr() as progress:
        report = extract_features(found, backbone, into, size=size, batch_size=batch_size, progress=progress)
    show(report, as_json=as_json)
