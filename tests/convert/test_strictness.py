"""Every tensor of a checkpoint is accounted for, and what the options say must be true."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from tests.convert.official_style import (
    BERT_SIZE,
    PIECES,
    SIZE,
    WORDS,
    bert_state,
    bigru_state,
    grid_state,
    region_state,
    resnet_state,
    write,
)
from tests.convert.support import IMAGES, checkpoint, refused

from vse.convert import load_official

# In each family: one tensor of each part that it cannot do without.
NEEDED = {
    "region": [
        "fc.bias",
        "mlp.layers.1.weight",
        "mlp.bns.0.running_var",
        "gpool.linear.weight",
        "gpool.gru.bias_hh_l0",
    ],
    "grid": ["image_encoder.fc.weight", "image_encoder.fc.bias", "image_encoder.gpool.linear.weight"],
    "bigru": ["rnn.weight_ih_l0_reverse", "rnn.weight_hh_l0", "gpool.gru.weight_ih_l0"],
    "bert": [
        "linear.bias",
        "bert.encoder.layer.1.output.dense.bias",
        "bert.embeddings.LayerNorm.weight",
        "gpool.linear.weight",
    ],
}
PARTS = [(family, name) for family, names in NEEDED.items() for name in names]


@pytest.mark.parametrize(("family", "name"), PARTS)
def test_conversion_names_missing_tensor(family, name, tmp_path):
    """Nothing is left at its random start."""
    path = checkpoint(tmp_path, family, lambda state: state.pop(name))
    refused(path, name.rpartition(".")[2])


@pytest.mark.parametrize(("family", "name"), PARTS)
def test_conversion_refuses_misshapen_tensor(family, name, tmp_path):
    """One row more than there should be."""

    def longer(state):
        tensor = state[name]
        state[name] = torch.cat([tensor, tensor[:1]])

    refused(checkpoint(tmp_path, family, longer))


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("region", "extra.weight"),
        ("region", "fc.scale"),
        ("region", "mlp.layers.2.weight"),
        ("region", "mlp.bns.10.weight"),
        ("region", "gpool.gru.weight_ih_l1"),
        ("grid", "image_encoder.mlp.weight"),
        ("grid", "backbone.classifier.weight"),
        ("grid", "backbone.base.2.weight"),
        ("grid", "backbone.resnet.layer5.0.conv1.weight"),
        ("grid", "backbone.resnet.layer1.0.conv9.weight"),
        ("grid", "fc.weight"),
        ("bigru", "linear.weight"),
        ("bigru", "rnn.weight_ih_l1"),
        ("bigru", "embed.bias"),
        ("bert", "bert.encoder.layer.0.extra.weight"),
        ("bert", "bert.embeddings.positions"),
        ("bert", "rnn.weight_ih_l0"),
    ],
)
def test_conversion_names_unknown_tensor(family, name, tmp_path):
    """A tensor that no part of the model takes is not dropped in silence."""
    path = checkpoint(tmp_path, family, lambda state: state.__setitem__(name, torch.zeros(2, 2)))
    refused(path, name.rpartition(".")[2])


@pytest.mark.parametrize("missing", ["layer2.0.conv2.weight", "layer4.0.bn3.weight", "conv1.weight", "bn1.bias"])
def test_conversion_refuses_incomplete_backbone(missing, tmp_path):
    """A tensor that is in neither copy is missing, wherever in the network it stands."""

    def without(state):
        resnet = {k: v for k, v in resnet_state().items() if k != missing}
        for name in [name for name in state if name.startswith("backbone.")]:
            del state[name]
        state |= {k: v for k, v in grid_state(resnet).items() if k.startswith("backbone.")}

    refused(checkpoint(tmp_path, "grid", without))


def test_conversion_refuses_differing_backbone_copies(tmp_path):
    """The second copy of the backbone is compared, not ignored."""

    def spoil(state):
        state["backbone.base.5.0.conv1.weight"] = state["backbone.base.5.0.conv1.weight"] + 1e-3

    refused(checkpoint(tmp_path, "grid", spoil), "base.5.0.conv1.weight", "layer2.0.conv1.weight", "differ")


def test_conversion_accepts_one_backbone_copy(tmp_path):
    """Either copy of the backbone alone makes the same model."""
    prints = set()
    for dropped in ("nothing", "backbone.base.", "backbone.resnet."):
        state = {k: v for k, v in grid_state(resnet_state()).items() if not k.startswith(dropped)}
        prints.add(load_official(write(tmp_path / "a.pth", state, bigru_state())).fingerprint())
    assert len(prints) == 1


@pytest.mark.parametrize("image", ["region", "grid"])
@pytest.mark.parametrize("halves", [(True, True), (True, False), (False, True)])
def test_module_prefix_is_stripped(image, halves, tmp_path):
    """``module.`` before the names of either half or both changes nothing."""
    states = [IMAGES[image](), bigru_state()]
    expected = load_official(write(tmp_path / "a.pth", *states))
    prefixed = [
        {f"module.{k}": v for k, v in state.items()} if wrapped else state
        for state, wrapped in zip(states, halves, strict=True)
    ]
    assert load_official(write(tmp_path / "b.pth", *prefixed)).fingerprint() == expected.fingerprint()


def test_tensor_with_and_without_prefix_is_refused(tmp_path):
    """Of two tensors for one place none is preferred."""
    path = checkpoint(tmp_path, "region", lambda s: s.__setitem__("module.fc.bias", s["fc.bias"] + 1))
    refused(path, "'fc.bias'", "twice")


@pytest.mark.parametrize(
    ("family", "unused"),
    [
        ("region", "mlp.bns.1."),
        ("grid", "backbone.resnet.fc."),
        ("bert", "bert.embeddings.position_ids"),
        ("bert", "bert.pooler."),
    ],
)
def test_conversion_ignores_known_unused_tensors(family, unused, tmp_path):
    """The model is the same with these tensors, without them, and with others in their place."""

    def drop(state):
        for name in [name for name in state if name.startswith(unused)]:
            del state[name]

    def change(state):
        for name in [name for name in state if name.startswith(unused)]:
            state[name] = torch.zeros(1)

    made = [load_official(checkpoint(tmp_path, family, how)) for how in (lambda state: None, drop, change)]
    assert len({model.fingerprint() for model in made}) == 1
    assert not any(unused.rstrip(".") in name for model in made for name in model.state_dict())


@pytest.mark.parametrize(
    ("option", "value", "actual"),
    [("embed_size", 1024, SIZE), ("vocab_size", 99, WORDS), ("word_dim", 300, 7), ("img_dim", 2048, 10)],
)
def test_options_must_agree_with_tensors(option, value, actual, tmp_path):
    """Both figures are named; the true one is accepted."""
    refused(
        write(tmp_path / "a.pth", region_state(), bigru_state(), **{option: value}), f"{option}={value}", str(actual)
    )
    load_official(write(tmp_path / "b.pth", region_state(), bigru_state(), **{option: actual}))


@pytest.mark.parametrize("option", ["no_imgnorm", "no_txtnorm"])
def test_conversion_refuses_embeddings_without_unit_norm(option, tmp_path):
    """Cosine would not be the score that the model was trained for."""
    refused(write(tmp_path / "a.pth", region_state(), bigru_state(), **{option: True}), option)


def test_towers_of_different_sizes_are_refused(tmp_path):
    """An image vector and a text vector must have as many dimensions."""
    refused(write(tmp_path / "a.pth", region_state(size=SIZE), bigru_state(size=SIZE + 2)), str(SIZE), str(SIZE + 2))


@pytest.mark.parametrize("source", ["imagnet", "", "resnet101", None, "imagenet_res34"])
def test_unknown_backbone_source_is_refused(source, tmp_path):
    """The layout is never guessed: the known names are listed."""
    path = write(tmp_path / "a.pth", grid_state(resnet_state()), bigru_state(), backbone_source=source)
    refused(path, "backbone_source", "'imagenet_res152'")


def test_grid_checkpoint_without_backbone_source_is_refused(tmp_path):
    """Old or foreign checkpoints that do not say where the backbone comes from."""
    content = {"model": [grid_state(resnet_state()), bigru_state()]}
    torch.save(content, tmp_path / "a.pth")
    refused(tmp_path / "a.pth", "backbone_source")


@pytest.mark.parametrize("scale", ["large", None, 0, -1, float("nan"), float("inf")])
def test_invalid_input_scale_is_refused(scale, tmp_path):
    """A size of the image cannot be made of it."""
    path = write(tmp_path / "a.pth", grid_state(resnet_state()), bigru_state(), input_scale_factor=scale)
    refused(path, "input_scale_factor")


def test_unsupported_resnet_is_refused(tmp_path):
    """Basic blocks, as in ResNet-18, have no third convolution."""
    resnet = {k: v for k, v in resnet_state().items() if "conv3" not in k and "bn3" not in k}
    state = {f"backbone.resnet.{k}": v for k, v in resnet.items()}
    state |= {k: v for k, v in grid_state(resnet_state()).items() if k.startswith("image_encoder.")}
    refused(write(tmp_path / "a.pth", state, bigru_state()), "layer1.0.bn3")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_converted_weights_become_float32(dtype, tmp_path):
    """Checkpoints that were shrunk, or computed in double, load as float32."""
    states = [
        {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}
        for state in (grid_state(resnet_state()), bigru_state())
    ]
    model = load_official(write(tmp_path / "a.pth", *states))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    expected = states[1]["embed.weight"].float()
    assert torch.equal(model.text_encoder.embed.weight, expected)


def test_bert_architecture_comes_from_tensors(tmp_path):
    """Width, depth, vocabulary and positions come from the tensors; the heads are 64 wide as in all of BERT's kin."""
    pytest.importorskip("transformers")
    model = load_official(write(tmp_path / "a.pth", region_state(), bert_state(layers=2)))
    config = model.text_encoder.transformer.config
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (PIECES, BERT_SIZE, 2)
    assert (config.num_attention_heads, config.max_position_embeddings) == (2, 20)


def test_converted_model_owns_its_tensors(tmp_path):
    """Messages aside, nothing of the file is kept open: it can be deleted, and loading again gives the same."""
    path = write(tmp_path / "a.pth", region_state(), bigru_state())
    first = load_official(path)
    mark = first.fingerprint()
    path.unlink()
    assert first.fingerprint() == mark
    assert re.fullmatch(r"[0-9a-f]{16}", mark)
    assert np.isfinite(first.encode_images([np.ones((2, 10), np.float32)])).all()
