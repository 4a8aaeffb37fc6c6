"""The model that a command names, to be used for files."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from vse.errors import InputError

if TYPE_CHECKING:
    from vse.index.indexing.moments import IndexModel


def load_for_files(name: str) -> tuple[IndexModel, str]:
    """The model that a person names, and the name under which it is found again from everywhere."""
    from vse.index.indexing.folder import root_of
    from vse.shipped import shipped_name

    source = shipped_name(name) or (root_of(name) if Path(name).expanduser().exists() else name)
    return load_remembered(source), source


def load_remembered(source: str) -> IndexModel:
    """The model that is found as ``source`` from everywhere: one that reads pictures, anything else is an error."""
    import vse
    from vse.shipped import place_of

    model = vse.load(place_of(source))
    if model.preprocessing is None:
        raise InputError(f"{source} takes sets of features, not pictures: use a model that reads pictures")
    return model


def refuse_shipped(name: str, reason: str) -> None:
    """A model of the package stays as it is: whoever wants another one copies it first."""
    from vse.shipped import place_of, shipped_name

    found = shipped_name(name)
    if found is not None:
        raise InputError(
            f"{name!r} comes with the package, and {reason}: copy it with 'cp -r {shlex.quote(place_of(found))} DIR', "
            "and use DIR"
        )


def is_gone(source: str) -> bool:
    """Whether a model was in a local folder and is no longer there. A name on the hub never is: that is not asked."""
    return Path(source).is_absolute() and not os.path.isfile(Path(source) / "config.json")  # noqa: PTH113 - never raises
