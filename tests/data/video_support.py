"""Tiny datasets of videos on disk, written with nothing of ours."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np

from vse.data.dataset import VideoCaptions
from vse.data.open import LAYOUTS, find_layout
from vse.data.reading import OnProblem, ReadOptions, find_split, stop

SHORT = {"train": "trn", "val": "val", "test": "tst"}


def frames(count: int, size: int = 4, seed: int = 0, dtype: str = "float16") -> np.ndarray:
    """``(count, size)`` without two equal frames."""
    return np.random.default_rng(seed).normal(size=(count, size)).astype(dtype)


class Bomb:
    """Leaves a file at ``place`` when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self):
        return Path.touch, (self.place,)


def write_hdf5(path: Path, videos: dict[str, np.ndarray]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, array in videos.items():
            file[name] = array
    return path


def write_hgr(root: Path, captions: dict, splits: dict[str, dict], kind: str = "resnet") -> Path:
    """``splits`` maps a split to its videos and their frames; a video whose frames are None has none."""
    annotation = root / "annotation" / "RET"
    annotation.mkdir(parents=True, exist_ok=True)
    (root / "public_split").mkdir(exist_ok=True)
    (annotation / "ref_captions.json").write_text(json.dumps(captions))
    for split, videos in splits.items():
        np.save(root / "public_split" / f"{SHORT[split]}_names.npy", np.array(list(videos)))
        there = {name.replace("/", "_"): array for name, array in videos.items() if array is not None}
        write_hdf5(root / "ordered_feature" / "SA" / kind / f"{SHORT[split]}_ft.hdf5", there)
    return root


def write_json(path: Path, value) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def msrvtt_json(videos: dict[str, tuple[str, list[str]]]) -> dict:
    """``videos`` maps a name to its split and captions; the sentences stand in another order than the videos."""
    sentences = [
        {"caption": caption, "video_id": name, "sen_id": k}
        for name, (_, captions) in reversed(videos.items())
        for k, caption in enumerate(captions)
    ]
    return {
        "videos": [{"video_id": name, "split": split} for name, (split, _) in videos.items()],
        "sentences": sentences,
    }


def read_captions(root: Path, split: str = "test", on_problem: OnProblem = stop) -> VideoCaptions:
    """Read the captions of a split of videos, without frames."""
    layout = LAYOUTS[find_layout(root, kind="video")]
    found = layout.read(root, find_split(split, layout.splits(root), root), ReadOptions(on_problem=on_problem))
    assert isinstance(found, VideoCaptions)
    return found
