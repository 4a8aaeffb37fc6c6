"""``vse demo``: everything that works, on generated data, or searching one's own photographs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption, output_folder, parse_seeds
from vse.errors import UsageError

if TYPE_CHECKING:
    from vse.demo.photos import PhotosResult
    from vse.demo.result import DemoResult


def demo(
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where results are written [default: vse-demo, or vse-demo-quick]."),
    ] = None,
    photos: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Train nothing, and make this folder of photographs searchable instead."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Seeds to train each method with, separated by commas [default: 0,1,2]."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke run on few scenes: shows the way, not the result.")
    ] = False,
    page: Annotated[
        bool | None,
        typer.Option(
            "--page/--no-page",
            help="Serve the page until Ctrl-C [default: on a terminal; elsewhere it is tried and stopped].",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train VSE++ and VSE∞ on generated scenes, compare them, and search the scenes on a page; no download, no dataset.

    About two minutes, and the page. With --photos, the page over one's own photographs.
    """
    folder = output_folder(out or Path("vse-demo-quick" if quick else "vse-demo"))
    if photos is not None and (quick or seeds is not None):
        raise UsageError("--photos trains nothing: leave out --seeds and --quick")
    chosen = parse_seeds("0,1,2" if seeds is None else seeds)
    result: DemoResult | PhotosResult
    with progress_on_stderr() as progress:
        if photos is not None:
            from vse.demo.photos import index_photos

            result = index_photos(folder, photos, progress)
        else:
            from vse.demo import run

            result = run(out=folder, seeds=chosen, quick=quick, progress=progress)
    show(result, as_json=as_json)
    _page(result, page, as_json=as_json)


def _page(result: DemoResult | PhotosResult, wanted: bool | None, *, as_json: bool) -> None:
    """To a person the page stays; a program is shown that it works, unless it wants JSON alone."""
    if wanted is False or (wanted is None and as_json):
        return
    from vse.demo.photos import show_page, try_page

    def say(line: str) -> None:
        print(line, flush=True)

    if wanted or (sys.stdout.isatty() and not os.environ.get("CI")):
        show_page(result.collection, say)
    else:
        try_page(result.collection, result.question, say)
