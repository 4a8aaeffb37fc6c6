"""Read torch checkpoints from untrusted sources without executing anything in them.

A ``.pth`` file is a pickle, and unpickling can call any function. torch's restricted reader builds only tensors and
plain containers; here it may also build ``argparse.Namespace`` (the options of the released training script) and numpy
scalars (its best score).
"""

from __future__ import annotations

import argparse
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vse.errors import InputError, first_line

EXPECTED = 'a dictionary with "model": [image tensors, text tensors] and "opt"'
# A scalar is rebuilt from its type and bytes; the module has another name since numpy 2.
_SCALAR = np.array(0.0)[()].__reduce__()[0]
_ALLOWED: list[Any] = [
    argparse.Namespace,
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float64", "float32", "int64", "int32")),
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (_SCALAR, "numpy._core.multiarray.scalar"),
]


SEQUENTIAL_NAMES = {
    "base.0.": "conv1.",
    "base.1.": "bn1.",
    "base.4.": "layer1.",
    "base.5.": "layer2.",
    "base.6.": "layer3.",
    "top.0.": "layer4.",
}
"""Names of a ResNet's parts in the order in which the released code runs them, and their usual names."""


@dataclass(frozen=True)
class Checkpoint:
    """What the released training script saves."""

    image: dict[str, Tensor]
    text: dict[str, Tensor]
    options: dict[str, Any]
    epoch: int | None
    best_rsum: float | None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint in ``path``; raise :class:`InputError` for anything else. Nothing is executed."""
    return _checked(path, _read(path))


def read_state(path: Path) -> dict[str, Tensor]:
    """Return the tensors by name of a file with one network's state, also under ``state_dict`` or ``model``.

    The authors' ``original_updown_backbone.pth`` is ``{"base": …, "top": …}``: a ResNet in two parts, whose tensors get
    their usual names.
    """
    content = _read(path)
    if isinstance(content, Mapping) and content.keys() == {"base", "top"}:
        return _usual_names(path, content)
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: expected tensors by name, {_found(content)}")
    return _tensors(path, content)


def _usual_names(path: Path, parts: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a ResNet in two parts under their usual names."""
    found: dict[str, Tensor] = {}
    for part, state in parts.items():
        if not isinstance(state, Mapping):
            raise InputError(f"{path}: {part!r} must hold tensors by name, {_found(state)}")
        for name, value in _tensors(path, state).items():
            start = next((start for start in SEQUENTIAL_NAMES if f"{part}.{name}".startswith(start)), None)
            if start is None:
                raise InputError(f"{path}: unknown tensor {name!r} in {part!r}, expected the stages of a ResNet")
            found[SEQUENTIAL_NAMES[start] + f"{part}.{name}".removeprefix(start)] = value
    return found


def _read(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"{path}: {'a folder, expected' if path.is_dir() else 'no such file:'} a checkpoint (.pth)")
    try:
        with torch.serialization.safe_globals(_ALLOWED):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(_refusal(path, error)) from None
    except Exception as error:  # noqa: BLE001 (torch raises errors of many kinds for files that are cut short or not its own)
        if "weights_only" in str(error):
            raise InputError(_refusal(path, error)) from None
        reason = first_line(error)
        raise InputError(f"{path}: not a complete torch checkpoint, {path.stat().st_size} bytes ({reason})") from None


def _refusal(path: Path, error: Exception) -> str:
    """torch's own message advises to disable its protection; ours does not."""
    named = re.search(r"(?:GLOBAL|global|class) ['`\"]?([\w.]+)", str(error))
    asked = f" (it asks for {named[1]})" if named else ""
    return f"{path}: refused, and nothing in it was run: not a checkpoint of tensors and plain options{asked}"


def _checked(path: Path, content: Any) -> Checkpoint:
    if not isinstance(content, Mapping) or "model" not in content:
        raise InputError(f"{path}: not a checkpoint of the released code; expected {EXPECTED}, {_found(content)}")
    towers = content["model"]
    if not isinstance(towers, (list, tuple)) or len(towers) != 2 or not all(isinstance(t, Mapping) for t in towers):
        raise InputError(f'{path}: "model" must be [image tensors, text tensors], {_found(towers)}')
    options = content.get("opt", {})
    options = vars(options) if isinstance(options, argparse.Namespace) else options
    if not isinstance(options, Mapping):
        raise InputError(f'{path}: "opt" must be the options of the training script, {_found(options)}')
    image, text = (_tensors(path, tower) for tower in towers)
    epoch, best = content.get("epoch"), content.get("best_rsum")
    return Checkpoint(
        image,
        text,
        dict(options),
        int(epoch) if isinstance(epoch, (int, np.integer)) else None,
        float(best) if isinstance(best, (int, float, np.number)) and np.isfinite(best) else None,
    )


def _tensors(path: Path, state: Mapping[Any, Any]) -> dict[str, Tensor]:
    """Return the tensors by name, without the ``module.`` prefix of multi-device training."""
    tensors: dict[str, Tensor] = {}
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise InputError(f"{path}: {name!r} is a {type(value).__name__}, expected a tensor")
        plain = name.removeprefix("module.")
        if plain in tensors:
            raise InputError(f"{path}: {plain!r} is there twice, with and without 'module.'")
        tensors[plain] = value
    return tensors


def _found(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"found a dictionary of {', '.join(map(repr, list(value)[:6])) or 'nothing'}"
    if isinstance(value, (list, tuple)):
        return f"found a list of {len(value)}"
    return f"found a {type(value).__name__}"
