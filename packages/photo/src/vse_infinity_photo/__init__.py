"""The photo model of vse-infinity, found by ``vse.load("photo")`` through the entry point group ``vse.models``."""

from pathlib import Path

__version__ = "2.0.0"


def photo() -> Path:
    """Return the folder of the photo model."""
    return _folder("photo")


def photo_v1() -> Path:
    """Return the folder of its previous version, for collections that were not upgraded yet."""
    return _folder("photo-v1")


def _folder(name: str) -> Path:
    installed = Path(__file__).parent / "models" / name
    if installed.is_dir():
        return installed
    # An editable install: the repository keeps the files beside the code that reads them.
    return Path(__file__).resolve().parents[4] / "src" / "vse" / "models" / "shipped" / name
