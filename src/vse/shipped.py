"""Models that come with the package, by their names.

A collection remembers such a model by its name and not by its folder, which moves with the environment. What is typed
by a person is looked for in the present folder first (:func:`vse.loading.model_folder`); what a collection remembers is
always the package's, since a model in another folder is remembered by its whole path.
"""

from __future__ import annotations

from pathlib import Path

MODELS = Path(__file__).with_name("models")
DEFAULT = "photo"
"""For photographs; what ``vse index`` uses unless it is told otherwise."""
NAMES = (DEFAULT,)


def is_model(folder: Path) -> bool:
    """Whether there is a model in this folder, and not just a folder of the same name."""
    return (folder / "config.json").is_file()


def shipped_folder(name: str | Path) -> Path | None:
    """The folder of the model that comes with the package under this name; None if there is none."""
    folder = MODELS / name
    return folder if str(name) in NAMES and is_model(folder) else None


def shipped_name(source: str | Path) -> str | None:
    """The name of the package's model that a person means by ``source``: by its name, or by the folder it is in.

    A model in the present folder comes first; a folder of pictures there that is called the same does not.
    """
    place = Path(source).expanduser()
    if not is_model(place):
        return None if shipped_folder(source) is None else str(source)
    return next((name for name in NAMES if place.resolve() == (MODELS / name).resolve()), None)


def named_place(source: str | Path) -> str:
    """Where a model is that a person calls ``source``: a folder of ours, if one of those is meant, else ``source``."""
    name = shipped_name(source)
    return str(source) if name is None else place_of(name)


def place_of(source: str) -> str:
    """Where a model is that a collection remembers as ``source``: the folder behind a name of ours, else ``source``."""
    folder = shipped_folder(source)
    return source if folder is None else str(folder)
