"""Options that several commands share, their validation, and models and indexes given by name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vse.errors import InputError, UsageError


def check_device_option(name: str | None) -> str | None:
    """Return the value of --device; raise an error if no device is called so."""
    if name is None:
        return None
    from vse.models.devices import DeviceError, check_device

    try:
        return check_device(name)
    except DeviceError as error:
        raise UsageError(f"--device: {error}") from None


PRECISIONS = ("fp32", "fp16", "int8", "mixed")
"""Of exports; :data:`vse.models.onnx.Precision`, without loading it."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        envvar="VSE_DEVICE",
        callback=check_device_option,
        help="Where the model runs: auto, cpu, cuda, mps; exports: tensorrt, openvino, coreml, dml, too "
        "[default: cpu].",
    ),
]
ThreadsOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Threads of the model on the CPU [default: all cores].")
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        metavar="STORAGE", help="How a new index stores embeddings: float32, float16 or int8 [default: float32]."
    ),
]


def output_folder(path: Path) -> Path:
    """Return ``path`` if results can be written below it; it need not exist yet."""
    for place in (path, *path.parents):
        if place.is_dir():
            return path
        if place.exists():
            raise UsageError(f"--out {str(path)!r}: {str(place)!r} is a file, expected a folder")
    return path


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return distinct non-negative integers from a comma-separated list."""
    seeds = []
    for part in text.split(","):
        number = part.strip()
        if not (number.isascii() and number.isdigit()):
            raise UsageError(f'--seeds {text!r}: {number!r} is not a non-negative integer: write seeds like "0,1,2"')
        seeds.append(int(number))
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text!r}: a seed is given twice, and its run would count twice: give each once")
    return tuple(seeds)


def parse_numbers(option: str, text: str, *, least: int) -> tuple[int, ...]:
    """Return the whole numbers of a comma-separated list."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdigit() and int(part) >= least):
            raise UsageError(f'{option} {text!r}: {part!r} is no whole number from {least} on: write "5,20,40"')
    return tuple(map(int, parts))


def reject_bundled(name: str, reason: str) -> None:
    """Raise an error if ``name`` is a bundled model, which must not be changed."""
    from vse.models.sources import place_of, shipped_name

    found = shipped_name(name)
    if found is not None:
        raise InputError(
            f"{name!r} is bundled with the package, and {reason}: copy it with "
            f"'cp -r {shlex.quote(place_of(found))} DIR', and use DIR"
        )


ENDING = ".vse"
_SERVERS = ("milvus+", "postgresql://", "postgres://")
_RESERVED = ("-", "~", *_SERVERS)
"""Prefixes with another meaning on a command line: an option, a home folder, a server."""
_FILTERED = ("name:", "folder:", "camera:", "place:")
"""Prefixes of a text that may contain a slash."""


def named_after(root: str) -> str:
    """Return the index in the working directory that is named after ``root``, such as ``Photos.vse``."""
    name = Path(root).name
    if not name:
        raise UsageError(f"{root} has no name to use for the index: choose one with --into NAME{ENDING}")
    return _plain(name + ENDING)


def check_named_after(where: str, root: str, known: Sequence[str]) -> None:
    """Raise an error if the index named after ``root`` belongs to another folder of the same name."""
    if known and root not in known:
        raise InputError(
            f"{where} already exists, for {known[0]}: 'vse index {shlex.quote(root)} --into {shlex.quote(where)}' "
            "adds this folder to it, another name after --into creates a separate index"
        )


def only_index_here() -> str:
    """Return the only index in the working directory; none or several are an error."""
    from vse.index.open import find_collections

    found = find_collections(".", f"*{ENDING}")
    if len(found) == 1:
        return _plain(found[0])
    if found:
        raise UsageError(f"this folder holds several indexes ({', '.join(found)}): name one of them")
    raise UsageError(f"no index given, and no *{ENDING} in this folder: 'vse index FOLDER' creates one")


def index_and_texts(words: Sequence[str]) -> tuple[str, list[str]]:
    """Split the words of a search into the index and the texts; without one, it is the only index here.

    Raises:
        UsageError: No index is named and there is none or more than one here, or its ending was left out.
    """
    from vse.index.open import find_collections

    first, *rest = words or ("",)
    path = os.sep in first and not first.lower().startswith(_FILTERED)
    if first.startswith(_SERVERS) or first.endswith(ENDING) or path or Path(first or "?").is_dir():
        if rest and not first.endswith(ENDING) and _exists(first + ENDING) and not _exists(first):
            raise UsageError(f"{first!r} is no index: did you mean {first + ENDING!r}?")
        return first, rest
    if rest and _exists(first + ENDING):
        raise UsageError(f"{first!r} is no index: did you mean {first + ENDING!r}? (quote a text of several words)")
    if len(find_collections(".", f"*{ENDING}")) != 1 and rest:
        return first, rest  # as before: it is not a collection
    return only_index_here(), list(words)


def _exists(name: str) -> bool:
    from vse.index.open import collection_exists

    try:
        return collection_exists(name)
    except InputError:
        return False


def _plain(name: str) -> str:
    """``name``, made absolute if it could be taken for something else."""
    return os.path.abspath(name) if name.startswith(_RESERVED) else name  # noqa: PTH100 - links stay
