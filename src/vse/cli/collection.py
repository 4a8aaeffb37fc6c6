"""``vse collection``: look after a collection: what it holds, whether it is sound, what is in it twice, its model."""

from __future__ import annotations

import os
import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption
from vse.errors import InputError, UsageError

if TYPE_CHECKING:
    from vse.index.store import EmbeddedCollection
    from vse.index.types import Collection

FOUND_PROBLEMS = 1
IndexArgument = Annotated[str, typer.Argument(metavar="INDEX", help="A collection that 'vse index' made.")]

collection_app = typer.Typer(
    name="collection",
    help="Look after a collection that 'vse index' made.",
    add_completion=False,
    rich_markup_mode=None,
)


@collection_app.callback(invoke_without_command=True)
def _collection(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        known = "'info', 'verify', 'rebuild', 'duplicates', 'remove' or 'upgrade'"
        raise UsageError(f"no collection command named: expected {known} (try 'vse collection --help')")


@collection_app.command("info")
def info(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Say what a collection holds, of which model its vectors are, and whether an upgrade was not finished."""
    from vse.index.open import open_collection, overview_of

    with closing(open_collection(index)) as collection:
        show(overview_of(collection), as_json=as_json)


@collection_app.command("verify")
def verify(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Read everything and compare it with its checksums; exit code 1 if something is wrong."""
    with _open_folder(index) as collection, progress_on_stderr() as progress:
        report = collection.verify(progress=progress)
    show(report, as_json=as_json)
    if not report.ok:
        raise typer.Exit(FOUND_PROBLEMS)


@collection_app.command("rebuild")
def rebuild(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Make anew what searching is fast with; the files and vectors stay as they are."""
    from vse.index.open import overview_of

    with _open_folder(index, write=True) as collection:
        with progress_on_stderr() as progress:
            collection.rebuild(progress=progress)
        show(overview_of(collection, "the cache was made anew"), as_json=as_json)


@collection_app.command("duplicates")
def duplicates(
    index: IndexArgument,
    threshold: Annotated[
        float | None, typer.Option(metavar="C", help="The cosine from which files count as the same; default 0.9.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List files that look the same to the model; nothing is changed."""
    from vse.index.duplicates import NEAR, near_duplicates
    from vse.index.open import open_collection

    if threshold is not None and not 0 < threshold <= 1:
        raise UsageError(f"--threshold {threshold}: expected a cosine above 0, at most 1")
    with closing(open_collection(index)) as collection, progress_on_stderr() as progress:
        found = near_duplicates(collection, NEAR if threshold is None else threshold, progress=progress)
    show(found, as_json=as_json)


@collection_app.command("remove")
def remove(
    index: IndexArgument,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or folders with all below them.")],
    as_json: JsonOption = False,
) -> None:
    """Forget files and purge their vectors. The files themselves stay, and 'vse index' would add them again."""
    from vse.index.open import open_collection, overview_of

    with closing(open_collection(index, write=True)) as collection:
        places = _places_below(collection, paths)
        count = collection.remove(places)
        show(overview_of(collection, f"{count} files forgotten"), as_json=as_json)


@collection_app.command("upgrade")
def upgrade(
    index: IndexArgument,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The model folder or hub id that is to be used from now on.")
    ] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out files that are not there, instead of refusing.")
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Throw away what an unfinished upgrade has encoded, and do nothing else.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Encode all files anew with another model; the old vectors serve until the end. Run it again after a stop."""
    if discard:
        if model is not None or drop_missing:
            raise UsageError("--discard throws away and encodes nothing: leave out --model and --drop-missing")
        _discard(index, as_json)
        return
    if model is None:
        raise UsageError("--model MODEL is needed: the one to upgrade to (or --discard an unfinished upgrade)")
    from vse.cli.options import load_for_files
    from vse.index.open import open_collection
    from vse.index.upgrade.run import upgrade_collection

    open_collection(index).close()  # a mistyped name is found out before a model is loaded
    with progress_on_stderr() as progress:
        encoder, source = load_for_files(model)
        with closing(open_collection(index, write=True)) as collection:
            try:
                report = upgrade_collection(collection, encoder, source, progress=progress, drop_missing=drop_missing)
            except KeyboardInterrupt:
                progress.note(
                    f"{index} serves as before; what was encoded is kept: the same command goes on from there"
                )
                raise
    show(report, as_json=as_json)


def _discard(index: str, as_json: bool) -> None:
    from vse.index.open import open_collection, overview_of
    from vse.index.upgrade.run import discard_upgrade

    with closing(open_collection(index, write=True)) as collection:
        left = discard_upgrade(collection)
        note = f"the upgrade to model {left.model} was thrown away, {left.files:,} files of it were encoded"
        show(overview_of(collection, note), as_json=as_json)


def _open_folder(index: str, *, write: bool = False) -> EmbeddedCollection:
    """A collection in a folder, whose files we look after; Milvus looks after its own."""
    from vse.index.open import backend_of, folder_at
    from vse.index.store import EmbeddedCollection

    if backend_of(index) != "embedded":
        raise InputError(
            f"{index} is kept by Milvus, which looks after its own files: 'verify' and 'rebuild' are for collections "
            f"in a folder, 'vse collection info {shlex.quote(index)}' says what this one holds"
        )
    return EmbeddedCollection.open(folder_at(index), write=write)


def _places_below(collection: Collection, paths: list[Path]) -> list[tuple[str, str]]:
    """Which files of the collection are meant; a path that means none is an error before anything is done."""
    from vse.index.types import full_path

    wanted = [os.path.abspath(path) for path in paths]  # noqa: PTH100 (the file may be gone: links are not followed)
    found: list[tuple[str, str]] = []
    matched: set[str] = set()
    for file in collection.files():
        place = full_path(file)
        meant = [path for path in wanted if place == path or place.startswith(path.rstrip("/") + "/")]
        if meant:
            found.append((file.root, file.path))
            matched.update(meant)
    for given, path in zip(paths, wanted, strict=True):
        if path not in matched:
            raise InputError(f"{str(given)!r} is not in the collection: expected a path as 'vse search' shows it")
    return found
