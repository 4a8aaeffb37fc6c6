"""Checkpoints of other programs: one line that says what was expected and what was found."""

from __future__ import annotations

import pytest
import torch
from tests.convert.official_style import SIZE, bigru_state, region_state, resnet_state, write
from tests.convert.support import checkpoint, refused

from vse.convert import load_official


def test_converting_plain_state_dict_is_refused(tmp_path):
    """As torchvision publishes them."""
    torch.save(resnet_state(), tmp_path / "a.pth")
    refused(tmp_path / "a.pth", "not a checkpoint of the released code", "'conv1.weight'", '"model"')


def test_converting_state_dict_under_model_is_refused(tmp_path):
    """One network where two are expected."""
    torch.save({"model": resnet_state(), "epoch": 3}, tmp_path / "a.pth")
    refused(tmp_path / "a.pth", "[image tensors, text tensors]")


@pytest.mark.parametrize("content", [torch.zeros(3), [1, 2], "text", 3, None, {}, {"model": [{}, {}, {}]}])
def test_torch_files_that_are_no_checkpoint_are_refused(content, tmp_path):
    """Tensors, lists and numbers are saved with torch too."""
    torch.save(content, tmp_path / "a.pth")
    refused(tmp_path / "a.pth")


def test_converting_other_networks_is_refused(tmp_path):
    """Two state dicts that are no encoders of ours, image and text by turns."""
    other = {"blocks.0.attn.qkv.weight": torch.zeros(3, 3)}
    refused(write(tmp_path / "a.pth", other, bigru_state()), "image half", "blocks.0.attn.qkv.weight")
    refused(write(tmp_path / "b.pth", region_state(), other), "text half", "blocks.0.attn.qkv.weight")
    refused(write(tmp_path / "c.pth", {}, bigru_state()), "image half")


@pytest.mark.parametrize("family", ["region", "bigru"])
def test_converting_model_without_gpo_is_refused(family, tmp_path):
    """VSE++ has the same names but no GPO."""

    def plain(state):
        for name in [name for name in state if name.startswith("gpool.")]:
            del state[name]

    refused(checkpoint(tmp_path, family, plain), "gpool")


def test_checkpoint_values_must_be_tensors(tmp_path):
    """A number among the tensors is named with its type."""
    path = checkpoint(tmp_path, "region", lambda state: state.__setitem__("fc.bias", 3.0))
    refused(path, "'fc.bias'", "float")


def test_checkpoint_options_must_be_a_mapping(tmp_path):
    """``opt`` may be a namespace, a dictionary or absent; a number it is not."""
    entries = {"opt": {"embed_size": SIZE, "no_imgnorm": False}}
    load_official(write(tmp_path / "a.pth", region_state(), bigru_state(), entries=entries))
    refused(write(tmp_path / "b.pth", region_state(), bigru_state(), entries={"opt": 3}), '"opt"')
