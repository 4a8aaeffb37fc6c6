"""Encoders from a configuration: the published sizes, and what is filled in."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vse.errors import InputError
from vse.inputs import imagenet
from vse.models.build import build_image_encoder, build_pooling, build_text_encoder
from vse.models.config import BiGRUConfig, GridConfig, ModelConfig, PoolingConfig, RegionConfig, TransformerConfig

COCO_WORDS, F30K_WORDS = 11_354, 8_482
GPO_PARAMETERS = 12_704


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_region_encoder_has_the_published_size():
    """3,688,352 parameters at the defaults, less a batch norm of 2,048 that the released code makes and never uses."""
    encoder, config = build_image_encoder(RegionConfig(), 1024)
    assert count(encoder) == 3_688_352 - 2_048
    assert config == RegionConfig()


@pytest.mark.parametrize("words", [COCO_WORDS, F30K_WORDS])
def test_the_bigru_encoder_has_the_published_size(words):
    """8,146,944 parameters, 300 more for each word, and a GPO."""
    with torch.device("meta"):
        encoder, _ = build_text_encoder(BiGRUConfig(vocabulary_size=words), 1024)
    assert count(encoder) == 8_146_944 + 300 * words + GPO_PARAMETERS


def test_bert_base_has_the_published_size():
    """bert-base-uncased without its pooler, a linear map from 768 to 1024 and a GPO."""
    pytest.importorskip("transformers")
    with torch.device("meta"):
        encoder, _ = build_text_encoder(TransformerConfig(architecture={"model_type": "bert"}), 1024)
    assert count(encoder) == 108_891_648 + 768 * 1024 + 1024 + GPO_PARAMETERS


def test_build_completes_preprocessing():
    """The complete configuration says how images are prepared; a preprocessing that is given stays."""
    backbone = {"name": "caffe-resnet", "options": {"blocks": [1, 1, 1, 1], "width": 1}}
    _, config = build_image_encoder(GridConfig(backbone=backbone, image_size=96), 8)
    assert config.preprocessing == imagenet(96).to_json()
    own = imagenet(64).to_json() | {"fit": "crop", "crop_ratio": 0.5}
    _, config = build_image_encoder(GridConfig(backbone=backbone, image_size=96, preprocessing=own), 8)
    assert config.preprocessing == own


def test_poolings_that_need_the_width_are_told():
    """``dim`` is filled in, and an option by hand is kept."""
    assert build_pooling(PoolingConfig(name="fspool"), 8)(torch.rand(2, 3, 8)).shape == (2, 8)
    per_dimension = build_pooling(PoolingConfig(name="gpo", options={"per_dimension": True}), 8)
    assert per_dimension.coefficients(3).shape == (3, 8)
    assert build_pooling(PoolingConfig(name="k-max", options={"k": 2}), 8).coefficients(4).tolist() == [0.5, 0.5, 0, 0]


@pytest.mark.parametrize(
    ("pooling", "said"),
    [({"name": "gpoo"}, "unknown pooling 'gpoo'"), ({"name": "gpo", "options": {"k": 3}}, "it takes: ")],
)
def test_an_unknown_pooling_or_option_is_refused(pooling, said):
    """Both name what is known."""
    with pytest.raises(InputError, match=said):
        build_image_encoder(RegionConfig(pooling=PoolingConfig(**pooling)), 8)


def test_a_transformer_needs_a_source():
    """Neither weights nor an architecture: the error says which two there are."""
    with pytest.raises(InputError, match=r"'pretrained'.*'architecture'"):
        build_text_encoder(TransformerConfig(), 8)


def test_misspelt_configuration_key_is_one_line():
    """``embed_dim`` is not a key of ModelConfig: the error says so, with the closest key."""
    with pytest.raises(InputError, match=r"^ModelConfig: unknown key 'embed_dim'.*did you mean 'embed_size'") as caught:
        ModelConfig(embed_dim=8)
    assert "\n" not in str(caught.value)


def test_tower_refuses_pooling_that_returns_pairs():
    """``return_coefficients`` is for modules of one's own; a tower needs one vector of each set."""
    with pytest.raises(InputError, match="leave out return_coefficients"):
        PoolingConfig(name="gpo", options={"return_coefficients": True})
