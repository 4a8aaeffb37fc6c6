"""``vse push``: upload a model or an export to the Hugging Face hub."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from vse.cli.console import show
from vse.cli.options import JsonOption


@dataclass(frozen=True)
class Pushed:
    """A model on the hub."""

    model: str
    repository: str
    address: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
