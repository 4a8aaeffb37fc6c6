"""Written scenes: a whole dataset, or one that the same call finishes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from vse.data.scenes import caption_scene, render, sample_scene, write_scenes
from vse.errors import InputError
from vse.progress import SilentProgress

COUNTS = {"train": 6, "dev": 3, "test": 2}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Interrupted(SilentProgress):
    """A reporter that is interrupted after some steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        self.steps -= steps
        if self.steps == 0:
            raise KeyboardInterrupt


def test_scene_dataset_matches_its_seed(tmp_path):
    """Each entry of the list has the image and the captions of its split and index."""
    result = write_scenes(tmp_path / "new" / "scenes", **COUNTS, seed=5, size=48)
    listed = json.loads(result.annotations.read_text())
    assert listed["dataset"] == "scenes"
    expected = [(split, index) for split, number in COUNTS.items() for index in range(number)]
    for number, (entry, (split, index)) in enumerate(zip(listed["images"], expected, strict=True)):
        scene = sample_scene(5, split, index)
        assert entry["imgid"] == number
        assert entry["split"] == {"train": "train", "dev": "val", "test": "test"}[split]
        assert [sentence["raw"] for sentence in entry["sentences"]] == caption_scene(scene, 5, split, index)
        with Image.open(result.folder / entry["filepath"] / entry["filename"]) as picture:
            assert picture.tobytes() == render(scene, 48).tobytes()
    assert result.to_json()["images"] == COUNTS
    assert (result.drawn, result.kept) == (11, 0)
    assert len(contents(result.folder)) == 11 + 2


def test_larger_scene_dataset_extends_smaller(tmp_path):
    """How many scenes are asked for does not change the ones they have in common."""
    small, large = tmp_path / "small", tmp_path / "large"
    write_scenes(small, 2, 1, 1, size=32)
    write_scenes(large, 4, 2, 3, size=32)
    for path in (small / "images").iterdir():
        assert path.read_bytes() == (large / "images" / path.name).read_bytes()


def test_second_scene_call_draws_nothing(tmp_path):
    """What is there is kept, untouched."""
    write_scenes(tmp_path, **COUNTS, size=32)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "images").iterdir()}
    again = write_scenes(tmp_path, **COUNTS, size=32)
    assert (again.drawn, again.kept) == (0, 11)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "images").iterdir()} == before


@pytest.mark.parametrize("steps", [1, 4, 11])
def test_interrupted_scene_call_is_resumed(tmp_path, steps):
    """The list of captions appears with the last image only; then all is as if nothing had happened."""
    with pytest.raises(KeyboardInterrupt):
        write_scenes(tmp_path / "a", **COUNTS, size=32, progress=Interrupted(steps))
    assert not (tmp_path / "a" / "dataset_scenes.json").exists()
    result = write_scenes(tmp_path / "a", **COUNTS, size=32)
    assert result.kept == steps
    write_scenes(tmp_path / "b", **COUNTS, size=32)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_missing_and_empty_scene_images_are_drawn_again(tmp_path):
    """An image that was deleted, or lost its content in a crash, comes back."""
    write_scenes(tmp_path, **COUNTS, size=32)
    before = contents(tmp_path)
    (tmp_path / "images" / "train_000002.png").unlink()
    (tmp_path / "images" / "test_000001.png").write_bytes(b"")
    assert write_scenes(tmp_path, **COUNTS, size=32).drawn == 2
    assert contents(tmp_path) == before


def test_scene_dataset_reports_progress(tmp_path):
    """One step a scene, kept ones too."""
    steps = []

    class Recorder(SilentProgress):
        def start(self, total: int, description: str) -> None:
            steps.append(-total)

        def advance(self, steps_done: int = 1, description: str | None = None) -> None:
            steps.append(steps_done)

    write_scenes(tmp_path, **COUNTS, size=32)
    write_scenes(tmp_path, **COUNTS, size=32, progress=Recorder())
    assert steps[0] == -11
    assert sum(steps) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, r"seed 0 \(now 1\)"),
        ({"size": 64}, r"size 32 \(now 64\)"),
        ({"train": 7}, r"train 6 \(now 7\)"),
        ({"dev": 0, "test": 9}, r"dev 3 \(now 0\), test 2 \(now 9\)"),
    ],
)
def test_scene_folder_refuses_other_arguments(tmp_path, change, message):
    """Other arguments for a folder in use are refused, with what it holds, and nothing is changed."""
    write_scenes(tmp_path, **COUNTS, size=32)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=message):
        write_scenes(tmp_path, **{**COUNTS, "size": 32, **change})
    assert contents(tmp_path) == before


def test_scene_dataset_refuses_foreign_folders(tmp_path):
    """Images without a record, a broken record and a file instead of the folder are refused."""
    (tmp_path / "mine" / "images").mkdir(parents=True)
    with pytest.raises(InputError, match=r"images.*choose another folder"):
        write_scenes(tmp_path / "mine", **COUNTS, size=32)
    for text in ("{", "[]"):
        (tmp_path / "scenes.json").write_text(text)
        with pytest.raises(InputError, match=r"scenes\.json.*choose another folder"):
            write_scenes(tmp_path, **COUNTS, size=32)
    with pytest.raises(InputError, match="is a file, expected a folder"):
        write_scenes(tmp_path / "scenes.json" / "inside", **COUNTS, size=32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": -1}, "train.*-1"),
        ({"dev": 2.5}, r"dev.*2\.5"),
        ({"test": True}, "test.*True"),
        ({"seed": -3}, "seed.*-3"),
        ({"size": 0}, "size.*0"),
        ({"test": 2821}, "test must be at most 2820.*got 2821"),
        ({"train": 0, "dev": 0, "test": 0}, "at least one"),
    ],
)
def test_invalid_scene_arguments_write_nothing(tmp_path, arguments, message):
    """The error names argument and value, and the folder is not made."""
    with pytest.raises(InputError, match=message):
        write_scenes(tmp_path / "scenes", **{**COUNTS, **arguments})
    assert not (tmp_path / "scenes").exists()
