"""The photo model of vse-infinity, found by ``vse.load("photo")`` through the entry point group ``vse.models``."""

from pathlib import Path

__version__ = "2.0.0"


def photo() -> Path:
    """Return the folder of the photo model."""
    installed = Path(__file__).parent / "models" / "photo"
    if installed.is_dir():
        return installed
    # An editable install: the repository keeps the files beside the code that reads them.
    return Path(__file__).resolve().parents[4] / "src" / "vse" / "models" / "shipped" / "photo"
