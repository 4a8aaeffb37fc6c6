"""Fetch a model once and keep it as an export, so that later commands need neither torch nor a network.

A pulled model is a folder below :func:`vse.models.catalogue.models_home`, or wherever the user wants it, with a file
``pulled.json`` that says where it comes from. It appears whole or not at all: it is written beside its place and then
renamed.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from vse._util.atomic import settle, write_json
from vse._util.schema import read_json
from vse.errors import InputError, VSEError, require, unknown_choice
from vse.models.catalogue import PULLED_FILE, models_home
from vse.models.foreign import Foreign, recognise_folder
from vse.models.onnx import OnnxModel, Precision
from vse.models.sources import load, model_folder, recorded_runtime, shipped_name
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.models.config import About

STAGING = ".pulling-"
SAMPLE = "a dog plays in the snow"


@dataclass(frozen=True)
class PullReport:
    """Where a pulled model is.

    ``agreement`` is the largest difference between its embeddings and torch's, for each tower; empty for a model that
    was not exported here. ``fetched`` is false if it was there already.
    """

    source: str
    folder: str
    precision: str
    revision: str | None
    bytes: int
    agreement: dict[str, float]
    fetched: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def pull_model(
    source: str,
    into: str | Path | None = None,
    *,
    precision: Precision = "fp32",
    revision: str | None = None,
    force: bool = False,
    progress: ProgressReporter | None = None,
) -> PullReport:
    """Fetch a model, export it for ONNX Runtime, and check that both give the same embeddings.

    Args:
        source: What :func:`vse.load` takes: a hub id, ``open_clip:NAME/TAG`` or a folder. A pair of ONNX files is kept
            as it is.
        into: The folder of the model; by default one in :func:`vse.models.catalogue.models_home`, where ``vse.load``
            and ``--model`` find it under the name ``source``.
        precision: Of the export, or of the ONNX files to choose.
        revision: Commit, tag or branch on the hub.
        force: Fetch it again if it is there.
        progress: Reports the stages.

    Returns:
        The folder, its size, and how well it agrees with torch.

    Raises:
        InputError: If the model cannot be used, or ``into`` holds something else.
        VSEError: If the export differs from torch.
    """
    if precision not in get_args(Precision):
        raise InputError(unknown_choice("precision", precision, get_args(Precision)))
    if shipped_name(source) is not None:
        raise InputError(f"{source!r} is bundled with the package: nothing has to be fetched")
    target = models_home() / folder_name(source, precision) if into is None else Path(into).expanduser()
    found = _present(target, source, precision, revision)
    if found is not None and not force:
        return found
    if found is None and target.exists() and (not target.is_dir() or any(target.iterdir())) and not force:
        raise InputError(
            f"{target}: exists and is not {source!r} in {precision}; choose another folder, or use --force"
        )
    report = progress or SilentProgress()
    folder = _fetched(source, precision, revision)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=target.parent))
    try:
        agreement = _fill(staging / "model", folder, source, precision, report)
        size = sum(path.stat().st_size for path in (staging / "model").rglob("*") if path.is_file())
        commit = folder.name if folder.parent.name == "snapshots" else revision
        record = {"source": source, "revision": commit, "asked": revision, "precision": precision, "bytes": size}
        write_json(staging / "model" / PULLED_FILE, record)
        _replace(staging / "model", target, staging / "old")
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return PullReport(source, str(target), precision, commit, size, agreement)


def folder_name(source: str, precision: str) -> str:
    """Return the name of the folder of a pulled model.

    >>> folder_name("openai/clip-vit-base-patch32", "fp16")
    'openai--clip-vit-base-patch32-fp16'
    """
    plain = re.sub(r"[^\w.+@-]+", "--", source.removeprefix("hub:")).strip("-.")
    return plain + ("" if precision == "fp32" else f"-{precision}")


def _present(target: Path, source: str, precision: str, revision: str | None) -> PullReport | None:
    """Return what is in ``target`` if it is this model."""
    try:
        record = read_json(target / PULLED_FILE)
    except InputError:
        return None
    if record.get("source") != source or record.get("precision") != precision:
        return None
    if revision not in {None, record.get("revision"), record.get("asked")}:  # a tag or branch, and its commit
        return None
    return PullReport(
        source, str(target), precision, record.get("revision"), int(record.get("bytes") or 0), {}, fetched=False
    )


def _fetched(source: str, precision: Precision, revision: str | None) -> Path:
    """Return the folder of the original, downloaded if it is on the hub; a pulled copy does not count."""
    from vse.models.fetch import download, hub_name

    name = hub_name(source)
    if name is None or (not source.startswith("hub:") and Path(source).expanduser().exists()):
        return model_folder(source, revision=revision)
    return download(name, revision, precision=precision if precision in {"fp16", "int8"} else None)


def _fill(target: Path, folder: Path, source: str, precision: Precision, report: ProgressReporter) -> dict[str, float]:
    """Write the model into ``target``; return how well it agrees with torch."""
    runtime = recorded_runtime(folder)
    pair = None
    if runtime is None:
        wanted = precision if precision in {"fp16", "int8"} else None
        pair = _pair_of(folder, wanted)
    if pair is not None:
        _copy(folder, target, (*pair.needed, *pair.wanted, "README.md"))
        _try(target)
        return {}
    if runtime == "onnx":
        shutil.copytree(folder, target)
        _try(target)
        return {}
    require("torch", "train", f"exporting {source!r}")
    from vse.convert.onnx_export import export_onnx
    from vse.models.coefficients import own_coefficients, own_relevance
    from vse.models.vse_model import VSEModel

    model = load(folder)
    if not isinstance(model, VSEModel):
        raise InputError(f"{source!r}: has no embeddings of its own, so it cannot be indexed or searched")
    foreign = model.config.foreign
    if foreign is not None:
        about = _published(model.config.about, folder, source)
        model.config = model.config.model_copy(update={"about": about, "foreign": {**foreign, "source": source}})
    result = export_onnx(
        model,
        target,
        precision=precision,
        confidence=own_coefficients(folder),
        relevance=own_relevance(folder),
        progress=report,
    )
    return {tower: value.max_difference for tower, value in result.agreement.items()}


def _pair_of(folder: Path, precision: str | None) -> Foreign | None:
    found = recognise_folder(folder, precision=precision)
    return found if found is not None and found.pair is not None else None


def _published(about: About, folder: Path, source: str) -> About:
    """Return what the original's card says of licence and languages; only its front matter is read."""
    text = (folder / "README.md").read_text("utf-8", errors="replace") if (folder / "README.md").is_file() else ""
    front = text.split("---")[1] if text.startswith("---") and text.count("---") >= 2 else ""
    licence = re.search(r"^license:\s*([\w.+-]+)\s*$", front, re.MULTILINE)
    listed = re.search(r"^language:\s*\n((?:\s*-\s*[\w-]+\s*\n)+)", front, re.MULTILINE)
    single = re.search(r"^language:\s*([\w-]+)\s*$", front, re.MULTILINE)
    languages = re.findall(r"-\s*([\w-]+)", listed[1]) if listed else [single[1]] if single else []
    update = {
        "name": Path(source).name,
        "source": source,
        "base_model": source.removeprefix("hub:"),
        "license": licence[1] if licence else about.license,
        "languages": tuple(languages) or about.languages,
    }
    return about.model_copy(update=update)


def _copy(folder: Path, target: Path, names: tuple[str, ...]) -> None:
    for name in names:
        if (folder / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, target / name)
            settle(target / name)
    if (folder.parent / "tokenizer").is_dir() and (folder / "visual.onnx").is_file():  # rclip's vocabulary
        shutil.copytree(folder.parent / "tokenizer", target / "tokenizer", dirs_exist_ok=True)


def _try(folder: Path) -> None:
    """Encode an image and a text: files that do not belong together fail here, and not in the first search."""
    model = load(folder)
    if not isinstance(model, OnnxModel):
        raise VSEError(f"{folder}: expected a model for ONNX Runtime")
    text = model.encode_texts([SAMPLE], unknown="allow") if model.tokenizer is not None else None
    if model.preprocessing is None:
        return
    image = model.encode_images([np.full((64, 64, 3), 127, np.uint8)], on_bad="raise")
    if text is not None and text.shape != image.shape:
        raise InputError(f"{folder}: images have {image.shape[1]} dimensions and texts {text.shape[1]}")


def _replace(new: Path, target: Path, old: Path) -> None:
    """Move ``new`` to ``target``; what was there goes to ``old`` first, and back if the move fails."""
    if target.exists():
        target.rename(old)
    try:
        new.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
