"""``vse index``: index folders of images and videos, and keep the index up to date."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import DeviceOption, JsonOption, StorageOption, ThreadsOption
from vse.errors import UsageError

if TYPE_CHECKING:
    from vse.index.build import Indexed
    from vse.index.pipeline import IndexReport
    from vse.index.pipeline.commits import IndexModel
    from vse.index.types import Collection
    from vse.progress import ProgressReporter


def index(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of images and videos.")],
    into: Annotated[
        str | None,
        typer.Option(
            metavar="INDEX",
            help="The index, created on first use [default: named after the first folder, like Photos.vse].",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A model folder or hub id [default: the model of the index; photo for a new one].",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Leave out files and folders that match, as in .gitignore; may be repeated. Remembered for these "
            'folders in place of earlier ones; "" forgets them.',
        ),
    ] = None,
    follow_links: Annotated[
        bool | None,
        typer.Option(
            "--follow-links/--no-follow-links",
            help="Follow symlinks that lead out of a folder; remembered [default: no].",
            show_default=False,
        ),
    ] = None,
    ocr: Annotated[
        bool | None,
        typer.Option(
            "--ocr/--no-ocr",
            help="Read the text in images, also in those indexed before; remembered [default: no].",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep running, and index changes until Ctrl-C.")] = False,
    storage: StorageOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Index folders of images and videos for search.

    The same command updates the index: new, changed, moved and removed files. Thumbnails and bins such as @eaDir are
    left out, and what .vseignore files name.
    """
    if watch and as_json:
        raise UsageError("--json prints one result at the end, and --watch does not end: use one of them")
    from vse.cli.options import check_named_after, named_after
    from vse.index.build import known_collection, open_index
    from vse.index.pipeline.folder import root_of

    roots = list(dict.fromkeys(root_of(folder) for folder in folders))
    where = named_after(roots[0]) if into is None else into
    if into is None and (known := known_collection(where)) is not None:
        check_named_after(where, roots[0], known.roots)
    result = None
    try:
        with (
            progress_on_stderr() as progress,
            open_index(
                where, roots, model=model, device=device, threads=threads, storage=storage, progress=progress
            ) as opened,
        ):
            try:
                indexed = opened.index(roots, exclude=exclude, follow_links=follow_links, ocr=ocr, progress=progress)
                result = replace(indexed, new=opened.new or into is None)
                opened.collection.settle(progress=progress)
                if watch:
                    first, result = result, None
                    _watch(opened.collection, opened.model, roots, first, progress)
            except KeyboardInterrupt:
                progress.note(f"finished files are stored in {where}: the same command resumes")
                raise
    finally:  # what was indexed is kept, even if building the cache failed
        if result is not None:
            show(result, as_json=as_json)


def _watch(
    collection: Collection, model: IndexModel, roots: list[str], first: Indexed, progress: ProgressReporter
) -> None:
    """Report every update; a problem that persists is reported once."""
    from vse.cli.render import lines_of
    from vse.index.watching import watch

    reported: set[str] = set()

    def note(report: IndexReport) -> None:
        counts, *others = lines_of(report)
        for line in (counts, *(other for other in others if other not in reported)):
            progress.note(line)
        reported.update(others)

    for report in first.reports:
        note(report)
    progress.note(f"{first.info.where}: watching for changes until Ctrl-C")
    for report in watch(collection, model, roots, progress=progress):
        note(report)
