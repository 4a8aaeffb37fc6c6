"""``vse index``: make folders searchable, and keep them so."""

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
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of pictures and clips.")],
    into: Annotated[
        str | None,
        typer.Option(
            metavar="INDEX", help="The index; made on first use [default: named after the first folder, Photos.vse]."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A model folder or hub id [default: the one the index was made with; for a new one, photo].",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, and index what changes; Ctrl-C ends it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Index folders: run again to take in what is new, changed, moved or gone."""
    if watch and as_json:
        raise UsageError("--json prints one result at the end, and --watch has no end: use one of them")
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
                    progress.note(f"what was encoded is in {where}: the same command goes on from there")
                    raise
    finally:  # what was indexed stays, also when it could not be made fast to search
        if result is not None:
            show(result, as_json=as_json)


@dataclass(frozen=True)
class Indexed:
    """What is in an index now, and what each folder brought; of a ``new`` one also how it is asked."""

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
    """What the index at ``where`` holds, None if there is none yet."""
    from vse.index.open import collection_exists, open_collection

    if not collection_exists(where):
        return None
    with closing(open_collection(where)) as collection:
        return collection.info()


def _check_folders(roots: list[str], known: CollectionInfo | None) -> None:
    """A mistyped folder is found out before a model is loaded; one that is known may be on a disk that is away."""
    from vse.cli.options import is_index
    from vse.index.pipeline.folder import check_overlap
    from vse.index.scan import why_absent

    for root in roots:
        if is_index(root):
            raise InputError(f"{root} is an index: expected a folder of pictures and clips, and the index after --into")
        check_overlap(() if known is None else known.roots, root, roots)
        reason = why_absent(root)
        if reason is not None and (known is None or root not in known.roots):
            raise InputError(f"{root}: {reason}: expected a folder of pictures and clips")


def _load(where: str, model: str | None, known: CollectionInfo | None) -> tuple[IndexModel, str]:
    """The model, and the name under which it is found again from everywhere."""
    from vse.cli.options import load_for_files, load_remembered
    from vse.models.sources import DEFAULT

    if model is not None:
        return load_for_files(model)
    if known is None:
        return load_remembered(DEFAULT), DEFAULT
    try:
        return load_remembered(known.model_source), known.model_source
    except InputError as error:
        raise InputError(f"{error}; {where} was made with it: say with --model where it is now") from None


def _record_source(collection: Collection, recorded: str, source: str, progress: ProgressReporter) -> None:
    """Let later calls find a model that has moved."""
    from vse.cli.options import is_gone

    if source != recorded and is_gone(recorded):
        collection.set_model_source(source)
        progress.note(f"the model is no longer at {recorded}: from now on {source} is used")


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
    """Say what each look brought; about a file that stays broken it is said once."""
    from vse.cli.render import lines_of
    from vse.index.watching import watch

    said: set[str] = set()

    def say(report: IndexReport) -> None:
        counts, *others = lines_of(report)
        for line in (counts, *(other for other in others if other not in said)):
            progress.note(line)
        said.update(others)

    for report in first.reports:
        say(report)
    progress.note(f"{first.info.where}: watching; Ctrl-C ends it")
    for report in watch(collection, model, roots, progress=progress):
        say(report)
