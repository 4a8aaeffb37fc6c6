"""``vse collection``: show, verify, repair, fill, export and upgrade a collection."""

from __future__ import annotations

import os
import shlex
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import DeviceOption, JsonOption, StorageOption, ThreadsOption
from vse.errors import InputError, UsageError, VSEError

if TYPE_CHECKING:
    from vse.index.store import EmbeddedCollection
    from vse.index.types import Collection

FOUND_PROBLEMS = 1
IndexArgument = Annotated[str, typer.Argument(metavar="INDEX", help="A collection created by 'vse index'.")]

collection_app = typer.Typer(
    name="collection",
    help="Show, verify, repair, fill, export or upgrade a collection.",
    add_completion=False,
    rich_markup_mode=None,
)


@collection_app.callback(invoke_without_command=True)
def _collection(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        known = "'info', 'verify', 'rebuild', 'duplicates', 'remove', 'relocate', 'import', 'export' or 'upgrade'"
        raise UsageError(f"no collection command given: expected {known} (try 'vse collection --help')")


@collection_app.command("info")
def info(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Show contents, model and size of a collection."""
    from vse.index.open import open_collection, overview_of

    with closing(open_collection(index)) as collection:
        show(overview_of(collection), as_json=as_json)


@collection_app.command("verify")
def verify(
    index: IndexArgument,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Forget changes that are missing: all folders were indexed again."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare all data of a collection with its checksums.

    The exit code is 1 if there are problems.
    """
    with _open_folder(index, write=accept_loss) as collection, progress_on_stderr() as progress:
        if accept_loss:
            collection.accept_loss()
        report = collection.verify(progress=progress)
    show(report, as_json=as_json)
    if not report.ok:
        raise typer.Exit(FOUND_PROBLEMS)


@collection_app.command("rebuild")
def rebuild(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Rebuild the search cache. The stored embeddings do not change."""
    from vse.index.open import overview_of

    with _open_folder(index, write=True) as collection:
        with progress_on_stderr() as progress:
            collection.rebuild(progress=progress)
        show(overview_of(collection, "the cache was rebuilt"), as_json=as_json)


@collection_app.command("duplicates")
def duplicates(
    index: IndexArgument,
    threshold: Annotated[
        float | None, typer.Option(metavar="C", help="The lowest cosine of duplicates [default: 0.9].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List near-duplicate files. Nothing is changed."""
    from vse.index.duplicates import NEAR, flat_vectors, near_duplicates
    from vse.index.open import load_collection_model, open_collection

    if threshold is not None and not 0 < threshold <= 1:
        raise UsageError(f"--threshold {threshold}: expected a cosine above 0, at most 1")
    with closing(open_collection(index)) as collection, progress_on_stderr() as progress:
        flat = None
        if (counts := collection.info()).items > counts.files:  # there are videos
            with suppress(VSEError):  # without its model, uniform moments count like others
                flat = flat_vectors(load_collection_model(collection, None))
        found = near_duplicates(collection, NEAR if threshold is None else threshold, flat=flat, progress=progress)
    show(found, as_json=as_json)


@collection_app.command("remove")
def remove(
    index: IndexArgument,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files, or folders with everything below them.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Remove files from a collection.

    Their embeddings are purged. The files themselves stay, and 'vse index' would add them again.
    """
    from vse.index.open import open_collection, overview_of

    with closing(open_collection(index, write=True)) as collection:
        places = _places_below(collection, paths)
        count = collection.remove(places)
        show(overview_of(collection, f"{count} files removed"), as_json=as_json)


@collection_app.command("relocate")
def relocate(
    index: IndexArgument,
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The indexed folder, as 'vse collection info' shows it.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Where the folder is now.")],
    force: Annotated[bool, typer.Option("--force", help="Do not check that the files are there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Tell a collection that an indexed folder was moved or renamed.

    Embeddings and ids stay. Some files are looked for at the new place first.
    """
    from vse.index.build import relocate_root
    from vse.index.confirmed import confirm_roots, confirmed_roots
    from vse.index.open import open_collection, overview_of
    from vse.index.pipeline.folder import root_of

    with closing(open_collection(index, write=True)) as collection:
        count = relocate_root(collection, old, new, force=force)
        if root_of(old) in confirmed_roots(index):  # 'vse serve' still shows its files
            confirm_roots(index, [root_of(new)])
        show(overview_of(collection, f"{count:,} files relocated"), as_json=as_json)


@collection_app.command("import")
def import_(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="The collection; created if there is none.")],
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A .npy file, which a .csv, .json, .jsonl or .parquet file with a row for each embedding may follow; "
            "a .parquet or .jsonl file with a column of embeddings; or a folder of Parquet files, as 'vse embed' and "
            "'vse collection export' write it. Each may be a URL such as s3://bucket/folder.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model that computed them [default: what an export says, or own]."),
    ] = None,
    root: Annotated[
        str | None, typer.Option(metavar="ROOT", help="What ids are relative to, such as a folder [default: imported].")
    ] = None,
    column: Annotated[str, typer.Option(metavar="NAME", help="Column of the embeddings.")] = "embedding",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out invalid rows; otherwise they are an error.")
    ] = False,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add embeddings from files to a collection.

    Everything is checked before anything is written. Known ids are replaced. The same command resumes an interrupted
    import.
    """
    from vse.index.transfer import import_embeddings

    with progress_on_stderr() as progress:
        report = import_embeddings(
            index,
            sources,
            model=model,
            root=root,
            column=column,
            on_bad="skip" if skip_bad else "error",
            storage=storage,
            progress=progress,
        )
    show(report, as_json=as_json)


@collection_app.command("export")
def export(
    index: IndexArgument,
    out: Annotated[
        str,
        typer.Argument(metavar="OUT", help="A new folder for .npy and .jsonl files, or a new .parquet file; or a URL."),
    ],
    shard_rows: Annotated[
        int | None, typer.Option(metavar="N", help="Write Parquet files of N rows into the folder; resumable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write embeddings and metadata to files.

    'vse collection import' reads them. With --shard-rows the same command resumes an interrupted export.
    """
    from vse.index.open import open_collection
    from vse.index.transfer import export_embeddings

    with closing(open_collection(index)) as collection, progress_on_stderr() as progress:
        report = export_embeddings(collection, out, shard_rows=shard_rows, progress=progress)
    show(report, as_json=as_json)


@collection_app.command("upgrade")
def upgrade(
    index: IndexArgument,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The new model: a folder or hub id [default: a newer bundled one]."),
    ] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Drop files that are missing; otherwise they are an error.")
    ] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Discard an unfinished upgrade and exit.")] = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Encode all files of a collection with another model.

    The old embeddings are searched until the upgrade is complete. The same command resumes an interrupted one. Without
    --model, a collection in Milvus that an earlier version of vse wrote is converted; its embeddings and ids stay.
    """
    if discard:
        if model is not None or drop_missing:
            raise UsageError("--discard encodes nothing: leave out --model and --drop-missing")
        _discard(index, as_json)
        return
    from vse.index.build import named_model
    from vse.index.open import convert_collection, open_collection, overview_of, upgrade_hint
    from vse.index.upgrade.run import upgrade_collection

    if model is None and convert_collection(index):
        with closing(open_collection(index)) as opened:
            show(overview_of(opened, "converted to the current format"), as_json=as_json)
        return
    with closing(open_collection(index)) as opened:  # reports a mistyped name before a model is loaded
        if model is None and upgrade_hint(info := opened.info()) is not None:
            model = info.model_source
    if model is None:
        raise UsageError("--model MODEL is needed: the model to upgrade to (or --discard an unfinished upgrade)")
    with progress_on_stderr() as progress:
        encoder, source = named_model(model, device=device, threads=threads)
        with closing(open_collection(index, write=True)) as collection:
            try:
                report = upgrade_collection(collection, encoder, source, progress=progress, drop_missing=drop_missing)
            except KeyboardInterrupt:
                progress.note(f"{index} still uses the old model; the same command resumes the upgrade")
                raise
    show(report, as_json=as_json)


def _discard(index: str, as_json: bool) -> None:
    from vse.index.open import open_collection, overview_of
    from vse.index.upgrade.run import discard_upgrade

    with closing(open_collection(index, write=True)) as collection:
        left = discard_upgrade(collection)
        note = f"the upgrade to model {left.model} was discarded, with {left.files:,} encoded files"
        show(overview_of(collection, note), as_json=as_json)


def _open_folder(index: str, *, write: bool = False) -> EmbeddedCollection:
    """Open a collection in a folder; Milvus and PostgreSQL maintain their own files."""
    from vse.index.open import SERVERS, backend_of, folder_at
    from vse.index.store import EmbeddedCollection

    server = SERVERS.get(backend_of(index))
    if server is not None:
        raise InputError(
            f"{index} is stored in {server}, which maintains its own files: 'verify' and 'rebuild' are for collections "
            f"in a folder, 'vse collection info {shlex.quote(index)}' shows what this one holds"
        )
    return EmbeddedCollection.open(folder_at(index), write=write)


def _places_below(collection: Collection, paths: list[Path]) -> list[tuple[str, str]]:
    """The files of the collection at or below ``paths``; a path without any is an error."""
    from vse.index.types import full_path

    wanted = [os.path.abspath(path) for path in paths]  # noqa: PTH100 (the file may be missing: links are not followed)
    roots = set(collection.info().roots)
    for number, given in enumerate(paths):  # of imported embeddings, the root need not be a folder
        if given.parts and given.parts[0] in roots:
            wanted[number] = os.path.normpath(given)
    found: list[tuple[str, str]] = []
    matched: set[str] = set()
    for file in collection.files():
        place = os.path.normpath(full_path(file))  # Windows has "\\" between parts
        meant = [path for path in wanted if place == path or place.startswith(path.rstrip(os.sep) + os.sep)]
        if meant:
            found.append((file.root, file.path))
            matched.update(meant)
    for given, path in zip(paths, wanted, strict=True):
        if path not in matched:
            raise InputError(f"{str(given)!r} is not in the collection: expected a path as shown by 'vse search'")
    return found
