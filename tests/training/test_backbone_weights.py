"""Weights of a backbone from a file: taken whole under the usual names, refused in one line, never run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.training.support import tiny_recipe, write_pairs
from tests.training.support_build import backbone_of, built, grid_recipe, one_line, write_photographs

from vse.errors import InputError
from vse.models.vse_model import VSEModel


@pytest.fixture
def regions(tmp_path) -> Path:
    return write_pairs(tmp_path / "regions", train=8, dev=4)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    return write_photographs(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def weights(pictures) -> dict[str, torch.Tensor]:
    """Those of a backbone of another seed, statistics included."""
    generator = torch.Generator().manual_seed(9)
    state = backbone_of(built(grid_recipe(pictures, seed=8))).state_dict()
    return {
        name: value + torch.rand(value.shape, generator=generator) if value.is_floating_point() else value
        for name, value in state.items()
    }


def with_weights(pictures: Path, source: Path) -> VSEModel:
    return built(grid_recipe(pictures, model={"backbone_weights": str(source)}))


def check_loaded(model: VSEModel, weights: dict[str, torch.Tensor]) -> None:
    found = backbone_of(model).state_dict()
    assert found.keys() == weights.keys()
    for name, value in weights.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "resnet.", "backbone.resnet.", "model."])
def test_weights_under_the_usual_prefixes(pictures, weights, tmp_path, prefix):
    """The same tensors from a .safetensors file and from one of torch; the rest of the model is as without them."""
    state = {prefix + name: value.contiguous() for name, value in weights.items()}
    save_file(state, tmp_path / "weights.safetensors")
    torch.save(state, tmp_path / "weights.pth")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "checkpoint.pth")
    plain = built(grid_recipe(pictures)).state_dict()
    for file in ("weights.safetensors", "weights.pth", "checkpoint.pth"):
        model = with_weights(pictures, tmp_path / file)
        check_loaded(model, weights)
        for name, value in model.state_dict().items():
            if "backbone." not in name:
                assert torch.equal(value, plain[name]), name


@pytest.mark.parametrize("prefix", ["", "backbone."])
def test_a_classifier_is_left_out(pictures, weights, tmp_path, prefix):
    """Published networks end in one, which a grid has no use for."""
    classifier = {"fc.weight": torch.zeros(10, 64), "fc.bias": torch.zeros(10)}
    torch.save({prefix + name: value for name, value in (weights | classifier).items()}, tmp_path / "weights.pth")
    check_loaded(with_weights(pictures, tmp_path / "weights.pth"), weights)


def two_parts(weights: dict[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    """The form of the authors' ``original_updown_backbone.pth``: stages by their place, in two parts."""
    places = {"conv1": "0", "bn1": "1", "layer1": "4", "layer2": "5", "layer3": "6", "layer4": "0"}
    parts: dict[str, dict[str, torch.Tensor]] = {"base": {}, "top": {}}
    for name, value in weights.items():
        stage, _, rest = name.partition(".")
        parts["top" if stage == "layer4" else "base"][f"{places[stage]}.{rest}"] = value
    return parts


def test_backbone_of_the_authors_detector_in_two_parts(pictures, weights, tmp_path):
    """``{"base", "top"}`` gives every tensor its usual name; an unknown one or a part without tensors is refused."""
    torch.save(two_parts(weights), tmp_path / "original_updown_backbone.pth")
    check_loaded(with_weights(pictures, tmp_path / "original_updown_backbone.pth"), weights)
    strange = two_parts(weights)
    strange["base"]["9.weight"] = torch.zeros(1)
    torch.save(strange, tmp_path / "strange.pth")
    torch.save({"base": two_parts(weights)["base"], "top": 3}, tmp_path / "empty.pth")
    short = two_parts(weights)
    del short["top"]["0.0.conv1.weight"]
    torch.save(short, tmp_path / "short.pth")
    for file, said in (
        ("strange", r"unknown tensor '9\.weight'"),
        ("empty", "'top' must hold"),
        ("short", "1 missing"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            with_weights(pictures, tmp_path / f"{file}.pth")
        one_line(caught)


@pytest.mark.parametrize("as_parts", [False, True])
def test_weights_without_counters_of_batches(pictures, weights, tmp_path, as_parts):
    """Files of torch before 0.4.1 lack ``num_batches_tracked``: the backbone keeps its own, and lacks nothing else."""
    old = {name: value for name, value in weights.items() if not name.endswith("num_batches_tracked")}
    assert len(old) < len(weights)
    torch.save(two_parts(old) if as_parts else old, tmp_path / "old.pth")
    check_loaded(with_weights(pictures, tmp_path / "old.pth"), weights)
    short = {name: value for name, value in old.items() if name != "bn1.running_var"}
    torch.save(two_parts(short) if as_parts else short, tmp_path / "short.pth")
    with pytest.raises(InputError, match=r"1 missing \(bn1\.running_var\)"):
        with_weights(pictures, tmp_path / "short.pth")


def test_weights_that_do_not_fit_are_refused(pictures, weights, tmp_path):
    """A tensor that is missing, one too many, one of another shape, a file that is not there: named in one line."""
    path = tmp_path / "weights.safetensors"
    name = "layer2.0.conv1.weight"
    cases = {
        "1 missing": {key: value for key, value in weights.items() if key != name},
        "1 not expected (layer9.weight)": weights | {"layer9.weight": torch.zeros(3)},
        "1 of another shape": weights | {name: torch.zeros(1, 2)},
    }
    for message, state in cases.items():
        save_file({key: value.contiguous() for key, value in state.items()}, path)
        with pytest.raises(InputError) as error:
            with_weights(pictures, path)
        assert message in one_line(error)
        assert str(path) in one_line(error)
    for missing in ("nowhere.safetensors", "nowhere.pth"):
        with pytest.raises(InputError, match="no such file"):
            with_weights(pictures, tmp_path / missing)


class Malicious:
    """Unpickling it would write a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def test_a_malicious_file_is_refused_and_not_run(pictures, weights, tmp_path):
    """A pickle is a program; this one is not executed, with or without tensors around it."""
    target = tmp_path / "ran"
    torch.save(weights | {"extra": Malicious(target)}, tmp_path / "mixed.pth")
    (tmp_path / "bare.pth").write_bytes(pickle.dumps(Malicious(target), protocol=2))
    (tmp_path / "named.safetensors").write_bytes(pickle.dumps(Malicious(target), protocol=2))
    for name in ("mixed.pth", "bare.pth", "named.safetensors"):
        with pytest.raises(InputError) as error:
            with_weights(pictures, tmp_path / name)
        assert name in one_line(error)
        assert not target.exists()
    pickle.loads((tmp_path / "bare.pth").read_bytes())
    assert target.exists()  # it would have been


def test_a_region_model_has_no_backbone(regions, tmp_path):
    """The key is named."""
    recipe = tiny_recipe(regions, model={"backbone_weights": str(tmp_path / "x.pth")})
    with pytest.raises(InputError, match=r"model\.backbone_weights: a region model has no image backbone"):
        built(recipe)


def test_a_model_to_start_from_gives_all_weights(pictures, tmp_path):
    """Both towers are those of the other model, of another seed here; no published weights are asked for."""
    other = built(grid_recipe(pictures, seed=8))
    other.save(tmp_path / "other")
    found = built(grid_recipe(pictures, model={"start": str(tmp_path / "other"), "pretrained": True}))
    expected = other.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in found.state_dict().items())


def test_a_model_of_another_shape_is_no_start(pictures, tmp_path):
    """One line names what does not fit."""
    built(grid_recipe(pictures)).save(tmp_path / "other")
    with pytest.raises(InputError, match=r"model\.start .*of another shape") as error:
        built(grid_recipe(pictures, model={"start": str(tmp_path / "other"), "embed_size": 24}))
    one_line(error)
