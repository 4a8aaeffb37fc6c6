"""Options that several commands share, their validation, and models and indexes given by name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vse.errors import InputError, UsageError

if TYPE_CHECKING:
    from vse.data import FeatureStore
    from vse.evaluation.embeddings import Embeddings
    from vse.index.pipeline.commits import IndexModel
    from vse.progress import ProgressReporter


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


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


def load_for_files(name: str) -> tuple[IndexModel, str]:
    """Load the model that the user names; return it with the name that finds it from any working directory."""
    from vse.index.pipeline.folder import root_of
    from vse.models.sources import shipped_name

    source = shipped_name(name) or (root_of(name) if Path(name).expanduser().exists() else name)
    return load_source(source), source


def load_source(source: str) -> IndexModel:
    """Load the model at ``source``, an absolute path or a name; it must read images, not features."""
    import vse
    from vse.models.sources import place_of

    model = vse.load(place_of(source))
    if model.preprocessing is None:
        raise InputError(f"{source} reads features, not images: use a model that reads images")
    return model


def reject_bundled(name: str, reason: str) -> None:
    """Raise an error if ``name`` is a bundled model, which must not be changed."""
    from vse.models.sources import place_of, shipped_name

    found = shipped_name(name)
    if found is not None:
        raise InputError(
            f"{name!r} is bundled with the package, and {reason}: copy it with "
            f"'cp -r {shlex.quote(place_of(found))} DIR', and use DIR"
        )


def is_gone(source: str) -> bool:
    """Return whether a model in a local folder is no longer there. The hub is not queried."""
    return Path(source).is_absolute() and not os.path.isfile(Path(source) / "config.json")  # noqa: PTH113 - never raises


ENDING = ".vse"
_RESERVED = ("-", "~", "milvus+")
"""Prefixes with another meaning on a command line: an option, a home folder, a server."""


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
    from vse.index.store.layout import HEADER

    found = sorted(path.name for path in Path().glob(f"*{ENDING}") if os.path.isfile(path / HEADER))  # noqa: PTH113
    if len(found) == 1:
        return _plain(found[0])
    if found:
        raise UsageError(f"this folder holds several indexes ({', '.join(found)}): name one of them")
    raise UsageError(f"no index given, and no *{ENDING} in this folder: 'vse index FOLDER' creates one")


def is_index(folder: str) -> bool:
    """Return whether a folder is an index, from the contents of its header."""
    from vse.index.store.layout import read_generation

    try:
        read_generation(Path(folder))
    except InputError:
        return False
    return True


def _plain(name: str) -> str:
    """``name``, made absolute if it could be taken for something else."""
    return os.path.abspath(name) if name.startswith(_RESERVED) else name  # noqa: PTH100 - links stay


def embed(
    name: str,
    path: Path,
    split: str,
    *,
    images: Path | None = None,
    features: Path | None = None,
    progress: ProgressReporter,
) -> Embeddings:
    """Return the embeddings of a split by one model, from features or images as the model needs."""
    from vse.data import FeatureStore, attach, open_data
    from vse.evaluation.embeddings import embed_split
    from vse.models.sources import load_towers

    model = load_towers(name)
    if model.preprocessing is None:
        data = open_data(path, split, use="features")
    else:
        data = open_data(path, split, images=images, use="files")
        if features is not None:
            store = FeatureStore.open(features)
            _check_store(store, model, name)
            data = attach(data, store)
    progress.note(f"{name}: {len(data.images)} images, {len(data.captions)} captions of {data.name} {data.split}")
    called = Path(name).resolve().name if Path(name).exists() else name.replace("/", "-")
    return embed_split(model, data, name=called, progress=progress)


def _check_store(store: FeatureStore, model: Any, name: str) -> None:
    """Features of another backbone may have the right width and the wrong meaning."""
    backbone = model.backbone_fingerprint()
    if backbone is None:
        raise UsageError(f"--features: {name} is an export and reads images: use the model it was exported from")
    if store.header.fingerprint != backbone:
        other = f"features of another backbone ({store.header.backbone})"
        raise InputError(f"{store.folder}: {other} than that of {name}: extract them again")
