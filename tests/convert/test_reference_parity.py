"""Checkpoints made of the released implementation's own tensors give its own embeddings."""

from __future__ import annotations

import pytest
import torch
from tests.convert.official_style import bert_state, bigru_state, grid_state, region_state, resnet_state, write
from tests.encoders import naive

from vse.convert import load_official
from vse.inputs import butd

safetensors = pytest.importorskip("safetensors.torch")
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def numbers(shared_reference):
    names = ("region_encoder", "bigru_encoder", "bert_head", "caffe_resnet")
    return {name: safetensors.load_file(shared_reference / f"{name}.safetensors") for name in names}


def state_of(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return naive.part(tensors, "state.")


@torch.no_grad()
def test_converted_file_matches_released_outputs(shared_reference, numbers):
    """The file in the released format: both halves, one with ``module.`` before its names."""
    model = load_official(shared_reference / "official_style_checkpoint.pth")
    region, bigru = numbers["region_encoder"], numbers["bigru_encoder"]
    found = model.image_encoder(region["features"], lengths=region["lengths"])
    torch.testing.assert_close(found, region["embedding"], **CLOSE)
    found = model.text_encoder(bigru["tokens"], lengths=bigru["lengths"])
    torch.testing.assert_close(found, bigru["embedding"], **CLOSE)
    config = model.config
    assert (config.embed_size, config.image.feature_size, config.image.hidden_size) == (48, 96, 24)
    assert (config.text.vocabulary_size, config.text.word_size) == (57, 30)
    assert config.about.scores[0].values == {"rsum": 123.4}


@torch.no_grad()
def test_converted_grid_and_bigru_match_released_outputs(numbers, tmp_path):
    """The released ResNet's own feature map, projected and pooled by hand, is what the grid encoder gives."""
    resnet, bigru = numbers["caffe_resnet"], numbers["bigru_encoder"]
    state = grid_state(state_of(resnet), size=48)
    state |= {f"image_encoder.gpool.{k}": v for k, v in naive.part(numbers["region_encoder"], "state.gpool.").items()}
    path = write(tmp_path / "a.pth", state, state_of(bigru), backbone_source="detector_x", input_scale_factor=1)
    model = load_official(path)
    assert model.preprocessing == butd(256)
    torch.testing.assert_close(model.image_encoder.backbone.feature_map(resnet["pixels"]), resnet["features"], **CLOSE)
    expected = torch.stack([naive.grid(cells, state) for cells in resnet["features"]])
    torch.testing.assert_close(model.image_encoder(resnet["pixels"]).double(), expected, **CLOSE)
    found = model.text_encoder(bigru["tokens"], lengths=bigru["lengths"])
    torch.testing.assert_close(found, bigru["embedding"], **CLOSE)


@pytest.mark.parametrize("image", ["region", "grid"])
@torch.no_grad()
def test_converted_bert_matches_released_outputs(image, numbers, tmp_path):
    """BERT of the published width with the released head: its own states by hand, its own pooling by the numbers."""
    pytest.importorskip("transformers")
    head, region = numbers["bert_head"], numbers["region_encoder"]
    text = bert_state(hidden=768, layers=1) | state_of(head)
    if image == "region":
        path = write(tmp_path / "a.pth", state_of(region), text)
    else:
        path = write(tmp_path / "a.pth", grid_state(state_of(numbers["caffe_resnet"]), size=48), text)
    model = load_official(path)
    tokens = torch.tensor([[2, 9, 4, 21, 3], [2, 8, 3, 0, 0]])
    expected = torch.stack([naive.bert(row[:n], text) for row, n in zip(tokens, (5, 3), strict=True)])
    torch.testing.assert_close(model.text_encoder(tokens, lengths=[5, 3]).double(), expected, **CLOSE)
    projected = model.text_encoder.project(head["hidden"])
    pooled = model.text_encoder.pooling(projected, lengths=head["lengths"])
    torch.testing.assert_close(pooled / pooled.norm(dim=1, keepdim=True), head["embedding"], **CLOSE)
    if image == "region":
        found = model.image_encoder(region["features"], lengths=region["lengths"])
        torch.testing.assert_close(found, region["embedding"], **CLOSE)


@torch.no_grad()
def test_the_naive_versions_agree_with_the_released_one(numbers):
    """The oracles of these tests are themselves held to the released numbers."""
    region, bigru, resnet = (numbers[name] for name in ("region_encoder", "bigru_encoder", "caffe_resnet"))
    for rows, length, expected in zip(region["features"], region["lengths"], region["embedding"], strict=True):
        torch.testing.assert_close(naive.region(rows[:length], state_of(region)).float(), expected, **CLOSE)
    for row, length, expected in zip(bigru["tokens"], bigru["lengths"], bigru["embedding"], strict=True):
        torch.testing.assert_close(naive.bigru(row[:length], state_of(bigru)).float(), expected, **CLOSE)
    found = naive.resnet(resnet["pixels"], state_of(resnet), "caffe")
    torch.testing.assert_close(found.float(), resnet["features"], **CLOSE)


def test_hand_made_checkpoints_have_the_released_names(numbers):
    """What the other tests put together has exactly the names of the released file."""
    assert region_state().keys() == state_of(numbers["region_encoder"]).keys()
    assert bigru_state().keys() == state_of(numbers["bigru_encoder"]).keys()
    assert resnet_state(blocks=(2, 1, 2, 1)).keys() == state_of(numbers["caffe_resnet"]).keys()
