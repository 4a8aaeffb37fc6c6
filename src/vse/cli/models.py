"""The model that a command names, to be used for files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vse.errors import InputError

if TYPE_CHECKING:
    from vse.index.indexing.moments import IndexModel


def load_for_files(name: str) -> tuple[IndexModel, str]:
    """A model that reads pictures, and the name under which it is found again from everywhere."""
    import vse
    from vse.index.indexing.folder import root_of

    source = root_of(name) if Path(name).expanduser().exists() else name
    model = vse.load(source)
    if model.preprocessing is None:
        raise InputError(f"{source} takes sets of features, not pictures: use a model that reads pictures")
    return model, source


def is_gone(source: str) -> bool:
    """Whether a model was in a local folder and is no longer there. A name on the hub never is: that is not asked."""
    return Path(source).is_absolute() and not os.path.isfile(Path(source) / "config.json")  # noqa: PTH113 - never raises
