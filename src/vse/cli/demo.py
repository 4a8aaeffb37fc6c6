"""``vse demo``: train and search on generated scenes, or search a folder of photos."""

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
        typer.Option(metavar="DIR", help="Where results are written [default: vse-demo or vse-demo-quick]."),
    ] = None,
    photos: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Index and search this folder of images instead, without training."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Random seeds to train each method with [default: 0,1,2]."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use a few scenes and one epoch: the figures mean nothing.")
    ] = False,
    page: Annotated[
        bool | None,
        typer.Option(
            "--page/--no-page",
            help="Serve the search page until Ctrl-C [default: on a terminal; otherwise it is only tested].",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train and search on generated scenes, or search your photos.

    Trains VSE++ and VSE∞, compares them and serves a search page over sample photographs; takes about two minutes and
    downloads nothing.
    With --photos, indexes a folder of images with the bundled model instead.
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
    """Serve the page on a terminal; elsewhere check that it works, unless only JSON is wanted."""
    if wanted is False or (wanted is None and as_json):
        return
    from vse.demo.photos import show_page, try_page

    def say(line: str) -> None:
        print(line, flush=True)

    if wanted or (sys.stdout.isatty() and not os.environ.get("CI")):
        show_page(result.collection, result.query, say)
    else:
        try_page(result.collection, result.query, say)
