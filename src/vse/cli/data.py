"""``vse data``: check a dataset, generate one, or build a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption
from vse.errors import UsageError, unknown_choice


def scenes(
    into: Annotated[Path, typer.Argument(metavar="DIR", help="Where the dataset is written.", show_default=False)],
    train: Annotated[int, typer.Option(metavar="N", min=0, help="Training scenes.")] = 2400,
    dev: Annotated[int, typer.Option(metavar="N", min=0, help="Validation scenes.")] = 200,
    test: Annotated[int, typer.Option(metavar="N", min=0, help="Test scenes.")] = 500,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The random seed.")] = 0,
    size: Annotated[int, typer.Option(metavar="PIXELS", help="Width and height of an image.")] = 128,
    as_json: JsonOption = False,
) -> None:
    """Generate images of coloured shapes with captions.

    Each image has five captions. Nothing is downloaded.
    """
    from vse.data.scenes import write_scenes

    with progress_on_stderr() as progress:
        result = write_scenes(into, train, dev, test, seed=seed, size=size, progress=progress)
    show(result, as_json=as_json)


@dataclass(frozen=True)
class VocabularyReport:
    """A vocabulary file, and the captions that it was built from."""

    file: Path
    words: int
    captions: int
    min_count: int

    def to_json(self) -> dict[str, Any]:
        return {"file": str(self.file), "words": self.words, "captions": self.captions, "min_count": self.min_count}


def vocabulary(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset.")],
    into: Annotated[Path, typer.Option(metavar="FILE", help="Where the vocabulary JSON is written.")],
    min_count: Annotated[int, typer.Option(metavar="N", min=1, help="Leave out words that occur less often.")] = 4,
    split: Annotated[str, typer.Option(metavar="NAME", help="The split to read.")] = "train",
    as_json: JsonOption = False,
) -> None:
    """Build a vocabulary from training captions."""
    from vse.data import open_data
    from vse.inputs import Vocabulary

    captions = open_data(path, split).captions
    words = Vocabulary.build(captions, min_count)
    words.save(into)
    show(VocabularyReport(into, len(words), len(captions), min_count), as_json=as_json)


FOUND_ERRORS = 1

data_app = typer.Typer(
    name="data",
    help="Check a dataset, generate one, or build a vocabulary.",
    add_completion=False,
    rich_markup_mode=None,
)


@data_app.callback(invoke_without_command=True)
def _data(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        raise UsageError("no data command given: expected 'check', 'scenes' or 'vocabulary' (try 'vse data --help')")


data_app.command("scenes")(scenes)
data_app.command("vocabulary")(vocabulary)


@data_app.command("check")
def check(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A folder, or a file that lists images and captions.")],
    layout: Annotated[str, typer.Option(metavar="NAME", help="The layout of the dataset.")] = "auto",
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="PLACE", help="The frame features of videos: a file, a folder, or a name within the dataset."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a dataset, and report what it holds.

    The exit code is 1 if there are errors.
    """
    from vse.data.open import AUTO, LAYOUTS

    if layout != AUTO and layout not in LAYOUTS:
        raise UsageError(f"--layout: {unknown_choice('layout', layout, (AUTO, *LAYOUTS))}")

    from vse.data.check import check_data

    with progress_on_stderr() as progress:
        report = check_data(path, layout=layout, features=features, progress=progress)
    show(report, as_json=as_json)
    if not report.ok:
        raise typer.Exit(FOUND_ERRORS)
