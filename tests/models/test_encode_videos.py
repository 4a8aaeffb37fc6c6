"""Contracts of ``encode_videos``: arrays of frame features or paths of videos, for every kind of model."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.clip_support import CHANNELS, OPTIONS, SIDE, naive_rows, tiny, use_tiny, write_clips
from tests.inputs.video.clips import write_clip
from tests.models.test_extract import Telling
from tests.support_models import SIZE, assert_unit, build, draw_nothing, feature_sets, grid_config, region_config

import vse
from vse.convert.onnx_export import export_onnx
from vse.data.frames import find_frames
from vse.data.video_sources import FrameFolder
from vse.encoders.functional import state_fingerprint
from vse.encoders.video import FrameBackbone
from vse.errors import InputError
from vse.inputs.files import BadMediaError
from vse.inputs.video.windows import even_frames_of
from vse.models.config import About, FrameBackboneConfig, FramesConfig
from vse.models.encode import BadImage, BadImageWarning
from vse.models.extract import backbone_fingerprint, extract_clip_features, find_videos
from vse.models.storage import fingerprint
from vse.training.model import frame_backbone_of
from vse.training.model_recipe import ModelRecipe


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    use_tiny(monkeypatch)
    draw_nothing(monkeypatch)


@pytest.fixture
def folder(tmp_path):
    return write_clips(tmp_path / "clips", "a.mp4", "b.webm")


def seen(**changes) -> FrameBackboneConfig:
    """What a model keeps about the tiny backbone."""
    network = tiny()
    how = network.preprocessing(SIDE).to_json()
    values = {"name": "tiny", "preprocessing": how, "fingerprint": backbone_fingerprint(network), "frames": 20}
    return FrameBackboneConfig(**values | changes)


def frames_model(backbone: FrameBackboneConfig | None):
    return build(FramesConfig(feature_size=CHANNELS, backbone=backbone))


def naive_mean(model, path) -> np.ndarray:
    """Frame by frame: the sum of their unit vectors, brought to length 1."""
    total = sum(model.encode_images([frame])[0].astype(np.float64) for frame in even_frames_of(path, 20).frames)
    return total / np.linalg.norm(total)


@pytest.mark.parametrize("runtime", ["torch", pytest.param("onnx", marks=pytest.mark.slow)])
def test_image_model_averages_frames_of_a_video(folder, tmp_path, runtime):
    """A video is the direction of the mean of its frames' vectors, in both runtimes and with any batch."""
    model = build(grid_config())
    if runtime == "onnx":
        export_onnx(model, tmp_path / "export")
        model = vse.load(tmp_path / "export")
    paths = [folder / "a.mp4", str(folder / "b.webm")]
    vectors = model.encode_videos(paths)
    assert_unit(vectors, 2)
    for row, path in zip(vectors, paths, strict=True):
        np.testing.assert_allclose(row, naive_mean(model, path), atol=1e-5)
    for batch_size in (1, 7):
        np.testing.assert_allclose(model.encode_videos(paths, batch_size=batch_size), vectors, atol=1e-5)


def test_frame_model_reads_videos_with_its_backbone(folder, tmp_path):
    """Paths have the vectors of what ``vse features`` kept, and those are of the frames one by one."""
    model = frames_model(seen())
    extract_clip_features(find_videos(folder), tiny(), tmp_path / "out", size=SIDE)
    paths = [folder / "a.mp4", folder / "b.webm"]
    vectors = model.encode_videos(paths)
    kept = [np.load(tmp_path / "out" / f"{name}.npy") for name in ("a", "b")]
    np.testing.assert_allclose(vectors, model.encode_videos(kept), atol=1e-3)
    np.testing.assert_allclose(vectors, model.encode_videos([naive_rows(path) for path in paths]), atol=2e-3)
    np.testing.assert_array_equal(model.encode_videos(find_videos(folder)), vectors)
    np.testing.assert_array_equal(model.encode_videos(folder / "a.mp4"), vectors[:1])


@pytest.mark.parametrize("frames", [5, 40])
def test_videos_use_as_many_frames_as_training(tmp_path, frames):
    """The remembered number is taken of a video; of more than 20 the model is given 20, as training gives them."""
    write_clip(tmp_path / "long.mp4", seconds=5)
    rows = naive_rows(tmp_path / "long.mp4", frames)
    assert len(rows) == frames
    used = rows[np.round(np.linspace(0, frames - 1, min(frames, 20))).astype(int)]
    model = frames_model(seen(frames=frames))
    np.testing.assert_allclose(model.encode_videos(tmp_path / "long.mp4"), model.encode_videos([used]), atol=2e-3)


def test_frame_backbone_is_built_once_and_not_saved(folder, tmp_path, monkeypatch):
    """Neither for arrays nor when loading; not saved, not counted, not trained."""
    made = []
    original = FrameBackbone.__init__
    monkeypatch.setattr(FrameBackbone, "__init__", lambda self, *given: (made.append(1), original(self, *given))[1])
    model = vse.load(frames_model(seen()).save(tmp_path / "model"))
    before, names = fingerprint(model), set(model.state_dict())
    model.encode_videos(feature_sets(3, width=CHANNELS))
    assert made == []
    for _ in range(2):
        model.encode_videos([folder / "a.mp4"])
    assert made == [1]
    assert set(model.state_dict()) == names
    assert fingerprint(model) == before
    assert not any("backbone" in name for name, _ in model.named_parameters())


def test_frame_backbone_with_other_weights_is_refused(folder):
    """Features of another release would mean something else; a name that is not known here says so, too."""
    model = frames_model(seen(fingerprint="0" * 16))
    with pytest.raises(InputError, match=r"with 'tiny' and the weights 0{16}, but those here are [0-9a-f]{16}"):
        model.encode_videos([folder / "a.mp4"])


def test_unavailable_frame_backbone_fails_in_one_line(folder, monkeypatch):
    """One line that tells the name, the reason and the way out."""
    from vse.encoders.backbones import create_backbone

    monkeypatch.setattr("vse.encoders.video.create_backbone", create_backbone)
    for name, why in (("caffe-resnet50", "no published weights"), ("CaffeResNet", "unknown backbone")):
        with pytest.raises(InputError, match=f"with '{name}', which is unavailable here .*{why}.*'vse features'"):
            frames_model(seen(name=name)).encode_videos([folder / "a.mp4"])


CANNOT = r"takes features \(n, \d+\).*'vse features VIDEOS --backbone NAME"


def test_models_without_backbone_refuse_videos(folder):
    """Frames from elsewhere, and regions: paths are refused, with the command that helps."""
    for model in (frames_model(None), build(region_config())):
        with pytest.raises(InputError, match=CANNOT):
            model.encode_videos([folder / "a.mp4"])


@pytest.mark.slow
def test_export_of_frame_model_takes_arrays(folder, tmp_path):
    """It has no backbone, and takes arrays as its model does."""
    model = frames_model(seen())
    export_onnx(model, tmp_path / "export")
    exported = vse.load(tmp_path / "export")
    with pytest.raises(InputError, match=CANNOT):
        exported.encode_videos([folder / "a.mp4"])
    arrays = feature_sets(3, 5, width=CHANNELS)
    np.testing.assert_allclose(exported.encode_videos(arrays), model.encode_videos(arrays), atol=1e-4)


@pytest.mark.parametrize("kind", ["pictures", "frames"])
def test_unreadable_videos_follow_on_bad(folder, kind):
    """As with images: a row of NaN and a warning, a list of problems, or an error; half a video is used and noted."""
    model = build(grid_config()) if kind == "pictures" else frames_model(seen())
    write_clip(folder / "half.webm", seconds=8, codec="libvpx-vp9")
    content = (folder / "half.webm").read_bytes()
    (folder / "half.webm").write_bytes(content[: len(content) // 2])
    (folder / "text.mp4").write_text("no clip")
    paths = [folder / "text.mp4", folder / "half.webm", folder / "gone.mp4"]
    problems: list[BadImage] = []
    progress = Telling()
    vectors = model.encode_videos(paths, problems=problems, progress=progress)
    assert np.isnan(vectors).all(axis=1).tolist() == [True, False, True]
    assert [(bad.index, bad.name) for bad in problems] == [(0, str(paths[0])), (2, str(paths[2]))]
    assert problems[1].reason == "no such file"
    assert progress.done == 3
    assert [note.startswith(str(paths[1])) for note in progress.notes] == [True]
    with pytest.warns(BadImageWarning, match="2 videos could not be encoded: .*text.mp4: not a video") as caught:
        model.encode_videos(paths)
    assert caught[0].filename == __file__
    with pytest.raises(BadMediaError, match=r"gone\.mp4: no such file"):
        model.encode_videos(paths[1:], on_bad="raise")


def test_video_with_nan_embedding_is_a_problem(folder):
    """A model that gives NaN, and a backbone that does, are problems of the video."""
    model = build(grid_config())
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    problems: list[BadImage] = []
    assert np.isnan(model.encode_videos([folder / "a.mp4"], problems=problems)).all()
    assert problems[0].reason == "the model returns no finite embedding for it"


def test_video_arrays_are_encoded(folder):
    """Sets of features of any number; bad ones follow ``on_bad``; paths among them, and other values, are refused."""
    model = frames_model(None)
    arrays = feature_sets(1, 5, 30, width=CHANNELS)
    vectors = model.encode_videos(arrays)
    assert_unit(vectors, 3)
    np.testing.assert_array_equal(vectors, model.encode_images(arrays))
    np.testing.assert_allclose(model.encode_videos(arrays[1]), vectors[1:2], atol=1e-6)
    assert model.encode_videos([]).shape == (0, SIZE)
    broken = [arrays[0], np.full((2, CHANNELS), np.nan, np.float32)]
    with pytest.raises(InputError, match="NaN"):
        model.encode_videos(broken, on_bad="raise")
    with pytest.raises(InputError, match="mixed from number 1 on"):
        model.encode_videos([arrays[0], folder / "a.mp4"])
    for changes, said in (({"batch_size": 0}, "batch_size must be"), ({"on_bad": "ignore"}, "'on_bad'")):
        for videos in (arrays, [folder / "a.mp4"]):
            with pytest.raises(InputError, match=said):
                frames_model(seen()).encode_videos(videos, **changes)


class TestConfiguration:
    """What a model keeps about the backbone of its frames."""

    def test_model_without_backbone_entry_keeps_fingerprint(self, tmp_path):
        """A saved configuration without the entry is one that does not know, and keeps its fingerprint."""
        model = frames_model(None)
        saved = model.save(tmp_path / "model")
        described = json.loads((saved / "config.json").read_text())
        assert described["image"].pop("backbone") is None
        (saved / "config.json").write_text(json.dumps(described))
        loaded = vse.load(saved)
        assert loaded.config == model.config
        config = {key: described[key] for key in ("format", "runtime", "embed_size", "image", "text")}
        inputs = json.dumps({"config": config, "tokenizer": model.tokenizer.to_json()}, sort_keys=True)
        assert loaded.fingerprint() == state_fingerprint(model.state_dict(), inputs)

    def test_frame_backbone_is_part_of_fingerprint(self):
        """Models that see videos in other ways give other vectors."""
        marks = [fingerprint(frames_model(each)) for each in (None, seen(), seen(frames=5), seen(fingerprint="1" * 16))]
        assert len(set(marks)) == 4

    @pytest.mark.parametrize("option", ["checkpoint_path", "pretrained_cfg", "cache_dir"])
    def test_untrusted_model_cannot_name_backbone_files(self, tmp_path, option):
        """It must not name files to be opened, not even when videos are encoded."""
        model = frames_model(seen())
        saved = model.save(tmp_path / "model")
        described = json.loads((saved / "config.json").read_text())
        described["image"]["backbone"]["options"] = {option: "/tmp/evil.bin"}
        (saved / "config.json").write_text(json.dumps(described))
        with pytest.raises(InputError, match=f"'image.backbone' asks for other files .*{option}"):
            vse.load(saved)

    def test_frame_description_is_found_beside_features(self, folder, tmp_path):
        """The description that extraction left; none where another ``features.json`` or none lies there."""
        out = tmp_path / "out"
        described = {"name": "caffe-resnet", "options": OPTIONS, "frames": 7}
        extract_clip_features(find_videos(folder), tiny(), out, size=SIDE, **described)

        def found():
            return frame_backbone_of(find_frames(FrameFolder(out), ["a", "b"])[0])

        assert found() == seen(**described)
        header = json.loads((out / "features.json").read_text())
        for other in (json.dumps({"features": 3}), "no json", "[1]"):
            (out / "features.json").write_text(other)
            assert found() is None
        (out / "features.json").write_text(json.dumps(header | {"options": {"checkpoint_path": "x"}}))
        assert found() is None
        (out / "features.json").write_text(json.dumps(header | {"frames": "many"}))
        with pytest.raises(InputError, match=r"features.json: 'frames' is 'many'"):
            found()
        (out / "features.json").unlink()
        assert found() is None

    def test_recipe_cannot_name_frame_backbone(self, folder):
        """The features do."""
        with pytest.raises(InputError, match=r"model.image.backbone of frames is known from their features"):
            ModelRecipe(image=FramesConfig(feature_size=CHANNELS, backbone=seen())).config(9, About(), None)
