"""``vse models``, ``vse pull`` and ``vse push``: list models, fetch one for ONNX Runtime, upload one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import PRECISIONS, JsonOption
from vse.errors import UsageError, unknown_choice

if TYPE_CHECKING:
    from vse.models.onnx import Precision


@dataclass(frozen=True)
class Pushed:
    """A model on the hub."""

    model: str
    repository: str
    address: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def models(as_json: JsonOption = False) -> None:
    """List models: bundled, pulled and recommended.

    Recalls are zero-shot and published by others, with their source.
    """
    from vse.models.catalogue import list_models

    show(list_models(), as_json=as_json)


def pull(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A hub id (OWNER/MODEL), open_clip:NAME/TAG, or a folder.")
    ],
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to put it [default: below ~/.cache/vse/models].")
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="P", help="fp32, fp16 (half the size), int8, or mixed (int8 for text only).")
    ] = "fp32",
    revision: Annotated[str | None, typer.Option(metavar="REV", help="A commit, tag or branch on the hub.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch it again, and replace what is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch a model once, as an export for ONNX Runtime.

    Later commands need neither torch nor a network. CLIP, SigLIP, open_clip and similar models work, and pairs of ONNX
    files. 'vse models' lists recommended ones.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"--precision: {unknown_choice('precision', precision, PRECISIONS)}")
    from vse.convert.pull import pull_model

    with progress_on_stderr() as progress:
        report = pull_model(
            source,
            into,
            precision=cast("Precision", precision),
            revision=revision,
            force=force,
            progress=progress,
        )
    show(report, as_json=as_json)


def push(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model folder: a saved model or an export.")],
    repository: Annotated[str, typer.Argument(metavar="REPO", help="OWNER/MODEL on the hub; created if needed.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Upload a model or an export to the Hugging Face hub.

    Log in first: 'hf auth login', or the environment variable HF_TOKEN.
    """
    from vse.models.hub import push_saved

    address = push_saved(model, repository, private=private or None)
    show(Pushed(model, repository, address), as_json=as_json)
