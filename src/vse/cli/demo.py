"""``vse demo``: everything that works, on generated data."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption, output_folder, parse_seeds

if TYPE_CHECKING:
    from vse.demo.result import DemoResult


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
    page: Annotated[
        bool | None,
        typer.Option(
            "--page/--no-page",
            help="Serve the scenes on a page until Ctrl-C [default: on a terminal; elsewhere it is tried and stopped].",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train VSE++ and VSE∞ on generated scenes, compare them, and search the scenes on a page; no download, no dataset.

    About two minutes, and the page.
    """
    folder = output_folder(out or Path("vse-demo-quick" if quick else "vse-demo"))
    chosen = parse_seeds(seeds)

    from vse.demo import run

    with progress_on_stderr() as progress:
        result = run(out=folder, seeds=chosen, quick=quick, progress=progress)
    show(result, as_json=as_json)
    _page(result, page, as_json=as_json)


def _page(result: DemoResult, wanted: bool | None, *, as_json: bool) -> None:
    """To a person the page stays; a program is shown that it works, unless it wants JSON alone."""
    if wanted is False or (wanted is None and as_json):
        return
    from vse.demo.page import show_page, try_page

    person = sys.stdout.isatty() and not os.environ.get("CI")
    (show_page if wanted or person else try_page)(result.collection, lambda line: print(line, flush=True))
