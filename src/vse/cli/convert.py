"""``vse convert``: convert a checkpoint of the VSE∞ authors to a model folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vse.cli.console import show
from vse.cli.options import JsonOption


@dataclass(frozen=True)
class Converted:
    """A converted model; ``reads_text`` is False without a vocabulary."""

    folder: Path
    image: str
    text: str
    embed_size: int
    reads_text: bool
    fingerprint: str

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "image": self.image,
            "text": self.text,
            "embed_size": self.embed_size,
            "reads_text": self.reads_text,
            "fingerprint": self.fingerprint,
        }


def convert(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="FILE.pth",
            help="A checkpoint of the authors' code: a file, or hub:OWNER/REPOSITORY[@REVISION]/PATH.",
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the model is written.")],
    vocab: Annotated[
        str | None, typer.Option(metavar="FILE", help="The vocabulary JSON of a BiGRU checkpoint: a file or hub:….")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="DIR", help="The tokenizer of a BERT checkpoint: a folder or hub id.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a checkpoint of the authors' code to a model folder.

    All weights must match, and no code in the checkpoint is executed.
    """
    from vse.errors import require

    require("torch", "train", "vse convert")
    from vse.convert import load_official
    from vse.models.card import save_with_card

    model = load_official(checkpoint, vocabulary=vocab, tokenizer=tokenizer)
    save_with_card(model, folder)
    config = model.config
    result = Converted(
        folder,
        config.image.kind,
        config.text.kind,
        config.embed_size,
        model.tokenizer is not None,
        model.fingerprint(),
    )
    show(result, as_json=as_json)
