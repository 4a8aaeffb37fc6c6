"""``--device`` and ``--threads`` of the commands that encode."""

from __future__ import annotations

import shutil
from contextlib import closing

import onnxruntime
import pytest
import torch
from PIL import Image
from tests.cli.search_support import error_line, reported, saved_folder
from tests.support_models import picture

import vse
from vse.index.open import load_collection_model, open_collection

ENCODING = {
    "index": ["index", "photos", "--into", "photos.vse"],
    "search": ["search", "photos.vse", "a dog"],
    "serve": ["serve", "photos.vse", "--port", "0"],
    "eval": ["eval", "photo", "--data", "photos"],
    "calibrate": ["calibrate", "model", "--data", "photos"],
    "features": ["features", "photos", "--backbone", "efficientnet-lite0", "--into", "features"],
    "upgrade": ["collection", "upgrade", "photos.vse", "--model", "model"],
}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """Two photos, indexed by the bundled model with one thread."""
    home = tmp_path_factory.mktemp("devices")
    (home / "photos").mkdir()
    for seed in range(2):
        Image.fromarray(picture(seed)).save(home / "photos" / f"{seed}.png")
    found = reported("index", home / "photos", "--into", home / "photos.vse", "--threads", 1, "--device", "auto")
    assert found["files"] == 2
    return home


@pytest.fixture
def home(indexed, tmp_path, monkeypatch):
    shutil.copytree(indexed / "photos.vse", tmp_path / "photos.vse")
    shutil.copytree(indexed / "photos", tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VSE_DEVICE", raising=False)
    return tmp_path


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])


@pytest.mark.parametrize("command", ENCODING.values(), ids=ENCODING)
def test_unknown_device_is_a_usage_error(capsys, home, command):
    line = error_line(capsys, 2, *command, "--device", "nonsense")
    assert "--device: unknown device 'nonsense': expected one of 'auto', 'cpu', 'cuda'" in line


@pytest.mark.parametrize("command", ENCODING.values(), ids=ENCODING)
def test_zero_threads_are_a_usage_error(capsys, home, command):
    assert "--threads" in error_line(capsys, 2, *command, "--threads", 0)


@pytest.mark.parametrize("name", ["index", "search", "serve"])
def test_missing_provider_fails_the_command_in_one_line(capsys, home, no_gpu, name):
    """The advice is about the device, not about the model."""
    line = error_line(capsys, 1, *ENCODING[name], "--device", "cuda")
    assert line.endswith(
        "error: device 'cuda': this ONNX Runtime has no CUDAExecutionProvider (it has CPUExecutionProvider); install "
        "onnxruntime-gpu, or use --device cpu"
    )


def test_missing_device_leaves_no_new_index(capsys, home, no_gpu):
    error_line(capsys, 1, "index", "photos", "--into", "other.vse", "--device", "cuda")
    error_line(capsys, 1, "index", "photos", "--into", "other.vse", "--device", "cuda", "--model", saved_folder())
    assert not (home / "other.vse").exists()


def test_missing_torch_device_fails_an_upgrade(capsys, home, no_gpu):
    line = error_line(capsys, 1, "collection", "upgrade", "photos.vse", "--model", saved_folder(), "--device", "cuda")
    assert "device 'cuda': torch" in line


def test_search_takes_device_and_threads(home):
    plain = reported("search", "photos.vse", "a dog")
    assert reported("search", "photos.vse", "a dog", "--device", "cpu", "--threads", 1) == plain


def test_device_from_the_environment(capsys, home, no_gpu, monkeypatch):
    """VSE_DEVICE is the default of --device."""
    monkeypatch.setenv("VSE_DEVICE", "openvino")
    assert "install onnxruntime-openvino" in error_line(capsys, 1, *ENCODING["search"])
    assert reported(*ENCODING["search"], "--device", "cpu", "--all")["results"]


def test_collection_model_is_loaded_again_for_another_device(home, no_gpu):
    """A loaded model serves calls that name no device; a failed one does not replace it."""
    with closing(open_collection("photos.vse")) as collection:
        first = load_collection_model(collection, threads=1)
        assert load_collection_model(collection) is first
        assert load_collection_model(collection, threads=1) is first
        with pytest.raises(vse.models.devices.DeviceError, match="onnxruntime-gpu"):
            vse.search(collection, "a dog", device="cuda")
        assert load_collection_model(collection, threads=2) is not first
