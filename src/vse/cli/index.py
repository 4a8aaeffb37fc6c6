"""``vse index``: index folders of images and videos, and keep the index up to date."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption
from vse.errors import InputError, UsageError

if TYPE_CHECKING:
    from vse.index.pipeline import IndexReport
    from vse.index.pipeline.commits import IndexModel
    from vse.index.types import Collection, CollectionInfo
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
    watch: Annotated[bool, typer.Option("--watch", help="Keep running, and index changes until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Index folders of images and videos for search.

    The same command updates the index: new, changed, moved and removed files.
    """
    if watch and as_json:
        raise UsageError("--json prints one result at the end, and --watch does not end: use one of them")
    from vse.cli.options import check_named_after, named_after
    from vse.index.checks import model_mismatch_error
    from vse.index.pipeline.folder import root_of

    roots = list(dict.fromkeys(root_of(folder) for folder in folders))
    where = named_after(roots[0]) if into is None else into
    known = _known(where)
    if into is None and known is not None:
        check_named_after(where, roots[0], known.roots)
    _check_folders(roots, known)
    result = None
    try:
        with progress_on_stderr() as progress:
            encoder, source = _load(where, model, known)
            if known is not None and known.model != encoder.fingerprint():
                raise model_mismatch_error(known.where, known.model, known.model_source, encoder.fingerprint(), source)
            with closing(_open(where, encoder, source, new=known is None)) as collection:
                if known is not None:
                    _record_source(collection, known.model_source, source, progress)
                try:
                    result = _index(collection, encoder, roots, progress, new=known is None or into is None)
                    collection.settle(progress=progress)
                    if watch:
                        first, result = result, None
                        _watch(collection, encoder, roots, first, progress)
                except KeyboardInterrupt:
                    progress.note(f"finished files are stored in {where}: the same command resumes")
                    raise
    finally:  # what was indexed is kept, even if building the cache failed
        if result is not None:
            show(result, as_json=as_json)


@dataclass(frozen=True)
class Indexed:
    """Contents of an index after indexing, with a report for each folder; ``new`` says that it was just created."""

    info: CollectionInfo
    reports: tuple[IndexReport, ...]
    new: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.info.where,
            "model": self.info.model,
            "files": self.info.files,
            "items": self.info.items,
            "captions": self.info.captions,
            "folders": [report.to_json() for report in self.reports],
        }


def _known(where: str) -> CollectionInfo | None:
    """What the index at ``where`` holds; None if it does not exist."""
    from vse.index.open import collection_exists, open_collection

    if not collection_exists(where):
        return None
    with closing(open_collection(where)) as collection:
        return collection.info()


def _check_folders(roots: list[str], known: CollectionInfo | None) -> None:
    """Report a mistyped folder before a model is loaded; a known one may be on a disk that is not mounted."""
    from vse.cli.options import is_index
    from vse.index.pipeline.folder import check_overlap
    from vse.index.scan import why_absent

    for root in roots:
        if is_index(root):
            raise InputError(f"{root} is an index: expected a folder of images and videos, and the index after --into")
        check_overlap(() if known is None else known.roots, root, roots)
        reason = why_absent(root)
        if reason is not None and (known is None or root not in known.roots):
            raise InputError(f"{root}: {reason}: expected a folder of images and videos")


def _load(where: str, model: str | None, known: CollectionInfo | None) -> tuple[IndexModel, str]:
    """The model, and the name that finds it from any working directory."""
    from vse.cli.options import load_for_files, load_source
    from vse.models.sources import DEFAULT

    if model is not None:
        return load_for_files(model)
    if known is None:
        return load_source(DEFAULT), DEFAULT
    try:
        return load_source(known.model_source), known.model_source
    except InputError as error:
        raise InputError(f"{error}; {where} was created with it: give its new place with --model") from None


def _record_source(collection: Collection, recorded: str, source: str, progress: ProgressReporter) -> None:
    """Store the new place of a model that has moved."""
    from vse.cli.options import is_gone

    if source != recorded and is_gone(recorded):
        collection.set_model_source(source)
        progress.note(f"the model is no longer at {recorded}: {source} is used from now on")


def _open(where: str, model: IndexModel, source: str, *, new: bool) -> Collection:
    from vse.index.open import create_collection, open_collection

    if new:
        return create_collection(where, model=model.fingerprint(), model_source=source, dimensions=model.embed_size)
    return open_collection(where, write=True, model=model.fingerprint())


def _index(
    collection: Collection, model: IndexModel, roots: list[str], progress: ProgressReporter, *, new: bool
) -> Indexed:
    from vse.index.pipeline import index_folders

    reports = index_folders(collection, model, roots, progress=progress)
    return Indexed(collection.info(), reports, new)


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
