"""Contracts of region features: means of cells inside stored boxes, resumable, and usable for training and search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.hostile.bounds import measured
from tests.hostile.corpus import write_corpus
from tests.models.test_extract import SIDE, Counting, naive_features, photographs, tiny
from tests.training.support import tiny_recipe, write_pictures

import vse
from vse.cli.main import main
from vse.data import FeatureRows, open_data
from vse.data.features import FeatureStore
from vse.errors import InputError
from vse.inputs.preprocessing import load_pixels
from vse.inputs.regions import propose_boxes, region_weights, window_boxes
from vse.models import extract as extract_module
from vse.models.extract import extract_features, find_images, find_videos
from vse.training import train

LARGE = 160  # 5 × 5 cells


@pytest.fixture
def folder(tmp_path) -> Path:
    return photographs(tmp_path / "pictures", 5, LARGE)


@pytest.mark.parametrize("boxes", ["windows", "selective-search"])
def test_stored_regions_are_means_of_cells_inside_their_boxes(folder, tmp_path, boxes):
    """Whatever the boxes and the batches, and the boxes are those of the image alone."""
    if boxes == "selective-search":
        pytest.importorskip("cv2.ximgproc")
    backbone, images = tiny(), find_images(folder)
    report = extract_features(images, backbone, tmp_path / "out", regions=7, boxes=boxes, size=LARGE, batch_size=2)
    assert (report.regions, report.boxes, report.grid) == (7, boxes, (5, 5))
    assert report.to_json()["regions"] == 7
    store = FeatureStore.open(tmp_path / "out")
    assert store.array.shape == (5, 7, 128)
    how = backbone.preprocessing(LARGE)
    for row, found, path in zip(store.array, store.boxes, images.paths, strict=True):
        np.testing.assert_array_equal(found, propose_boxes(load_pixels(path, how), how, 7, boxes))
        expected = region_weights(found, (5, 5)) @ naive_features(backbone, path)
        np.testing.assert_allclose(row, expected, rtol=2e-3, atol=1e-3)


def test_extraction_of_regions_resumes_and_refuses_other_regions(folder, tmp_path):
    """What is done is kept with its boxes; another number or kind of regions needs another folder."""
    bad = folder / "02.png"
    whole = bad.read_bytes()
    bad.write_bytes(b"")
    images = find_images(folder)
    options = {"size": LARGE, "name": "tiny"}
    extract_features(images, tiny(), tmp_path / "out", regions=6, **options)
    bad.write_bytes(whole)
    backbone = tiny(Counting)
    report = extract_features(images, backbone, tmp_path / "out", regions=6, **options)
    assert (report.computed, report.kept, backbone.seen) == (1, 4, 1)
    store = FeatureStore.open(tmp_path / "out")
    np.testing.assert_array_equal(store.boxes, np.broadcast_to(window_boxes(6), (5, 6, 4)))
    for other, said in (({"regions": 7}, "regions.count 6, now it is 7"), ({}, "regions.count 6, now it is None")):
        with pytest.raises(InputError, match=said):
            extract_features(images, tiny(), tmp_path / "out", **other, **options)


def test_corrupt_boxes_are_refused(folder, tmp_path):
    """A store whose boxes have another shape than its header says is not opened."""
    extract_features(find_images(folder), tiny(), tmp_path / "out", regions=6, size=LARGE)
    np.save(tmp_path / "out" / "boxes.npy", np.zeros((5, 3, 4), np.float32))
    with pytest.raises(InputError, match=r"boxes.npy holds float32 \(5, 3, 4\), expected float32 \(5, 6, 4\)"):
        FeatureStore.open(tmp_path / "out")


def test_impossible_regions_are_refused_before_anything_is_written(folder, tmp_path):
    """A number out of range, an unknown method."""
    for options, said in (({"regions": 0}, "from 1 to"), ({"regions": 3, "boxes": "detector"}, "unknown boxes")):
        with pytest.raises(InputError, match=said):
            extract_features(find_images(folder), tiny(), tmp_path / "out", size=LARGE, **options)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def tiny_by_name(monkeypatch):
    monkeypatch.setattr(extract_module, "create_backbone", lambda name, *, pretrained, **options: tiny())


@pytest.mark.usefixtures("tiny_by_name")
def test_precomp_is_written_and_trained_on(tmp_path, capsys):
    """The command writes rows, captions and ids by split; a region recipe trains on them and on the store alike."""
    table = write_pictures(tmp_path / "data", 16, 4)
    call = ["features", str(table), "--backbone", "tiny", "--into", str(tmp_path / "store"), "--size", str(LARGE)]
    assert main([*call, "--regions", "6", "--precomp", str(tmp_path / "precomp")]) == 0
    assert "6 regions (windows) over 5 × 5 cells of 128 channels each" in capsys.readouterr().out
    store = FeatureStore.open(tmp_path / "store")
    read, source = open_data(tmp_path / "precomp", "train"), open_data(table, "train", use="files")
    assert isinstance(read.images, FeatureRows)
    assert read.captions == source.captions
    assert read.images.ids == source.images.ids
    np.testing.assert_array_equal(read.images[3], store.rows_for([read.images.ids[3]])[0])
    image = {"kind": "region", "feature_size": 128, "hidden_size": 8, "head": "linear"}
    short = {"epochs": 1, "decay_epochs": 0, "batch_size": 8}
    found = [
        train(
            tiny_recipe(Path(data["path"]), data=data, model={"embed_size": 16, "image": image}, schedule=short),
            tmp_path / name,
        ).best
        for name, data in (
            ("from-precomp", {"path": str(tmp_path / "precomp")}),
            ("from-store", {"path": str(table), "features": str(tmp_path / "store")}),
        )
    ]
    assert found[0] == found[1]


@pytest.mark.usefixtures("tiny_by_name")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--boxes", "selective-search"], "--boxes selective-search is for regions: add --regions N"),
        (["--regions", "4", "--precomp", "p"], "no captions, which the layout precomp holds"),
        (["--regions", "4", "--kind", "videos"], "--regions is for images"),
    ],
)
def test_region_options_that_do_not_go_together_are_one_line(folder, tmp_path, capsys, more, said):
    """Before anything is computed."""
    assert main(["features", str(folder), "--backbone", "tiny", "--into", str(tmp_path / "out"), *more]) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_window_models_train_on_stored_windows_and_read_images(tmp_path):
    """A grid model with windows takes the store of that many windows, no other, and encodes the images alike."""
    table = write_pictures(tmp_path / "data", 16, 4)
    weights = tmp_path / "backbone.pt"
    torch.save(tiny().state_dict(), weights)
    options = {"blocks": [1, 1, 1, 1], "width": 4}
    stored = {"name": "caffe-resnet", "options": options, "size": SIDE}
    for name, regions in (("six", 6), ("cells", None)):
        extract_features(find_images(table), tiny(), tmp_path / name, regions=regions, **stored)
    image = {"kind": "grid", "backbone": {"name": "caffe-resnet", "options": options}, "image_size": SIDE, "windows": 6}
    model = {"embed_size": 16, "image": image, "backbone_weights": str(weights)}
    short = {"epochs": 1, "decay_epochs": 0, "batch_size": 8, "frozen_epochs": 0}

    def run(features: str) -> Path:
        data = {"path": str(table), "features": str(tmp_path / features)}
        changes = {"data": data, "model": model, "schedule": short, "augmentation": {"views": False}}
        return train(tiny_recipe(table, **changes), tmp_path / "run" / features).model

    with pytest.raises(InputError, match="holds 4 cells of each image, and the model takes 6 windows"):
        run("cells")
    trained = vse.load(run("six"))
    store = FeatureStore.open(tmp_path / "six")
    files = find_images(table)
    from_pixels = trained.encode_images(files.paths)
    from_store = trained.encode_images([store.rows_for([name])[0] for name in files.ids])
    np.testing.assert_allclose(from_pixels, from_store, atol=2e-3)


def test_videos_have_no_regions(tmp_path):
    """The message says what to leave out."""
    videos = find_videos.__globals__["VideoFiles"]((tmp_path / "a.mp4",), ("a",), ())
    with pytest.raises(InputError, match="regions are parts of images"):
        extract_features(videos, tiny(), tmp_path / "out", regions=4)


def test_hostile_corpus_through_features(tmp_path):
    """Every image and video has features or a reason, within bounds of time and memory for each."""
    corpus, videos = write_corpus(tmp_path / "hostile"), (".mp4", ".mkv")
    for found, kind, refused in (
        (find_images(tmp_path / "hostile"), False, {"scans", "bomb", "empty"}),
        (find_videos(tmp_path / "hostile"), True, {"scans", "behind", "video0"}),
    ):
        with measured() as extracting:
            report = extract_features(found, tiny(), tmp_path / ("videos" if kind else "images"), size=LARGE)
        extracting.check(parent=200_000_000)
        count = sum(name.endswith(videos) == kind for name in corpus)
        assert report.computed + len(report.problems) == len(found) == count
        assert refused <= {Path(name).stem for name in report.problems}


def test_bfloat16_features_are_close_and_recorded(folder, tmp_path):
    """They differ from those of float32 by rounding alone; a store of one precision is not resumed in the other."""
    images, options = find_images(folder), {"size": LARGE, "name": "tiny", "regions": 4}
    extract_features(images, tiny(), tmp_path / "wide", **options)
    extract_features(images, tiny(), tmp_path / "narrow", precision="bf16", **options)
    wide, narrow = FeatureStore.open(tmp_path / "wide"), FeatureStore.open(tmp_path / "narrow")
    assert (wide.header.precision, narrow.header.precision) == (None, "bf16")
    difference = np.abs(wide.array.astype(np.float32) - narrow.array.astype(np.float32))
    assert 0 < difference.max() < 0.05 * np.abs(wide.array).max()
    with pytest.raises(InputError, match="begun with precision 'bf16', now it is None"):
        extract_features(images, tiny(), tmp_path / "narrow", **options)


def test_precision_that_is_unknown_or_for_videos_is_refused(folder, tmp_path):
    """Before anything is written."""
    with pytest.raises(InputError, match="unknown precision 'fp8'"):
        extract_features(find_images(folder), tiny(), tmp_path / "out", precision="fp8")
    assert (
        main(["features", str(folder), "--kind", "videos", "--precision", "bf16", "--backbone", "x", "--into", "y"])
        == 2
    )
    assert not (tmp_path / "out").exists()
