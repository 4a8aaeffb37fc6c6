"""The released code's ResNet: its layout, which no tensor tells."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.convert.official_style import resnet_state
from tests.encoders import naive

from vse.encoders.backbones import CaffeResNet, create_backbone
from vse.inputs import butd, imagenet


def loaded(state: dict[str, torch.Tensor], blocks: tuple[int, ...] = (1, 1, 1, 1), width: int = 4) -> CaffeResNet:
    backbone = CaffeResNet(blocks, width)
    backbone.load_state_dict(state)
    return backbone.eval()


@given(height=st.integers(1, 90), width=st.integers(1, 90))
@settings(max_examples=15)
def test_caffe_resnet_follows_formula_at_any_size(height, width):
    """Stride on the first 1×1, max-pool rounded up without padding: at every size, also of a few pixels."""
    state = resnet_state()
    pixels = torch.randn(1, 3, height, width, generator=torch.Generator().manual_seed(height * 100 + width))
    try:
        expected = naive.resnet(pixels, state, "caffe")
    except RuntimeError:  # fewer pixels than the max-pool needs
        assert min(height, width) < 4
        return
    with torch.no_grad():
        found = loaded(state).feature_map(pixels)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def test_caffe_resnet_with_several_blocks_per_stage():
    """Deeper stages are the same blocks again."""
    state = resnet_state(blocks=(2, 1, 3, 2))
    pixels = torch.randn(2, 3, 50, 40)
    with torch.no_grad():
        found = loaded(state, (2, 1, 3, 2)).feature_map(pixels)
    torch.testing.assert_close(found.double(), naive.resnet(pixels, state, "caffe"), rtol=1e-4, atol=1e-4)


def test_caffe_and_usual_layout_compute_different_features():
    """The same tensors in the usual layout compute something else: the oracle tells the two apart."""
    state, pixels = resnet_state(), torch.randn(1, 3, 64, 64)
    caffe, usual = (naive.resnet(pixels, state, layout) for layout in ("caffe", "usual"))
    assert caffe.shape == usual.shape
    assert (caffe - usual).norm() / usual.norm() > 0.05


@pytest.mark.parametrize(("name", "parameters"), [("caffe-resnet50", 23_508_032), ("caffe-resnet101", 42_500_160)])
def test_caffe_resnet_depths_have_usual_sizes(name, parameters):
    """ResNet-50 and -101 without classifier have as many parameters as everywhere, and 2048 channels."""
    with torch.device("meta"):
        backbone = create_backbone(name)
    assert backbone.channels == 2048
    assert sum(parameter.numel() for parameter in backbone.parameters()) == parameters


def test_caffe_resnet_has_256_cells_at_512_pixels():
    """The paper's images of 512 × 512 make a grid of 16 × 16."""
    assert CaffeResNet((1, 1, 1, 1), 1).grid(512, 512) == (16, 16)


def test_preprocessing_follows_the_detector():
    """The detector takes BGR minus its means, the others ImageNet's; 512 by default."""
    assert CaffeResNet((1, 1, 1, 1), 1).preprocessing() == imagenet(512)
    assert CaffeResNet((1, 1, 1, 1), 1, detector=True).preprocessing(320) == butd(320)
