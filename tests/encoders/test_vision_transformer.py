"""Patch tokens of vision towers, built at random from their configurations."""

from __future__ import annotations

import json

import pytest
import torch

from vse.encoders.backbones import VisionTransformer, create_backbone
from vse.errors import InputError

pytest.importorskip("transformers")

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 24, "patch_size": 8}
ARCHITECTURES = {
    "clip_vision_model": SMALL | {"intermediate_size": 8},
    "siglip_vision_model": SMALL | {"intermediate_size": 8},
    "vit": SMALL | {"intermediate_size": 8},
    "dinov2": SMALL | {"mlp_ratio": 1},
    "dinov2_with_registers": SMALL | {"mlp_ratio": 1, "num_register_tokens": 3},
}
kinds = pytest.mark.parametrize("kind", list(ARCHITECTURES))


def tower(kind: str, seed: int = 0) -> VisionTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = create_backbone("transformers", architecture={"model_type": kind, **ARCHITECTURES[kind]})
    assert isinstance(found, VisionTransformer)
    return found.eval()


def pixels(height: int = 24, width: int = 24) -> torch.Tensor:
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1))


@kinds
@torch.no_grad()
def test_vision_transformer_has_one_cell_per_patch(kind):
    """Patches become cells in their order; CLS and registers are skipped."""
    backbone = tower(kind)
    map_ = backbone.feature_map(pixels())
    assert map_.shape == (2, 16, 3, 3)
    assert backbone.channels == 16
    states = backbone.model(pixel_values=pixels()).last_hidden_state
    extra = {"siglip_vision_model": 0, "dinov2_with_registers": 4}.get(kind, 1)
    assert states.shape[1] == 9 + extra
    torch.testing.assert_close(backbone(pixels()), states[:, extra:])
    torch.testing.assert_close(map_.flatten(2).transpose(1, 2), states[:, extra:])
    assert backbone.grid(24, 24) == (3, 3)


@kinds
@torch.no_grad()
@pytest.mark.parametrize("size", [(32, 32), (16, 40)])
def test_vision_transformer_accepts_other_image_sizes(kind, size):
    """Positions are interpolated, also for images that are not square, and cells keep their rows and columns."""
    height, width = size
    found = tower(kind).feature_map(pixels(height, width))
    assert found.shape == (2, 16, height // 8, width // 8)
    assert found.isfinite().all()


@kinds
@torch.no_grad()
def test_the_described_architecture_builds_the_same_tower(kind):
    """What a model's configuration keeps, as JSON, builds a tower for the same weights, offline."""
    backbone = tower(kind)
    described = json.loads(json.dumps({"architecture": backbone.architecture, "normalise": backbone.normalise}))
    again = create_backbone("transformers", **described).eval()
    again.load_state_dict(backbone.state_dict(), strict=True)
    torch.testing.assert_close(again(pixels()), backbone(pixels()), rtol=0, atol=0)
    assert again.preprocessing() == backbone.preprocessing()
    assert backbone.preprocessing().size == (24, 24)


@torch.no_grad()
def test_a_pretrained_tower_brings_its_preprocessing(tmp_path):
    """Weights, mean and deviation come from the folder of a pretrained tower."""
    original = tower("clip_vision_model")
    original.model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 3]})
    )
    loaded = create_backbone(f"transformers:{tmp_path}").eval()
    torch.testing.assert_close(loaded(pixels()), original(pixels()), rtol=0, atol=0)
    how = loaded.preprocessing(48)
    assert how.size == (48, 48)
    assert how.mean == pytest.approx((25.5, 51, 76.5))
    assert how.std == pytest.approx((255, 510, 765))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "either an architecture or"),
        (
            {"architecture": {"model_type": "bert", "hidden_size": 16, "num_attention_heads": 2}},
            "'bert' is not supported",
        ),
        ({"architecture": {"model_type": "nonsense"}}, "'nonsense' is not supported for a vision transformer"),
        ({"architecture": {}}, "no 'model_type'"),
        ({"patches": 3}, "unexpected keyword argument"),
    ],
)
def test_vision_transformer_refuses_other_models(options, said):
    """A text encoder, an unknown type and no type at all are one line each."""
    with pytest.raises(InputError, match=said) as caught:
        create_backbone("transformers", **options)
    assert "\n" not in str(caught.value)


def test_folder_without_vision_tower_fails_in_one_line(tmp_path):
    """The folder is named."""
    with pytest.raises(InputError, match="no pretrained encoder could be loaded from") as caught:
        create_backbone(f"transformers:{tmp_path}")
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
