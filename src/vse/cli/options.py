"""Options that several commands share, and how their values are checked."""

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
    """``path`` if results can be written under it; it need not exist yet."""
    for place in (path, *path.parents):
        if place.is_dir():
            return path
        if place.exists():
            raise UsageError(f"--out {str(path)!r}: {str(place)!r} is a file, expected a folder")
    return path


def parse_seeds(text: str) -> tuple[int, ...]:
    """Distinct whole numbers from 0 up, separated by commas."""
    seeds = []
    for part in text.split(","):
        number = part.strip()
        if not (number.isascii() and number.isdigit()):
            raise UsageError(f'--seeds {text!r}: {number!r} is not a whole number from 0 up: write them like "0,1,2"')
        seeds.append(int(number))
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text!r}: a seed is given twice and its run would count double")
    return tuple(seeds)


def load_for_files(name: str) -> tuple[IndexModel, str]:
    """The model that a person names, and the name under which it is found again from everywhere."""
    from vse.index.pipeline.folder import root_of
    from vse.models.sources import shipped_name

    source = shipped_name(name) or (root_of(name) if Path(name).expanduser().exists() else name)
    return load_remembered(source), source


def load_remembered(source: str) -> IndexModel:
    """The model that is found as ``source`` from everywhere: one that reads pictures, anything else is an error."""
    import vse
    from vse.models.sources import place_of

    model = vse.load(place_of(source))
    if model.preprocessing is None:
        raise InputError(f"{source} takes sets of features, not pictures: use a model that reads pictures")
    return model


def refuse_shipped(name: str, reason: str) -> None:
    """A model of the package stays as it is: whoever wants another one copies it first."""
    from vse.models.sources import place_of, shipped_name

    found = shipped_name(name)
    if found is not None:
        raise InputError(
            f"{name!r} comes with the package, and {reason}: copy it with 'cp -r {shlex.quote(place_of(found))} DIR', "
            "and use DIR"
        )


def is_gone(source: str) -> bool:
    """Whether a model was in a local folder and is no longer there. A name on the hub never is: that is not asked."""
    return Path(source).is_absolute() and not os.path.isfile(Path(source) / "config.json")  # noqa: PTH113 - never raises


ENDING = ".vse"
_OF_OTHERS = ("-", "~", "milvus+")
"""Beginnings that mean something else on a command line: an option, a home, a server."""


def named_after(root: str) -> str:
    """The index in the present folder that is called like ``root``, an absolute path: ``Photos.vse``."""
    name = Path(root).name
    if not name:
        raise UsageError(f"{root} has no name that an index could be called by: choose one, --into NAME{ENDING}")
    return _plain(name + ENDING)


def check_named_after(where: str, root: str, known: Sequence[str]) -> None:
    """Two folders may be called the same: one is not added to the index of the other unless that is asked for."""
    if known and root not in known:
        raise InputError(
            f"{where} is there already, for {known[0]}: 'vse index {shlex.quote(root)} --into {shlex.quote(where)}' "
            "adds this folder to it, another name after --into makes an index of its own"
        )


def only_index_here() -> str:
    """The index in the present folder, if there is exactly one; else the call has to name it."""
    from vse.index.store.layout import HEADER

    found = sorted(path.name for path in Path().glob(f"*{ENDING}") if os.path.isfile(path / HEADER))  # noqa: PTH113
    if len(found) == 1:
        return _plain(found[0])
    if found:
        raise UsageError(f"several indexes are in this folder ({', '.join(found)}): name one of them")
    raise UsageError(f"no index was named, and no *{ENDING} is in this folder: 'vse index FOLDER' makes one")


def is_index(folder: str) -> bool:
    """Whether a folder is an index; a file that is called like one of its files does not make it one."""
    from vse.index.store.layout import read_generation

    try:
        read_generation(Path(folder))
    except InputError:
        return False
    return True


def _plain(name: str) -> str:
    """A name that means the file of this name and nothing else."""
    return os.path.abspath(name) if name.startswith(_OF_OTHERS) else name  # noqa: PTH100 - links stay


def embed(
    name: str,
    path: Path,
    split: str,
    *,
    images: Path | None = None,
    features: Path | None = None,
    progress: ProgressReporter,
) -> Embeddings:
    """The vectors of one model for the split, from features or from pictures as the model asks."""
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
    """Features of another backbone may have the right width and mean something else."""
    backbone = model.backbone_fingerprint()
    if backbone is None:
        raise UsageError(f"--features: {name} is an export and reads pictures; use the model it was made from")
    if store.header.fingerprint != backbone:
        raise InputError(f"{store.folder}: features of another backbone ({store.header.backbone}) than that of {name}")
