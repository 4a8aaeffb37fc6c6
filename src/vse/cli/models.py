"""``vse models``: list bundled, pulled and recommended models."""

from __future__ import annotations

from vse.cli.console import show
from vse.cli.options import JsonOption


def models(as_json: JsonOption = False) -> None:
    """List models: bundled, pulled and recommended.

    Recalls are zero-shot and published by others, with their source.
    """
    from vse.models.catalogue import list_models

    show(list_models(), as_json=as_json)
