"""A dataset layout, a collection backend and a command, without torch."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from vse.data import CaptionedImages, ImageFiles, Layout
from vse.errors import InputError
from vse.index import Collection, collection_exists, create_collection, open_collection

HEADER = "# pairs"


def _detect(path: Path) -> bool:
    if not path.is_file() or path.suffix != ".txt":
        return False
    with path.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline().strip() == HEADER


def _read(path: Path, split: str, options: Any) -> CaptionedImages:
    """Read lines ``IMAGE: CAPTION`` below the header; paths are relative to the file."""
    images: dict[str, int] = {}
    captions: list[str] = []
    owners: list[int] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[1:], start=2):
        image, found, caption = line.partition(": ")
        if not found:
            options.on_problem("malformed line", f"{path}:{number}: expected 'IMAGE: CAPTION'")
            continue
        owners.append(images.setdefault(image, len(images)))
        captions.append(caption)
    files = ImageFiles(tuple(path.parent / image for image in images), tuple(images))
    return CaptionedImages(path.stem, split, "pairs", files, tuple(captions), np.array(owners, dtype=np.int64))


PAIRS = Layout("image", _detect, lambda path: ("all",), _read)


class TemporaryBackend:
    """``temp+NAME``: a collection in the folder for temporary files, gone after the next cleaning."""

    @staticmethod
    def _folder(address: str) -> Path:
        name = address.removeprefix("temp+")
        if not name.isidentifier():
            raise InputError(f"{address!r}: expected temp+NAME, with letters and digits in NAME")
        return Path(tempfile.gettempdir()) / f"vse-{name}.vse"

    @classmethod
    def open(cls, address: str, *, write: bool, model: str | None) -> Collection:
        return open_collection(cls._folder(address), write=write, model=model)

    @classmethod
    def create(cls, address: str, *, model: str, model_source: str, dimensions: int) -> Collection:
        return create_collection(cls._folder(address), model=model, model_source=model_source, dimensions=dimensions)

    @classmethod
    def exists(cls, address: str) -> bool:
        return collection_exists(cls._folder(address))


def hello(name: Annotated[str, typer.Argument(help="Whom to greet.")] = "world") -> None:
    """Greet somebody."""
    typer.echo(f"hello {name}")
