"""``vse collection``: look after a collection: what it holds, whether it is sound, what is in it twice."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption
from vse.errors import InputError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from vse.index.collection import Collection, CollectionInfo
    from vse.index.embedded import EmbeddedCollection

FOUND_PROBLEMS = 1
IndexArgument = Annotated[str, typer.Argument(metavar="INDEX", help="A collection that 'vse index' made.")]

collection_app = typer.Typer(
    name="collection",
    help="Look after a collection that 'vse index' made.",
    add_completion=False,
    rich_markup_mode=None,
)


@dataclass(frozen=True)
class InfoResult:
    """What a collection holds, to be shown; ``note`` is what has just been done with it."""

    info: CollectionInfo
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        values = {**asdict(self.info), "roots": list(self.info.roots)}
        return values if self.note is None else {**values, "note": self.note}

    def render(self, console: Console) -> None:
        from rich.text import Text

        from vse.index.duplicates import printable

        def say(text: str) -> None:
            console.print(Text(text), soft_wrap=True)  # Text: a bracket in a file name is no markup

        info = self.info
        if self.note is not None:
            say(self.note)
        say(f"{printable(info.where)}: {info.files} files, {info.items} items, {info.captions} captions")
        say(f"model {info.model} ({printable(info.model_source)}), {info.dimensions} dimensions")
        say(f"backend {info.backend}, generation {info.generation}")
        for root in info.roots:
            say(f"folder {printable(root)}")


@collection_app.callback(invoke_without_command=True)
def _collection(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        known = "'info', 'verify', 'rebuild', 'duplicates' or 'remove'"
        raise UsageError(f"no collection command named: expected {known} (try 'vse collection --help')")


@collection_app.command("info")
def info(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Say what a collection holds, and of which model its vectors are."""
    from vse.index.open import open_collection

    with closing(open_collection(index)) as collection:
        show(InfoResult(collection.info()), as_json=as_json)


@collection_app.command("verify")
def verify(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Read everything and compare it with its checksums; exit code 1 if something is wrong."""
    with _open_folder(index) as collection:
        report = collection.verify()
    show(report, as_json=as_json)
    if not report.ok:
        raise typer.Exit(FOUND_PROBLEMS)


@collection_app.command("rebuild")
def rebuild(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Make anew what searching is fast with; the files and vectors stay as they are."""
    with _open_folder(index, write=True) as collection:
        collection.rebuild()
        show(InfoResult(collection.info(), "the cache was made anew"), as_json=as_json)


@collection_app.command("duplicates")
def duplicates(
    index: IndexArgument,
    threshold: Annotated[
        float | None, typer.Option(metavar="C", help="The cosine from which files count as the same; default 0.97.")
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
    from vse.index.open import open_collection

    with closing(open_collection(index, write=True)) as collection:
        places = _places_below(collection, paths)
        count = collection.remove(places)
        show(InfoResult(collection.info(), f"{count} files forgotten"), as_json=as_json)


def _open_folder(index: str, *, write: bool = False) -> EmbeddedCollection:
    """A collection in a folder, whose files we look after; a server looks after its own."""
    from vse.index.embedded import EmbeddedCollection
    from vse.index.open import backend_of

    if backend_of(index) != "embedded":
        raise InputError(f"{index!r} is kept by a server, which looks after its own files: expected a folder")
    return EmbeddedCollection.open(Path(index).expanduser(), write=write)


def _places_below(collection: Collection, paths: list[Path]) -> list[tuple[str, str]]:
    """Which files of the collection are meant; a path that means none is an error before anything is done."""
    from vse.index.duplicates import full_path

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
