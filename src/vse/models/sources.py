"""Load a model from a folder, the package or the Hugging Face hub, in the runtime its files are made for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vse._util.schema import read_json
from vse.errors import InputError, first_line, require

if TYPE_CHECKING:
    from vse.hgr.model import HGRModel
    from vse.models.onnx import OnnxModel
    from vse.models.protocols import EmbeddingModel
    from vse.models.vse_model import VSEModel

# Files that are downloaded from the hub: never code, never pickles.
FILES = ["*.json", "*.safetensors", "*.onnx", "*.onnx.data", "*.txt", "*.md", "*.png"]

MODELS = Path(__file__).with_name("shipped")
DEFAULT = "photo"
"""The bundled model for photos; the default of ``vse index``."""
NAMES = (DEFAULT,)
PREVIOUS = {DEFAULT: ("photo-v1",)}
"""Earlier versions of bundled models: a collection that one of them encoded works until it is upgraded."""


def load(
    source: str | Path, *, device: str | None = None, threads: int | None = None
) -> VSEModel | OnnxModel | HGRModel:
    """Load a model.

    Args:
        source: A local folder, a bundled model (``"photo"``) or a hub id (``"owner/model"``). A folder of
            ``vse export`` is run by ONNX Runtime without torch, any other by torch.
        device: Where it runs, by a name of :mod:`vse.models.devices`: ``"auto"``, ``"cpu"``, ``"cuda"`` …; the CPU by
            default.
        threads: Threads on the CPU; all cores by default. For a torch model it counts for the whole process.

    Returns:
        The model.

    Raises:
        InputError: If the model does not exist, its files do not belong together, or the device is missing.
    """
    folder = model_folder(source)
    if read_json(folder / "config.json").get("runtime") == "onnx":
        from vse.models.onnx import OnnxModel

        return OnnxModel.load(folder, device=device, threads=threads)
    require("torch", "train", f"the model in {str(folder)!r}")
    from vse.models.devices import set_torch_threads
    from vse.models.storage import load_model

    set_torch_threads(threads)
    return load_model(folder, device=device or "cpu")


def load_towers(source: str | Path, *, device: str | None = None, threads: int | None = None) -> EmbeddingModel:
    """Load a model that has embeddings; raise :class:`InputError` for one that only scores pairs."""
    from vse.models.protocols import NO_VECTORS, PairScorer  # loads numpy, which the name ``vse.load`` does not need

    model = load(source, device=device, threads=threads)
    if isinstance(model, PairScorer):
        raise InputError(f"{source}: {NO_VECTORS}")
    return model


def model_folder(source: str | Path) -> Path:
    """Return the folder of a model: a local folder, else a bundled model, else a hub id, which is downloaded.

    A folder of images with the name of a bundled model does not hide the model.
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

    folder = download(name)
    if not is_model(folder):
        raise InputError(f"{name!r}: the hub has it, but without config.json it is no model of ours")
    return folder


def download(name: str) -> Path:
    """Download the hub model ``owner/model``, with the local cache as fallback.

    Returns:
        The folder of the model.

    Raises:
        InputError: If neither the hub nor the cache has it.
    """
    hub = require("huggingface_hub", "train", f"loading {name!r} from the hub")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=FILES))
    except Exception as error:  # the hub's client raises errors of several libraries
        try:
            return Path(hub.snapshot_download(name, allow_patterns=FILES, local_files_only=True))
        except Exception:  # noqa: BLE001 (the first error is the one that explains)
            reason = first_line(error)
        raise InputError(f"{name!r} is neither a local folder nor a model that the hub gave: {reason}") from error


def is_model(folder: Path) -> bool:
    """Return whether a folder holds a model."""
    return (folder / "config.json").is_file()


def shipped_folder(name: str | Path) -> Path | None:
    """Return the folder of the bundled model of this name; None if there is none."""
    folder = MODELS / name
    return folder if str(name) in NAMES and is_model(folder) else None


def shipped_name(source: str | Path) -> str | None:
    """Return the name of the bundled model that ``source`` means, by name or by folder; None if it means another.

    A model in the current folder comes first; a folder of images with the same name does not.
    """
    place = Path(source).expanduser()
    if not is_model(place):
        return None if shipped_folder(source) is None else str(source)
    return next((name for name in NAMES if place.resolve() == (MODELS / name).resolve()), None)


def named_place(source: str | Path) -> str:
    """Return where the model that a user calls ``source`` is: the folder of a bundled model, else ``source``."""
    name = shipped_name(source)
    return str(source) if name is None else place_of(name)


def place_of(source: str, fingerprint: str | None = None) -> str:
    """Return where the model that a collection stores as ``source`` is.

    Args:
        source: A folder, a hub id or the name of a bundled model.
        fingerprint: The model that encoded the collection; selects an earlier version of a bundled model.

    Returns:
        The folder of a bundled model, else ``source``.
    """
    folder = shipped_folder(source)
    if folder is None:
        return source
    if fingerprint is not None and _recorded_fingerprint(folder) != fingerprint:
        for older in PREVIOUS.get(source, ()):
            if is_model(MODELS / older) and _recorded_fingerprint(MODELS / older) == fingerprint:
                return str(MODELS / older)
    return str(folder)


def _recorded_fingerprint(folder: Path) -> object:
    """Return the fingerprint that an export records, without loading it."""
    return read_json(folder / "config.json").get("fingerprint")
