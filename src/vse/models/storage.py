"""Save and load a torch model: ``config.json`` + ``model.safetensors`` + tokenizer files.

:mod:`vse.models.card` may add a card, and ``vse calibrate`` adds ``confidence.json`` and ``relevance.json``; loading
reads none of them, and none is part of the fingerprint.

Saving writes to a temporary folder beside the target and moves file by file, the weights first and the configuration
last. Both carry the model's fingerprint, and the configuration that of the tokenizer, so that loading detects a crash
between two moves and never mixes two models.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from vse._util.atomic import settle, write_json
from vse._util.strict import read_json
from vse._version import __version__
from vse.encoders.functional import DIGITS, state_fingerprint
from vse.encoders.third_party import check_numbers, check_size, offline
from vse.errors import InputError, require
from vse.hgr.model import HGRModel
from vse.models.coefficients import COEFFICIENT_FILES
from vse.models.config import AnyConfig, CrossConfig, HGRConfig, ModelConfig, PairConfig, read_config, split_marks
from vse.models.curves import CARD_FILE, CURVES_FILE, FIGURE_FILE
from vse.models.devices import torch_device
from vse.models.vse_model import VSEModel
from vse.systems.cross_encoder import CrossEncoder
from vse.systems.pair_model import PairModel

if TYPE_CHECKING:
    from vse.inputs.tokenizer import TextTokenizer

TorchModel: TypeAlias = VSEModel | HGRModel | PairModel | CrossEncoder

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
AUXILIARY = "auxiliary."
"""Tensors that a system needs in training only: they are saved, and not loaded for inference."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_settings.json")
CARD_FILES = (CARD_FILE, FIGURE_FILE, CURVES_FILE)
"""What :func:`vse.models.card.write_card` adds to a model."""


def save_model(model: TorchModel, folder: Path) -> Path:
    """Write configuration, weights and tokenizer into ``folder``; other files in it stay.

    The card, curves and confidence that another model left there are removed, since they would be taken for this
    model's. :func:`vse.models.card.write_card` writes new ones.

    Args:
        model: The model to save.
        folder: Where to save it; created if needed.

    Returns:
        ``folder``.

    Raises:
        InputError: If ``folder`` is a file.
    """
    safetensors = require("safetensors.torch", "train", "saving a model")
    if folder.is_file():
        raise InputError(f"{folder}: is a file, expected a folder to save the model in")
    folder.mkdir(parents=True, exist_ok=True)
    mark = fingerprint(model)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    staging = Path(tempfile.mkdtemp(prefix=".saving-", dir=folder))
    try:
        safetensors.save_file(state, staging / WEIGHTS, metadata={"format": "pt", "fingerprint": mark})
        _order_header(staging / WEIGHTS)
        settle(staging / WEIGHTS)
        if model.tokenizer is not None:
            model.tokenizer.save(staging)
        config = {
            "vse_version": __version__,
            "fingerprint": mark,
            "tokenizer": tokenizer_digest(staging),
            **model.config.model_dump(mode="json"),
        }
        write_json(staging / CONFIG, config)
        before = _saved_fingerprint(folder)
        stale: tuple[str, ...] = TOKENIZER_FILES if model.tokenizer is None else ()
        if before != mark:
            stale += COEFFICIENT_FILES if before is None else (*COEFFICIENT_FILES, *CARD_FILES)
        for name in stale:
            (folder / name).unlink(missing_ok=True)
        for path in sorted(staging.iterdir(), key=_order):
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def _order_header(path: Path) -> None:
    """Sort the metadata of a safetensors file, whose order is random: equal models are equal files."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        ordered = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(ordered) <= length:
            file.seek(8)
            file.write(ordered.ljust(length))


def create_model(
    config: AnyConfig, tokenizer: TextTokenizer | None = None, *, pretrained: bool = False, training: bool = False
) -> TorchModel:
    """Build a model with random weights.

    Args:
        config: describes the model.
        tokenizer: of its texts.
        pretrained: load the published weights of an image backbone.
        training: add what a system needs in training only.
    """
    if isinstance(config, HGRConfig):
        return HGRModel(config, tokenizer)
    if isinstance(config, CrossConfig):
        return CrossEncoder.build(config, tokenizer)
    if isinstance(config, PairConfig):
        return PairModel.build(config, tokenizer, pretrained=pretrained)
    return VSEModel.build(config, tokenizer, pretrained=pretrained, training=training)


def load_model(folder: Path, *, device: str | torch.device = "cpu") -> TorchModel:
    """Load the model in ``folder``, strictly: no tensor may be missing or unexpected.

    Args:
        folder: Folder of a saved model.
        device: Where to put it: a name for :func:`~vse.models.devices.torch_device`, or any device of torch.

    Returns:
        The model, in evaluation mode.

    Raises:
        InputError: If files are missing, corrupt or of different models, or the device is unavailable.
    """
    place = torch_device(device) if isinstance(device, str) else device
    raw = read_json(folder / CONFIG)
    if raw.get("runtime") == "onnx":
        raise InputError(f"{folder}: already an export for ONNX Runtime; this needs the torch model it was made from")
    described, marks = split_marks(raw)
    mark = marks.get("fingerprint")
    config = read_config(described, str(folder / CONFIG))
    if isinstance(config, ModelConfig):
        _check_self_contained(config, str(folder / CONFIG))
    elif isinstance(config, CrossConfig) and not config.architecture:
        raise InputError(
            f"{folder / CONFIG}: 'architecture' is missing; a saved model describes its transformer itself"
        )
    tokenizer = load_tokenizer(folder)
    if tokenizer_digest(folder) != marks.get("tokenizer"):
        raise InputError(f"{folder}: {CONFIG} and the tokenizer belong to different models; save the model again")
    state, metadata = read_weights(folder / WEIGHTS)
    state = {name: tensor for name, tensor in state.items() if not name.startswith(AUXILIARY)}
    try:
        model = _create_bounded(config, tokenizer, state)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from None
    if mark is not None and metadata.get("fingerprint", mark) != mark:
        raise InputError(
            f"{folder}: {CONFIG} and {WEIGHTS} belong to different models (was saving interrupted?); save it again"
        )
    load_state(model, state, str(folder / WEIGHTS))
    try:
        return model.to(place).eval()
    except (RuntimeError, AssertionError) as error:  # it is there, but full or broken
        raise InputError(f"device {str(device)!r}: {str(error).splitlines()[0]}") from None


def _create_bounded(
    config: AnyConfig, tokenizer: TextTokenizer | None, state: Mapping[str, torch.Tensor]
) -> TorchModel:
    """Build a model that its own folder describes: without the hub, and not larger than its weights."""
    check_numbers(config.model_dump(exclude={"about", "foreign"}), len(state), CONFIG)
    with offline():
        check_size(lambda: create_model(config, tokenizer), [tuple(each.shape) for each in state.values()], CONFIG)
        return create_model(config, tokenizer)


def load_towers(folder: Path, *, device: str | torch.device = "cpu") -> VSEModel:
    """Load a model that has embeddings; raise :class:`InputError` for one that only scores pairs."""
    model = load_model(folder, device=device)
    if not isinstance(model, VSEModel):
        raise InputError(f"{folder}: {model.no_vectors}")
    return model


def _saved_fingerprint(folder: Path) -> str | None:
    """Return the fingerprint of the model in the folder; None if there is none or it is unreadable."""
    try:
        found = read_json(folder / CONFIG).get("fingerprint")
    except InputError:
        return None
    return found if isinstance(found, str) else None


def tokenizer_digest(folder: Path) -> str | None:
    """Return a hash of the tokenizer files in ``folder``; None if there are none."""
    if not (folder / TOKENIZER_FILES[0]).is_file():
        return None
    digest = hashlib.sha256()
    for name in TOKENIZER_FILES:
        digest.update((folder / name).read_bytes() if (folder / name).is_file() else b"")
    return digest.hexdigest()[:DIGITS]


def _check_self_contained(config: ModelConfig, where: str) -> None:
    """Reject a configuration that would open other files or ask a hub: the folder may be untrusted."""
    if config.text.kind == "transformer" and not config.text.architecture:
        raise InputError(f"{where}: 'text.architecture' is missing; a saved model describes its transformer itself")
    if config.image.kind == "region" or config.image.kind == "dual" or config.image.backbone is None:  # noqa: PLR1714
        return
    name, outside = config.image.backbone.name, other_files(config.image.backbone.options)
    own = config.image.kind == "grid"  # frames are seen by published weights, which are fetched when videos are encoded
    if outside or (own and name.startswith("transformers:")):
        asked = f"options {outside}" if outside else name
        raise InputError(f"{where}: 'image.backbone' asks for other files ({asked}); a saved model holds its own")


def other_files(options: Mapping[str, Any]) -> list[str]:
    """Return the options of a backbone that name files to read."""
    return [key for key in options if key.startswith(("pretrained", "checkpoint", "cache"))]


def _order(path: Path) -> int:
    """Weights first, configuration last: loading detects whatever a crash leaves in between."""
    return {WEIGHTS: 0, CONFIG: 2}.get(path.name, 1)


def load_tokenizer(folder: Path) -> TextTokenizer | None:
    """Return the tokenizer saved in ``folder``, None if there is none."""
    if not (folder / "tokenizer.json").is_file():
        return None
    from vse.inputs.tokenizer import TextTokenizer

    return TextTokenizer.load(folder)


def read_weights(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file; raise :class:`InputError` if it is truncated."""
    safetensors = require("safetensors", "train", "loading a model")
    if not path.is_file():
        raise InputError(f"{path}: no such file; a model folder holds {CONFIG} and {WEIGHTS}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise InputError(
            f"{path}: not a complete safetensors file, {path.stat().st_size} bytes ({error}); copy or save it again"
        ) from None


def load_state(module: nn.Module, state: dict[str, torch.Tensor], where: str) -> None:
    """Load a state dict strictly; report missing, unexpected and misshapen tensors in one line."""
    own = module.state_dict()
    for name, tensor in state.items():
        if name in own and tensor.is_floating_point() != own[name].is_floating_point():
            raise InputError(f"{where}: {name} is {tensor.dtype}, expected {own[name].dtype}")
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    differing = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(own[name].shape)}"
        for name in sorted(own.keys() & state.keys())
        if own[name].shape != state[name].shape
    ]
    kinds = (("missing", missing), ("not expected", unexpected), ("of another shape", differing))
    problems = [
        f"{len(names)} {what} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
        for what, names in kinds
        if names
    ]
    if problems:
        raise InputError(f"{where}: the weights do not fit this architecture: tensors " + "; ".join(problems))
    module.load_state_dict(state, strict=True)


def fingerprint(model: TorchModel) -> str:
    """Return a short name for exactly these weights and this preprocessing.

    What follows from names and shapes of the weights is excluded, so that a library version that spells an architecture
    differently does not change it.
    """
    derived: Any = {
        "about": True,
        "foreign": True,
        "architecture": True,
        "pretrained": True,
        "text": {"architecture", "pretrained"},
        "image": {"architecture": True, "backbone": {"options"}},
    }
    image = model.config.image if isinstance(model.config, ModelConfig) else None
    if image is not None and image.kind == "frames" and image.backbone is None:
        derived["image"] = {"backbone"}  # models saved before it was recorded keep their names
    inputs: dict[str, Any] = {"config": model.config.model_dump(mode="json", exclude=derived)}
    if model.tokenizer is not None:
        inputs["tokenizer"] = model.tokenizer.to_json()
    embedding = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(AUXILIARY)}
    return state_fingerprint(embedding, json.dumps(inputs, sort_keys=True))
