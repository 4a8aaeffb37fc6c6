"""``vse.load``: a model from a folder, the package or the hub, in the runtime that its files are made for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from vse.errors import InputError, require
from vse.plain import read_json
from vse.shipped import is_model, shipped_folder

if TYPE_CHECKING:
    from vse.hgr.model import HGRModel
    from vse.model import VSEModel
    from vse.onnx_model import OnnxModel


def load(
    source: str | Path, *, device: str | None = None, threads: int | None = None
) -> VSEModel | OnnxModel | HGRModel:
    """The model in a local folder, the package's (``"photo"``), or one of the hub (``"owner/model"``).

    A folder that ``vse export`` wrote is run by ONNX Runtime and loads no torch; any other by torch. ``device`` is for
    torch ("cpu" by default), ``threads`` for ONNX Runtime (all cores by default).
    """
    folder = model_folder(source)
    if read_json(folder / "config.json").get("runtime") == "onnx":
        from vse.onnx_model import OnnxModel

        if device not in {None, "cpu"}:
            raise InputError(f"device {device!r}: an export runs on the CPU; load the model it was made from instead")
        return OnnxModel.load(folder, threads=threads)
    require("torch", "train", f"the model in {str(folder)!r}")
    from vse.storage import load_model

    if threads is not None:
        raise InputError("threads= is for exports; for a torch model call torch.set_num_threads")
    return load_model(folder, device=device or "cpu")


def load_towers(source: str | Path) -> VSEModel | OnnxModel:
    """As :func:`load`, for work that needs vectors: a model that scores pairs and has none is refused."""
    model = load(source)
    if hasattr(model, "score_pairs"):  # asked by name: importing its class would load torch for an export
        from vse.hgr.model import NO_VECTORS

        raise InputError(f"{source}: {NO_VECTORS}")
    return cast("VSEModel | OnnxModel", model)


def model_folder(source: str | Path) -> Path:
    """A local folder with a model in it; else that of a model of the package; else a hub id, which is downloaded first.

    A folder of pictures that is called like a model of the package is not in its way.
    """
    folder = Path(source).expanduser()
    if is_model(folder):
        return folder
    shipped = shipped_folder(source)
    if shipped is not None:
        return shipped
    if folder.is_dir():
        raise InputError(
            f"{str(source)!r}: a folder without config.json, so no model ('vse convert' or 'vse train' make one)"
        )
    if folder.is_file():
        hint = (
            f"; a checkpoint becomes a model with 'vse convert {source} DIR'"
            if folder.suffix in {".pth", ".pt", ".tar"}
            else ""
        )
        raise InputError(f"{str(source)!r}: a file, expected the folder of a model{hint}")
    name = str(source)
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or Path(name).suffix in {".pth", ".pt", ".tar"}:
        raise InputError(f"{name!r}: no such folder")
    from vse.hub import download

    folder = download(name)
    if not is_model(folder):
        raise InputError(f"{name!r}: the hub has it, but without config.json it is no model of ours")
    return folder
