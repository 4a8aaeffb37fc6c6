"""Learning rates by part of the model, and an optimizer that resumes exactly from its saved tensors."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load, save
from tests.support_models import bert_config, bigru_config, build, grid_config, region_config

from vse.errors import InputError
from vse.models.config import PoolingConfig
from vse.training.optimizer import (
    create_optimizer,
    gpo_parameters,
    load_optimizer_tensors,
    optimizer_tensors,
    set_rate,
    trained_parameters,
)
from vse.training.recipe import OptimizerRecipe

IMAGES = {"region": region_config, "grid": grid_config}
TEXTS = {"bigru": bigru_config, "transformer": bert_config}
RECIPE = OptimizerRecipe(lr=0.5, backbone_factor=0.01, transformer_factor=0.1, weight_decay=0.03)


def rates(optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]) -> dict[str, float]:
    by_tensor = {id(value): group["lr"] for group in optimizer.param_groups for value in group["params"]}
    assert len(by_tensor) == sum(len(group["params"]) for group in optimizer.param_groups)
    return {name: by_tensor[id(value)] for name, value in parameters.items()}


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("backbone", [True, False])
def test_every_parameter_has_the_rate_of_its_part(image, text, backbone):
    """The image backbone and the transformer have their factors, all else the full rate, each parameter once."""
    model = build(IMAGES[image](), TEXTS[text]())
    parameters = trained_parameters(model, backbone=backbone)
    everything = dict(model.named_parameters())
    assert parameters == {n: v for n, v in everything.items() if backbone or "image_encoder.backbone." not in n}
    optimizer = create_optimizer(parameters, RECIPE)
    found = rates(optimizer, parameters)
    for name, rate in found.items():
        part = 0.01 if ".backbone." in name else 0.1 if ".transformer." in name else 1.0
        assert rate == pytest.approx(0.5 * part), name
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.03}
    assert len(optimizer.param_groups) == 1 + (image == "grid" and backbone) + (text == "transformer")
    assert all(group["params"] for group in optimizer.param_groups)


@pytest.mark.parametrize("text", TEXTS)
def test_gpo_has_its_own_rate_and_no_decay(text):
    """The GPOs of both sides are one group, and nothing else is in it."""
    model = build(region_config(), TEXTS[text]())
    parameters = trained_parameters(model, backbone=False)
    faster, decays = faster_parameters(model, parameters)
    assert faster == {name for name in parameters if "pooling." in name}
    assert {name.split(".")[0] for name in faster} == {"image_encoder", "text_encoder"}
    assert decays[:2] == [0.0, 0.03]


@pytest.mark.parametrize("pooling", ["seq2seq", "gcn-avg", "self-attention", "fspool", "gem"])
def test_other_learned_poolings_have_the_rate_of_the_rest(pooling):
    """The factor is GPO's alone: beside it another pooling keeps the full rate and its weight decay."""
    model = build(region_config(pooling=PoolingConfig(name=pooling)), bigru_config())
    parameters = trained_parameters(model, backbone=False)
    faster, decays = faster_parameters(model, parameters)
    assert {name for name in parameters if name.startswith("image_encoder.pooling.")}
    assert faster == {name for name in parameters if name.startswith("text_encoder.pooling.")}
    assert decays == [0.0, 0.03]


def faster_parameters(model, parameters):
    """The names with ten times the rate, and the weight decay of each group in order."""
    recipe = RECIPE.model_copy(update={"pooling_factor": 10.0})
    optimizer = create_optimizer(parameters, recipe, gpo=gpo_parameters(model))
    faster = {name for name, rate in rates(optimizer, parameters).items() if rate == pytest.approx(5.0)}
    return faster, sorted(group["weight_decay"] for group in optimizer.param_groups)


def test_of_a_backbone_only_the_named_parts_are_trained():
    """The parts by the beginnings of their names, and all that is no backbone; one that does not exist is refused."""
    model = build(grid_config(), bert_config())
    found = trained_parameters(model, backbone=True, parts=("layer4",))
    inside = {name.removeprefix("image_encoder.backbone.") for name in found if ".backbone." in name}
    assert inside
    assert all(name.startswith("layer4") for name in inside)
    rest = {name for name, _ in model.named_parameters() if ".backbone." not in name}
    assert rest < set(found)
    with pytest.raises(InputError, match=r"nothing in the image backbone begins with 'layer9'"):
        trained_parameters(model, backbone=True, parts=("layer9",))


def test_the_schedule_multiplies_the_full_rate():
    """Factors do not pile up from step to step."""
    parameters = trained_parameters(build(grid_config(), bert_config()), backbone=True)
    optimizer = create_optimizer(parameters, RECIPE)
    full = rates(optimizer, parameters)
    for factor in (0.5, 0.1, 1.0, 0.25):
        set_rate(optimizer, factor)
        assert rates(optimizer, parameters) == pytest.approx({name: factor * rate for name, rate in full.items()})


def network(seed: int = 0) -> dict[str, torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    names = ("image_encoder.backbone.weight", "text_encoder.transformer.weight", "head|odd", "bias")
    shapes = ((3, 4), (4,), (2, 2), ())
    return {
        name: torch.nn.Parameter(torch.randn(shape, generator=generator))
        for name, shape in zip(names, shapes, strict=True)
    }


def train(parameters: dict, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        set_rate(optimizer, 1 / (1 + step))
        generator = torch.Generator().manual_seed(step)
        for name, value in parameters.items():
            frozen = step < 2 and name == "image_encoder.backbone.weight"
            value.grad = None if frozen else torch.randn(value.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_an_interrupted_optimiser_goes_on_to_the_bit(name, stop):
    """Stop, save as safetensors, load into a new one, go on: weights and memory equal an uninterrupted run's.

    One parameter has no gradient at first, as a frozen backbone, and therefore no memory when the run stops early.
    """
    recipe = OptimizerRecipe(name=name, lr=0.1, weight_decay=0.1)
    whole = network()
    straight = create_optimizer(whole, recipe)
    train(whole, straight, range(6))
    begun = network()
    first = create_optimizer(begun, recipe)
    train(begun, first, range(stop))
    stored = load(save({key: value.contiguous() for key, value in optimizer_tensors(first, begun).items()}))
    continued = {key: torch.nn.Parameter(value.detach().clone()) for key, value in begun.items()}
    second = create_optimizer(continued, recipe)
    load_optimizer_tensors(second, continued, stored)
    train(continued, second, range(stop, 6))
    for key in whole:
        assert torch.equal(continued[key], whole[key]), key
    expected, found = optimizer_tensors(straight, whole), optimizer_tensors(second, continued)
    assert found.keys() == expected.keys()
    assert len(found) == 3 * len(whole)
    for key, value in expected.items():
        assert found[key].dtype == value.dtype, key
        assert torch.equal(found[key], value), key


def test_loading_replaces_what_was_there_and_copies():
    """Old memory goes, and the tensors that were handed in are not trained on."""
    recipe = OptimizerRecipe(lr=0.1)
    parameters = network()
    optimizer = create_optimizer(parameters, recipe)
    train(parameters, optimizer, range(3))
    stored = {key: value.clone() for key, value in optimizer_tensors(optimizer, parameters).items()}
    kept = {key: value.clone() for key, value in stored.items()}
    load_optimizer_tensors(optimizer, parameters, stored)
    train(parameters, optimizer, range(3, 5))
    assert all(torch.equal(stored[key], kept[key]) for key in kept)
    load_optimizer_tensors(optimizer, parameters, {})
    assert optimizer_tensors(optimizer, parameters) == {}


def naive_adam(value: float, gradients: list[float], *, lr: float, decay: float, decoupled: bool) -> float:
    first = second = 0.0
    for step, gradient in enumerate(gradients, 1):
        pull = gradient + (0 if decoupled else decay * value)
        value -= lr * decay * value if decoupled else 0
        first = 0.9 * first + 0.1 * pull
        second = 0.999 * second + 0.001 * pull**2
        value -= lr * (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)) ** 0.5 + 1e-8)
    return value


@pytest.mark.parametrize(("name", "decoupled"), [("adam", False), ("adamw", True)])
def test_adam_and_adamw_by_hand(name, decoupled):
    """Decay within the gradient, or beside it."""
    parameter = torch.nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    optimizer = create_optimizer({"weight": parameter}, OptimizerRecipe(name=name, lr=0.1, weight_decay=0.5))
    gradients = [0.3, -1.0, 0.2, 5.0]
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
    expected = naive_adam(2.0, gradients, lr=0.1, decay=0.5, decoupled=decoupled)
    assert parameter.item() == pytest.approx(expected, rel=1e-9)
