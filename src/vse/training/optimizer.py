"""The optimizer of a model: parameter groups with their learning rates, and its state by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vse.errors import InputError
from vse.pooling import GPO
from vse.training.recipe import OptimizerRecipe

BACKBONE = "image_encoder.backbone."
TRANSFORMER = "text_encoder.transformer."


def trained_parameters(model: nn.Module, *, backbone: bool, parts: Sequence[str] = ()) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name.

    Args:
        model: the model.
        backbone: whether the image backbone is trained; stored features replace it.
        parts: prefixes of names in the backbone; if there are any, only these parts of it are trained.

    Raises:
        InputError: a prefix matches nothing.
    """
    named = dict(model.named_parameters())
    for part in parts if backbone else ():
        if not any(name.startswith(BACKBONE + part) for name in named):
            raise InputError(f"optimizer.backbone_parts: nothing in the image backbone begins with {part!r}")
    chosen = tuple(BACKBONE + part for part in parts) or (BACKBONE,)
    return {
        name: value
        for name, value in named.items()
        if not name.startswith(BACKBONE) or (backbone and name.startswith(chosen))
    }


def gpo_parameters(model: nn.Module) -> frozenset[str]:
    """Return the names of the parameters of every GPO; those of other learned poolings are not among them."""
    return frozenset(
        f"{name}.{inner}".removeprefix(".")
        for name, module in model.named_modules()
        if isinstance(module, GPO)
        for inner, _ in module.named_parameters()
    )


def create_optimizer(
    parameters: Mapping[str, nn.Parameter], recipe: OptimizerRecipe, *, gpo: Collection[str] = ()
) -> torch.optim.Optimizer:
    """Create an optimizer with a group for each learning rate: image backbone, pretrained transformer, the rest.

    The parameters named in ``gpo`` have a group of their own if ``pooling_factor`` is not 1; it has no weight decay.
    Each group keeps its full rate as ``full_lr``, which the schedule multiplies.
    """
    factors = {"backbone": recipe.backbone_factor, "transformer": recipe.transformer_factor, "rest": 1.0}
    own: Collection[str] = ()
    if recipe.pooling_factor != 1:
        own, factors["pooling"] = gpo, recipe.pooling_factor
    groups: list[dict[str, Any]] = []
    for part, factor in factors.items():
        members = [value for name, value in parameters.items() if _part(name, own) == part]
        if members:
            rate = recipe.lr * factor
            decay = {"weight_decay": 0.0} if part == "pooling" else {}
            groups.append({"params": members, "lr": rate, "full_lr": rate, **decay})
    kind = torch.optim.AdamW if recipe.name == "adamw" else torch.optim.Adam
    return kind(groups, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the rate of every group to ``factor`` times its full rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["full_lr"] * factor


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return the state of the optimizer as ``{parameter}|{what}`` → tensor."""
    return {
        f"{name}|{what}": value
        for name, parameter in parameters.items()
        for what, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], tensors: Mapping[str, Tensor]
) -> None:
    """Restore what :func:`optimizer_tensors` returned."""
    optimizer.state.clear()
    for key, value in tensors.items():
        name, _, what = key.rpartition("|")
        parameter = parameters[name]
        # Not load_state_dict: it casts the step counters to the type of the parameters.
        optimizer.state[parameter][what] = value.to(parameter.device).clone()


def _part(name: str, gpo: Collection[str]) -> str:
    if name in gpo:
        return "pooling"
    if name.startswith(BACKBONE):
        return "backbone"
    return "transformer" if name.startswith(TRANSFORMER) else "rest"
