"""Contracts of feature extraction: what is stored is what the backbone computes, once for every image."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.support import entry, write_karpathy

from vse.data import ImageFiles, open_data
from vse.data.features import FeatureStore, attach
from vse.encoders.backbones import Backbone, CaffeResNet
from vse.errors import InputError
from vse.models.config import BackboneConfig, BiGRUConfig, GridConfig, ModelConfig
from vse.models.extract import backbone_fingerprint, extract_features, find_images
from vse.models.vse_model import VSEModel
from vse.progress import SilentProgress

SIDE = 64
MEAN, STD = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])

# The same extraction as in the test, so slow that it can be killed in the middle.
SLOW_RUN = """
import sys, time
import torch
from vse.encoders.backbones import CaffeResNet
from vse.models.extract import extract_features, find_images
class Slow(CaffeResNet):
    def forward(self, pixels):
        time.sleep(0.3)
        return super().forward(pixels)
torch.manual_seed(0)
backbone = Slow(blocks=(1, 1, 1, 1), width=4)
extract_features(find_images(sys.argv[1]), backbone, sys.argv[2], size=64, batch_size=3, name="caffe-resnet")
"""


class Counting(CaffeResNet):
    """A tiny backbone that counts the images it is given."""

    seen = 0

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.seen += len(pixels)
        return super().forward(pixels)


class Telling(SilentProgress):
    """Keeps what it is reported."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.descriptions: list[str | None] = []
        self.done = 0

    def note(self, message: str) -> None:
        self.notes.append(message)

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        self.done += steps
        self.descriptions.append(description)


def tiny(kind: type[CaffeResNet] = CaffeResNet) -> CaffeResNet:
    torch.manual_seed(0)
    return kind(blocks=(1, 1, 1, 1), width=4)


def photographs(folder: Path, count: int, side: int = SIDE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        pixels = np.random.default_rng(i).integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    return folder


def naive_features(backbone: Backbone, path: Path) -> np.ndarray:
    """One image of the right size, alone, step by step: (cells, channels)."""
    pixels = (np.asarray(Image.open(path), np.float64) - MEAN) / STD
    picture = torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32))[None]
    with torch.no_grad():
        the_map = backbone.eval().feature_map(picture)[0].numpy()  # (C, h, w)
    _, rows, columns = the_map.shape
    return np.array([the_map[:, y, x] for y in range(rows) for x in range(columns)])


@pytest.fixture
def folder(tmp_path) -> Path:
    """Seven images of the size that the backbone is asked to take."""
    return photographs(tmp_path / "pictures", 7)


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_stored_image_features_equal_backbone_output(folder, tmp_path, batch_size):
    """Batching, reading ahead and float16 change nothing that a loop over single images would not give."""
    backbone = tiny()
    progress = Telling()
    images = find_images(folder)
    report = extract_features(images, backbone, tmp_path / "out", size=SIDE, batch_size=batch_size, progress=progress)
    store = FeatureStore.open(tmp_path / "out")
    assert store.ids == images.ids == tuple(f"{i:02}.png" for i in range(7))
    assert store.array.shape == (7, report.grid[0] * report.grid[1], 128)
    for row, path in zip(store.array, images.paths, strict=True):
        np.testing.assert_allclose(row, naive_features(backbone, path), rtol=2e-3, atol=1e-3)
    assert (report.count, report.computed, report.kept, report.clipped, report.problems) == (7, 7, 0, 0, {})
    assert store.header.fingerprint == backbone_fingerprint(backbone)
    assert progress.done == 7
    assert all("images/s" in str(text) for text in progress.descriptions)


def test_extraction_leaves_backbone_unchanged(folder, tmp_path):
    """Extraction computes in evaluation mode and hands every module back in its own mode, unchanged."""
    backbone = tiny().train()
    backbone.bn1.eval()
    before = backbone_fingerprint(backbone)
    extract_features(find_images(folder), backbone, tmp_path / "out", size=SIDE)
    assert backbone.training
    assert not backbone.bn1.training
    assert backbone.layer1[0].bn1.training
    assert backbone_fingerprint(backbone) == before


def test_extraction_reports_bad_image_and_retries_it(folder, tmp_path):
    """It stops nothing, is reported with its reason, and is computed, alone, once it is fixed."""
    whole = (folder / "03.png").read_bytes()
    (folder / "03.png").write_bytes(whole[:200])
    (folder / "zero.jpg").write_bytes(b"")
    images = find_images(folder)
    report = extract_features(images, tiny(), tmp_path / "out", size=SIDE, batch_size=2)
    assert (report.count, report.computed) == (8, 6)
    assert report.problems == {"03.png": "truncated", "zero.jpg": "empty"}
    assert json.loads(json.dumps(report.to_json()))["bad"][1] == {"id": "zero.jpg", "reason": "empty"}
    with pytest.raises(InputError, match=r"no features for 1 of 2 images: '03.png' \(truncated\)"):
        FeatureStore.open(tmp_path / "out").rows_for(["00.png", "03.png"])
    (folder / "03.png").write_bytes(whole)
    backbone = tiny(Counting)
    report = extract_features(images, backbone, tmp_path / "out", size=SIDE, batch_size=2, name="CaffeResNet")
    assert (report.computed, report.kept, backbone.seen, report.problems) == (1, 6, 1, {"zero.jpg": "empty"})
    row = FeatureStore.open(tmp_path / "out").rows_for(["03.png"])[0]
    np.testing.assert_allclose(row, naive_features(tiny(), folder / "03.png"), rtol=2e-3, atol=1e-3)


def test_extraction_of_only_bad_images_reports_them(tmp_path):
    """A run without a single usable image ends with a report all the same."""
    images = ImageFiles((tmp_path / "gone.jpg",), ("gone.jpg",))
    report = extract_features(images, tiny(), tmp_path / "out", size=SIDE)
    assert report.problems == {"gone.jpg": "no such file"}
    assert FeatureStore.open(tmp_path / "out").bad == report.problems


def test_extraction_clips_values_beyond_float16(folder, tmp_path):
    """Too large values are clipped and counted, infinite ones too; an image that gives NaN is bad."""

    class Extreme(CaffeResNet):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            cells = torch.zeros_like(super().forward(pixels))
            cells[0, 0, :4] = torch.tensor([7e4, -7e4, torch.inf, 65504.0])
            cells[-1, 0, 0] = torch.nan
            return cells

    report = extract_features(find_images(folder), tiny(Extreme), tmp_path / "out", size=SIDE)
    assert report.clipped == 3
    assert report.problems == {"06.png": "the backbone gives NaN for it"}
    store = FeatureStore.open(tmp_path / "out")
    assert store.array[0, 0, :5].tolist() == [65504, -65504, 65504, 65504, 0]


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_extraction_resumes_after_kill(folder, tmp_path):
    """After kill −9 the same call ends with the store of an uninterrupted run and computes no finished row again."""
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", SLOW_RUN, str(folder), str(out)]) as process:
        while process.poll() is None and not ((out / "done.npy").exists() and np.load(out / "done.npy").any()):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    finished = np.flatnonzero(np.load(out / "done.npy"))
    before = np.load(out / "features.npy")[finished]
    assert 0 < len(finished) < 7
    backbone, progress = tiny(Counting), Telling()
    options = {"size": SIDE, "batch_size": 3, "name": "caffe-resnet"}
    report = extract_features(find_images(folder), backbone, out, progress=progress, **options)
    assert (report.kept, report.computed, backbone.seen) == (len(finished), 7 - len(finished), 7 - len(finished))
    assert f"{len(finished)} images were done before" in progress.notes[0]
    extract_features(find_images(folder), tiny(), tmp_path / "whole", **options)
    whole, resumed = FeatureStore.open(tmp_path / "whole"), FeatureStore.open(out)
    assert whole.header == resumed.header
    np.testing.assert_array_equal(resumed.array[finished], before)
    np.testing.assert_allclose(resumed.array, whole.array, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": 32}, r"preprocessing.size \[64, 64\], now it is \[32, 32\]"),
        ({"name": "other"}, "backbone 'caffe-resnet', now it is 'other'"),
        ({"options": {"width": 4}}, "options.width None, now it is 4"),
    ],
)
def test_extraction_refuses_other_settings(folder, tmp_path, changes, said):
    """A store is not mixed from two kinds of features."""
    call = {"size": SIDE, "name": "caffe-resnet"}
    extract_features(find_images(folder), tiny(), tmp_path / "out", **call)
    with pytest.raises(InputError, match=said):
        extract_features(find_images(folder), tiny(), tmp_path / "out", **{**call, **changes})
    other = CaffeResNet(blocks=(1, 1, 1, 1), width=4)
    with pytest.raises(InputError, match="fingerprint"):
        extract_features(find_images(folder), other, tmp_path / "out", **call)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": 0}, "size must be a whole number from 1 up, got 0"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"backbone": "caffe-resnet50"}, "no published weights for 'caffe-resnet50'"),
        ({"backbone": "efficientnet"}, "unknown backbone 'efficientnet'"),
        ({"images": ImageFiles((), ())}, "zero images"),
    ],
)
def test_invalid_extraction_creates_no_folder(folder, tmp_path, changes, said):
    """What is wrong from the start is found before a folder is made."""
    call = {"images": find_images(folder), "backbone": tiny(), "into": tmp_path / "out", **changes}
    with pytest.raises(InputError, match=said):
        extract_features(**call)
    assert not (tmp_path / "out").exists()


def test_extraction_refuses_size_too_small_for_backbone(folder, tmp_path):
    """Images too small for the backbone are one line and not an error of torch."""

    class Picky(CaffeResNet):
        def feature_map(self, pixels: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("Output size is too small\nand more")

    with pytest.raises(InputError, match=r"size 8: the backbone cannot take .* \(Output size is too small\)"):
        extract_features(find_images(folder), tiny(Picky), tmp_path / "out", size=8)


def test_model_embeds_images_and_their_features_alike(folder, tmp_path):
    """A grid model gives the same vectors for images and for their stored features, up to float16."""
    grid = GridConfig(
        backbone=BackboneConfig(name="caffe-resnet", options={"blocks": [1, 1, 1, 1], "width": 4}), image_size=SIDE
    )
    model = VSEModel.build(
        ModelConfig(embed_size=16, image=grid, text=BiGRUConfig(vocabulary_size=9, word_size=5))
    ).eval()
    for i in range(7):
        (folder / f"{i:02}.txt").write_text(f"picture {i}\n")
    data = open_data(folder, "all")
    extract_features(data.images, model.image_encoder.backbone, tmp_path / "out", size=SIDE, name="caffe-resnet")
    attached = attach(data, FeatureStore.open(tmp_path / "out"))
    assert attached.captions == data.captions
    np.testing.assert_allclose(model.encode_images(attached.images), model.encode_images(data.images.paths), atol=1e-2)


class TestFindImages:
    """Which images a path stands for."""

    @pytest.fixture
    def data(self, tmp_path) -> Path:
        """Three images in two splits."""
        photographs(tmp_path / "data/images", 4)
        entries = [entry("00.png", "train", "a"), entry("01.png", "test", "b"), entry("02.png", "restval", "c")]
        write_karpathy(tmp_path / "data/dataset_x.json", entries)
        return tmp_path / "data"

    def test_extraction_covers_all_splits(self, data):
        """A dataset is the images of all its splits, under the ids it gives them."""
        assert find_images(data).ids == ("00.png", "02.png", "01.png")

    def test_extraction_of_one_split(self, data):
        """A named split stands for itself."""
        assert find_images(data, split="test").ids == ("01.png",)
        with pytest.raises(InputError, match="unknown split 'dev'"):
            find_images(data, split="dev")

    def test_find_images_uses_named_layout(self, data):
        """The images of a dataset can also be taken as a plain folder, everything in it."""
        assert find_images(data, layout="folder").ids == tuple(f"images/{i:02}.png" for i in range(4))

    def test_find_images_counts_image_in_two_splits_once(self, tmp_path):
        """An image that several splits share has one row."""
        photographs(tmp_path, 2)
        table = tmp_path / "all.csv"
        table.write_text("path,caption,split\n00.png,a,train\n01.png,b,train\n00.png,a,test\n")
        assert find_images(table).ids == ("00.png", "01.png")

    def test_find_images_refuses_one_id_for_two_files(self, tmp_path):
        """Features are found by id, so that two files must not share one."""
        table = tmp_path / "all.csv"
        table.write_text("path,caption,split,id\n00.png,a,train,7\n01.png,b,test,7\n")
        with pytest.raises(InputError, match=r"id '7' names two images, .*00.png and .*01.png"):
            find_images(table)
