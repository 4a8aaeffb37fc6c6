"""``vse data``: look at data before it is used, and make some."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption
from vse.cli.scenes import scenes
from vse.cli.vocabulary import vocabulary
from vse.errors import UsageError, unknown_choice

FOUND_ERRORS = 1

data_app = typer.Typer(
    name="data",
    help="Look at data on disk, or generate some.",
    add_completion=False,
    rich_markup_mode=None,
)


@data_app.callback(invoke_without_command=True)
def _data(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        raise UsageError("no data command named: expected 'check', 'scenes' or 'vocabulary' (try 'vse data --help')")


data_app.command("scenes")(scenes)
data_app.command("vocabulary")(vocabulary)


@data_app.command("check")
def check(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A folder, or a file that lists images and captions.")],
    layout: Annotated[str, typer.Option(metavar="NAME", help="How the data is laid out.")] = "auto",
    features: Annotated[
        Path | None,
        typer.Option(metavar="PLACE", help="The frames of videos: a file, a folder, or a kind that the data has."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a data set holds and what is wrong with it; exit code 1 if there are errors."""
    from vse.data.layouts import AUTO, LAYOUTS

    if layout not in {AUTO, *LAYOUTS}:
        raise UsageError(f"--layout: {unknown_choice('layout', layout, (AUTO, *LAYOUTS))}")

    from vse.data.check import check_data

    with progress_on_stderr() as progress:
        report = check_data(path, layout=layout, features=features, progress=progress)
    show(report, as_json=as_json)
    if not report.ok:
        raise typer.Exit(FOUND_ERRORS)
