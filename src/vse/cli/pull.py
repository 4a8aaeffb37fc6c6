"""``vse pull``: fetch a model once, for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption
from vse.errors import UsageError, unknown_choice

if TYPE_CHECKING:
    from vse.models.onnx import Precision

PRECISIONS = ("fp32", "fp16", "int8", "mixed")


def pull(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A hub id (OWNER/MODEL), open_clip:NAME/TAG, or a folder.")
    ],
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to put it [default: below ~/.cache/vse/models].")
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="P", help="fp32, fp16 (half the size), int8, or mixed (int8 for text only).")
    ] = "fp32",
    revision: Annotated[str | None, typer.Option(metavar="REV", help="A commit, tag or branch on the hub.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch it again, and replace what is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch a model and export it to ONNX; later commands need neither torch nor a network.

    CLIP, SigLIP, open_clip and similar models work, and pairs of ONNX files. 'vse models' lists recommended ones.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"--precision: {unknown_choice('precision', precision, PRECISIONS)}")
    from vse.convert.pull import pull_model

    with progress_on_stderr() as progress:
        report = pull_model(
            source,
            into,
            precision=cast("Precision", precision),
            revision=revision,
            force=force,
            progress=progress,
        )
    show(report, as_json=as_json)
