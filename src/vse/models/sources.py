"""Load a model from a folder, the package or the Hugging Face hub, in the runtime its files are made for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from vse._util.plugins import Registry
from vse._util.schema import read_json
from vse.errors import InputError, MissingDependencyError, install_hint, name_extra, require

if TYPE_CHECKING:
    from vse.hgr.model import HGRModel
    from vse.models.onnx import OnnxModel
    from vse.models.protocols import EmbeddingModel, PairScorer
    from vse.models.vse_model import VSEModel
    from vse.systems.cross_encoder import CrossEncoder
    from vse.systems.pair_model import PairModel
    from vse.systems.public_cross import PublicCrossEncoder

MODELS = Path(__file__).with_name("shipped")
"""The models of a checkout; the distribution vse-infinity-photo installs the current one."""
PHOTO_PACKAGE = "vse_infinity_photo"
DEFAULT = "photo"
"""The bundled model for photos; the default of ``vse index``."""
NAMES = (DEFAULT,)
MARKERS = ("config.json", "open_clip_config.json", "modules.json", "visual.onnx")
"""Files that make a folder a model."""
OPEN_CLIP = "open_clip:"
HUB = "hub:"
"""``hub:owner/model`` is never a local folder."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
PREVIOUS = {DEFAULT: ("photo-v1",)}
"""Earlier versions of bundled models, in a checkout: a collection that one of them encoded works until its upgrade."""
INSTALLED: Registry[Callable[[], str | Path]] = Registry("vse.models")
"""Functions that return the folder of a model that a distribution brings."""


def load(
    source: str | Path, *, device: str | None = None, threads: int | None = None, revision: str | None = None
) -> VSEModel | OnnxModel | HGRModel | PairModel | CrossEncoder | PublicCrossEncoder:
    """Load a model.

    Args:
        source: A local folder, a bundled model (``"photo"``), a model of ``vse pull`` or a hub id (``"owner/model"``,
            or ``"hub:owner/model"`` where a local folder has that name). Models of vse, public dual encoders (CLIP,
            SigLIP, open_clip, …) and pairs of ONNX files are recognised, see :mod:`vse.models.foreign`.
            ``"open_clip:NAME/TAG"`` is one of open_clip's own list. Exports and ONNX pairs run on ONNX Runtime without
            torch, any other model on torch.
        device: Where it runs, by a name of :mod:`vse.models.devices`: ``"auto"``, ``"cpu"``, ``"cuda"`` …; the CPU by
            default.
        threads: Threads on the CPU; all cores by default. For a torch model it counts for the whole process.
        revision: Commit, tag or branch on the hub.

    Returns:
        The model.

    Raises:
        InputError: If the model does not exist, its files do not belong together, or the device is missing.
    """
    folder = model_folder(source, revision=revision)
    runtime = recorded_runtime(folder)
    if runtime is None:
        return _load_foreign(folder, str(source), revision, device=device, threads=threads)
    if runtime == "onnx":
        try:
            from vse.models.onnx import OnnxModel

            return OnnxModel.load(folder, device=device, threads=threads)
        except ModuleNotFoundError as error:
            raise name_extra(error, f"the model in {str(folder)!r}") from error
    require("torch", "train", f"the model in {str(folder)!r}")
    from vse.models.devices import set_torch_threads
    from vse.models.storage import load_model

    set_torch_threads(threads)
    return load_model(folder, device=device or "cpu")


def load_towers(source: str | Path, *, device: str | None = None, threads: int | None = None) -> EmbeddingModel:
    """Load a model that has embeddings; raise :class:`InputError` for one that only scores pairs."""
    from vse.models.protocols import PairScorer  # loads numpy, which the name ``vse.load`` does not need

    model = load(source, device=device, threads=threads)
    if isinstance(model, PairScorer):
        raise InputError(f"{source}: {model.no_vectors}")
    return model


def load_reranker(source: str | Path, *, device: str | None = None, threads: int | None = None) -> PairScorer:
    """Load a model that scores pairs, to re-rank what another one found.

    Args:
        source: What :func:`load` takes; a hub id may have a revision, ``"owner/model@refs/pr/3"``.
        device: Where it runs.
        threads: Threads on the CPU.

    Raises:
        InputError: If the model cannot be loaded, has embeddings in place of scores, or reads no texts.
    """
    from vse.models.protocols import NO_RERANKER, PairScorer

    name, revision = source, None
    if not Path(source).expanduser().exists():
        from vse.models.fetch import split_revision

        name, revision = split_revision(str(source))
    model = load(name, device=device, threads=threads, revision=revision)
    if not isinstance(model, PairScorer):
        raise InputError(f"{source}: {NO_RERANKER}")
    if not model.capabilities.texts:
        raise InputError(f"{source}: without a vocabulary it reads no texts, so it cannot re-rank")
    return model


def load_torch(
    source: str | Path, *, revision: str | None = None, device: str | None = None, folder: Path | None = None
) -> VSEModel:
    """Load a model with embeddings for torch, to train, export or change it.

    Args:
        source: What :func:`load` takes; of a model that was pulled, the original is loaded.
        revision: Commit, tag or branch on the hub.
        device: Where to put it; the CPU by default.
        folder: Its files, if they are known.

    Raises:
        InputError: If there is no such model, it is made for ONNX Runtime, or it only scores pairs.
    """
    folder = folder or model_folder(source, revision=revision, pulled=False)
    require("torch", "train", f"the model in {str(folder)!r}")
    if recorded_runtime(folder) is not None:
        from vse.models.storage import load_towers as load_saved

        return load_saved(folder, device=device or "cpu")
    from vse.models.onnx import OnnxModel
    from vse.models.protocols import PairScorer

    model = _load_foreign(folder, str(source), revision, device=device, threads=None)
    if isinstance(model, PairScorer):
        raise InputError(f"{source}: {model.no_vectors}")
    if isinstance(model, OnnxModel):
        raise InputError(f"{str(source)!r}: made for ONNX Runtime; this needs a model with torch weights (safetensors)")
    return model


def _load_foreign(
    folder: Path, source: str, revision: str | None, *, device: str | None, threads: int | None
) -> VSEModel | OnnxModel | PublicCrossEncoder:
    """Load a public model with the runtime that its files are for."""
    from vse.models.foreign import recognise_folder

    found = recognise_folder(folder)
    if found is None:
        raise InputError(f"{source!r}: config.json describes no model that vse knows")
    if found.pair is not None:
        from vse.models.onnx_pair import OnnxPair

        return OnnxPair.open(folder, found, source=source, threads=threads, device=device)
    require("torch", "train", f"the model in {str(folder)!r}")
    from vse.models.devices import set_torch_threads, torch_device

    set_torch_threads(threads)
    if found.kind == "cross":
        from vse.models.foreign import text_inputs
        from vse.systems.public_cross import load_public_cross

        weights = [folder / name for name in found.needed if name.endswith(".safetensors")]
        tokenizer, place = text_inputs(folder, found), torch_device(device)
        return load_public_cross(folder, found.config, weights, tokenizer, name=source, device=place)
    from vse.models.dual_model import foreign_model

    return foreign_model(folder, found, source=source, revision=revision, device=torch_device(device))


def recorded_runtime(folder: Path) -> str | None:
    """Return the runtime of a model of ours, ``torch`` or ``onnx``; None for a public model."""
    path = folder / "config.json"
    if not path.is_file():
        return None
    config = read_json(path)
    if "runtime" not in config and ("model_type" in config or "architectures" in config or not config):
        return None
    ours = {"format", "image", "text", "kind", "fingerprint"} & config.keys() or "runtime" in config
    return str(config.get("runtime", "torch")) if ours else None


def model_folder(source: str | Path, *, revision: str | None = None, pulled: bool = True) -> Path:
    """Return the folder of a model: a local folder, a bundled or pulled model, else a hub id, which is downloaded.

    A folder of images with the name of a bundled model does not hide the model. ``pulled=False`` passes over pulled
    models, which are exports.
    """
    folder = Path(source).expanduser()
    named = str(source).startswith((HUB, OPEN_CLIP))
    if is_model(folder) and not named:
        return folder
    shipped = shipped_folder(source)
    if shipped is not None:
        return shipped
    if str(source) in NAMES:
        raise MissingDependencyError(
            f"the model {source!r} is not installed: {install_hint('search')}", name=PHOTO_PACKAGE
        )
    from vse.models.fetch import download, hub_name  # not for bundled and local models, which are loaded most often

    if folder.is_dir() and not named:
        if is_model(folder / "best") or is_model(folder / "last"):
            inside = " or ".join(f"'{folder / name}'" for name in ("best", "last") if is_model(folder / name))
            raise InputError(f"{str(source)!r}: the folder of a training run, not of a model: use {inside}")
        other = f"; the hub's model of that name is {HUB}{source}" if hub_name(str(source)) else ""
        raise InputError(
            f"{str(source)!r}: a folder without config.json, so no model ('vse convert' or 'vse train' make one){other}"
        )
    if folder.is_file() and not named:
        hint = (
            f"; a checkpoint becomes a model with 'vse convert {source} DIR'"
            if folder.suffix in {".pth", ".pt", ".tar"}
            else ""
        )
        raise InputError(f"{str(source)!r}: a file, expected the folder of a model{hint}")
    kept = pulled_folder(str(source), revision) if pulled else None
    if kept is not None:
        return kept
    if str(source).startswith(OPEN_CLIP):
        return _open_clip_folder(str(source).removeprefix(OPEN_CLIP), revision)
    name = hub_name(str(source))
    if name is None:
        raise InputError(f"{str(source)!r}: {f'expected {HUB}owner/model' if named else 'no such folder'}")
    folder = download(name, revision)
    if not is_model(folder):
        raise InputError(f"{name!r}: the hub has it, but without config.json it is no model of ours")
    return folder


def pulled_folder(source: str, revision: str | None = None) -> Path | None:
    """Return the folder of a model that ``vse pull`` fetched; None if it was not pulled, or another revision was."""
    from vse.models.catalogue import list_models

    name = source.removeprefix(HUB)
    found = [each for each in list_models().pulled if each.problem is None and each.name.removeprefix(HUB) == name]
    return next((Path(each.folder) for each in found if revision in {None, each.revision, each.asked}), None)


def _open_clip_folder(name: str, revision: str | None) -> Path:
    """Return the folder of a model of open_clip's own list, ``ARCHITECTURE/TAG``, downloaded from the hub."""
    from vse.encoders.third_party import repair_torchvision
    from vse.models.fetch import download

    repair_torchvision()
    open_clip = require("open_clip", "open-clip", f"the model {OPEN_CLIP}{name}")
    architecture, _, tag = name.partition("/")
    known = open_clip.get_pretrained_cfg(architecture, tag)
    if not known:
        tags = open_clip.list_pretrained_tags_by_model(architecture)
        expected = f"one of {', '.join(tags[:8])}" if tags else "an architecture of open_clip.list_models()"
        raise InputError(f"{OPEN_CLIP}{name}: open_clip knows no such weights; expected NAME/TAG, {expected}")
    place = str(known.get("hf_hub") or "").rstrip("/")
    if not place:
        raise InputError(f"{OPEN_CLIP}{name}: these weights are not on the hub as safetensors; choose another tag")
    return download(place, revision)


def is_model(folder: Path) -> bool:
    """Return whether a folder holds a model of ours, or what looks like a public one."""
    return any((folder / name).is_file() for name in MARKERS)


def shipped_folder(name: str | Path) -> Path | None:
    """Return the folder of the bundled or installed model of this name; None if there is none."""
    earlier = {old for names in PREVIOUS.values() for old in names}
    return None if str(name) in earlier or not _PLAIN_NAME.fullmatch(str(name)) else _installed_folder(str(name))


def _installed_folder(name: str) -> Path | None:
    """Return the folder of a model: of the checkout, of vse-infinity-photo, or of another distribution."""
    ours = name in NAMES or any(name in names for names in PREVIOUS.values())
    if ours and is_model(MODELS / name):
        return MODELS / name
    if name in NAMES:  # imported by name: reading the entry points of all distributions takes longer than a search
        with suppress(ModuleNotFoundError):
            found: Callable[[], Path] = getattr(import_module(PHOTO_PACKAGE), name)
            return found()
    if name not in INSTALLED:
        return None
    folder = Path(INSTALLED[name]())
    if not is_model(folder):
        raise InputError(f"{INSTALLED.origin(name)}: {folder} holds no model: reinstall it")
    return folder


def list_installed() -> list[str]:
    """Return the names of bundled models and of those that other distributions bring, without earlier versions."""
    earlier = {old for names in PREVIOUS.values() for old in names}
    named = dict.fromkeys((*NAMES, *INSTALLED))
    return [name for name in named if name not in earlier and shipped_folder(name) is not None]


def shipped_name(source: str | Path) -> str | None:
    """Return the name of the bundled model that ``source`` means, by name or by folder; None if it means another.

    A model in the current folder comes first; a folder of images with the same name does not.
    """
    place = Path(source).expanduser()
    if not is_model(place):
        return None if shipped_folder(source) is None else str(source)
    folders = ((name, shipped_folder(name)) for name in NAMES)
    return next((name for name, each in folders if each is not None and place.resolve() == each.resolve()), None)


def named_place(source: str | Path) -> str:
    """Return where the model that a user calls ``source`` is, without asking the hub.

    Returns:
        The folder of a bundled model, of a pulled one or of one in the hub's cache; else ``source``.
    """
    name = shipped_name(source)
    if name is not None:
        return place_of(name)
    if Path(source).expanduser().exists():
        return str(source)
    from vse.models.fetch import cached_folder, hub_name

    repository = hub_name(str(source))
    found = pulled_folder(str(source)) or (None if repository is None else cached_folder(repository))
    return str(source if found is None else found)


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
        for older in map(_installed_folder, PREVIOUS.get(source, ())):
            if older is not None and _recorded_fingerprint(older) == fingerprint:
                return str(older)
    return str(folder)


def recorded_place(source: str, fingerprint: str | None = None) -> str:
    """Return the folder of the model that a collection stores as ``source``, without asking the hub.

    A collection may come from somebody else, so what it names is looked for on this machine only: bundled, in a folder,
    pulled, or in the hub's cache.

    Args:
        source: A folder, a hub id or the name of a bundled model.
        fingerprint: The model that encoded the collection; selects an earlier version of a bundled model.

    Raises:
        InputError: It is not on this machine.
    """
    place = place_of(source, fingerprint)
    if place == source and not Path(source).expanduser().exists():
        place = named_place(source)
        if place == source and _is_hub_name(source):
            raise InputError(
                f"the model {source!r} is not on this machine, and a collection's model is not fetched unasked: "
                f"'vse pull {shlex.quote(source)}' fetches it, or name it with --model"
            )
    return place


def _is_hub_name(source: str) -> bool:
    from vse.models.fetch import hub_name

    return source.startswith((HUB, OPEN_CLIP)) or hub_name(source) is not None


def _recorded_fingerprint(folder: Path) -> object:
    """Return the fingerprint that an export records, without loading it."""
    return read_json(folder / "config.json").get("fingerprint")
