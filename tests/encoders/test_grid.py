"""Images as the cells of a backbone: frozen statistics, trained parameters, cells instead of pixels."""

from __future__ import annotations

import pytest
import torch
from tests.convert.official_style import SIZE
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vse.encoders import GridEncoder, create_backbone
from vse.encoders.backbones import Backbone
from vse.encoders.image import HEADS, create_projection
from vse.errors import InputError
from vse.pooling import GPO

heads = pytest.mark.parametrize("head", HEADS)


def encoder(head: str = "linear", seed: int = 0) -> GridEncoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone = create_backbone("caffe-resnet", blocks=(1, 1, 1, 1), width=2)
        return GridEncoder(backbone, create_projection(head, backbone.channels, SIZE, 6), GPO()).eval()


def pixels(batch: int = 2, height: int = 70, width: int = 50) -> torch.Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(0))


def batch_norms(module: nn.Module) -> dict[str, _BatchNorm]:
    return {name: part for name, part in module.named_modules() if isinstance(part, _BatchNorm)}


def assert_frozen(model: GridEncoder) -> None:
    assert not any(norm.training for norm in batch_norms(model.backbone).values())


def test_grid_encoder_returns_unit_vectors_for_any_image():
    """Images of any shape become unit vectors."""
    for height, width in ((64, 64), (70, 50), (33, 97)):
        vectors = encoder()(pixels(3, height, width))
        assert vectors.shape == (3, SIZE)
        torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3), rtol=0, atol=1e-5)


@heads
def test_grid_encoder_accepts_cells_instead_of_pixels(head):
    """The backbone's features, computed before, give the vectors that the pixels give."""
    model = encoder(head)
    with torch.no_grad():
        cells = model.backbone(pixels())
        assert cells.shape[2] == model.feature_size
        torch.testing.assert_close(model(cells), model(pixels()))
        torch.testing.assert_close(model(cells.half()), model(cells.half().float()))


def test_cells_run_row_by_row():
    """Cell ``row * columns + column`` of the set is that place of the feature map."""
    backbone = encoder().backbone
    with torch.no_grad():
        map_, cells = backbone.feature_map(pixels()), backbone(pixels())
    rows, columns = backbone.grid(70, 50)
    assert map_.shape[2:] == (rows, columns)
    for row in range(rows):
        for column in range(columns):
            assert torch.equal(cells[:, row * columns + column], map_[:, :, row, column])


def test_dropped_cells_are_not_seen():
    """With a mask or lengths the vector is that of the remaining cells alone."""
    model = encoder()
    with torch.no_grad():
        cells = model.backbone(pixels())
        count = cells.shape[1]
        torch.testing.assert_close(model(pixels(), lengths=[count - 1] * 2), model(cells[:, :-1]))
        mask = torch.ones(2, count, dtype=torch.bool)
        mask[:, 0] = False
        torch.testing.assert_close(model(pixels(), mask=mask), model(cells[:, 1:]))


@heads
def test_statistics_are_frozen_and_parameters_trained(head):
    """Training keeps the running statistics of the backbone and trains its scales and shifts like all the rest."""
    model = encoder(head).train()
    assert model.training
    assert model.projection.training
    assert_frozen(model)
    before = {name: tensor.clone() for name, tensor in model.backbone.named_buffers()}
    model(pixels()).square().mul(torch.arange(SIZE)).sum().backward()
    for name, tensor in model.backbone.named_buffers():
        assert torch.equal(tensor, before[name]), name
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_statistics_stay_frozen_below_a_larger_model():
    """``train()`` of whatever holds the encoder freezes them too; ``eval()`` and back again changes nothing."""
    model = encoder()
    outer = nn.Sequential(model)
    outer.train()
    assert_frozen(model)
    outer.eval().train()
    assert_frozen(model)
    assert model.backbone.training


def test_asking_for_the_grid_does_not_thaw_the_statistics():
    """Looking at the size of the grid in the midst of training leaves every mode as it was."""
    model = encoder().train()
    before = {name: module.training for name, module in model.named_modules()}
    assert model.backbone.grid(70, 50) == tuple(model.backbone.feature_map(pixels()).shape[2:])
    assert {name: module.training for name, module in model.named_modules()} == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.zeros(2, 1, 40, 40), r"\(B, 3, H, W\), got \(2, 1, 40, 40\)"),
        (torch.zeros(2, 40, 40, 3), r"\(B, 3, H, W\), got \(2, 40, 40, 3\)"),
        (torch.zeros(2, 5, 9), r"\(B, N, 64\), got \(2, 5, 9\)"),
        (torch.zeros(3, 40, 40), r"\(B, N, 64\), got"),
        (torch.zeros(2, 0, 64), "at least one element"),
    ],
)
def test_grid_refuses_neither_pixels_nor_cells(given, said):
    """Neither pixels nor cells: one line that says what either looks like."""
    with pytest.raises(InputError, match=said):
        encoder()(given)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("resnet18", {}, "unknown backbone 'resnet18'"),
        ("caffe-resnet102", {}, "did you mean 'caffe-resnet"),
        ("efficientnet-lite9", {}, "unknown backbone"),
        ("timm:", {}, "unknown backbone"),
        ("caffe-resnet", {"blocks": (1, 1, 1)}, "four stages"),
        ("caffe-resnet", {"blocks": (1, 0, 1, 1)}, "four stages"),
        ("caffe-resnet", {"depth": 3}, "unexpected keyword argument 'depth'"),
        ("caffe-resnet101", {"pretrained": True}, "no published weights"),
    ],
)
def test_unknown_backbone_fails_in_one_line(name, options, said):
    """Names and options outside the known ones say so, with what is known."""
    with pytest.raises(InputError, match=said) as caught:
        create_backbone(name, **options)
    assert "\n" not in str(caught.value)


def test_ready_backbone_is_passed_through():
    """Wherever a name is accepted, so is the object."""
    backbone = encoder().backbone
    assert isinstance(backbone, Backbone)
    assert create_backbone(backbone) is backbone
