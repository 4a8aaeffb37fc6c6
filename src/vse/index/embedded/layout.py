"""The folder of a collection: ``collection.json``, which names the generation that serves, and the generations."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from vse.errors import InputError, VSEError
from vse.files import write_json

HEADER, DATABASE, CACHE = "collection.json", "items.sqlite", "cache"
FORMAT = 1
_GENERATION = re.compile(r"generation-(\d{4,})")


def generation_folder(folder: Path, generation: int) -> Path:
    """Where a generation lives."""
    return folder / f"generation-{generation:04d}"


def is_collection(folder: Path) -> bool:
    """Whether a collection was completely made here."""
    return (folder / HEADER).is_file()


def read_generation(folder: Path) -> int:
    """The number of the generation that serves."""
    path = folder / HEADER
    try:
        header = json.loads(path.read_bytes())
        found, generation = header["format"], header["generation"]
    except FileNotFoundError:
        raise InputError(f"{folder} is no collection, it has no {HEADER}: 'vse index' makes one") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check its permissions") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError(f"{path} is damaged, expected a format and a generation: restore it or index again") from None
    if found != FORMAT:
        raise InputError(f"{path} has format {found!r}, expected {FORMAT}: use the version of vse that wrote it")
    if type(generation) is not int or generation < 1:
        raise InputError(f"{path} names generation {generation!r}, expected a number from 1: restore it or index again")
    return generation


def write_generation(folder: Path, generation: int) -> None:
    """Let ``generation`` serve from now on: one step, and durable when this returns."""
    try:
        write_json(folder / HEADER, {"format": FORMAT, "generation": generation})
        sync_folder(folder)
    except OSError as error:
        raise VSEError(f"{folder / HEADER} cannot be written ({error.strerror}): the collection is as before") from None


def remove_generations(folder: Path, keep: int | None) -> None:
    """Delete all generations but ``keep``, as far as the system allows; what stays is tried again next time."""
    for path in folder.iterdir():
        match = _GENERATION.fullmatch(path.name)
        if match and int(match[1]) != keep:
            shutil.rmtree(path, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make names that were created or replaced in ``folder`` durable."""
    if os.name == "nt":  # folders cannot be opened there, and renaming is durable by itself
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
