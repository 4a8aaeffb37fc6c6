"""Folders of tiny videos and a tiny backbone to see them, for the tests of features and vectors of videos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.inputs.video.clips import write_clip

from vse.encoders.backbones import CaffeResNet
from vse.inputs import imagenet, prepare
from vse.inputs.video.windows import even_frames_of

SIDE, CHANNELS = 64, 128
OPTIONS = {"blocks": [1, 1, 1, 1], "width": 4}


def tiny(kind: type[CaffeResNet] = CaffeResNet) -> CaffeResNet:
    torch.manual_seed(0)
    return kind(blocks=(1, 1, 1, 1), width=4)


def create_tiny(name: str, *, pretrained: bool, **options: object) -> CaffeResNet:
    """In the place of ``create_backbone``: a name with published weights, at no cost."""
    assert pretrained
    assert not options
    return tiny()


def use_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every name stand for the tiny backbone, for the features and for the model that remembers it."""
    for module in ("vse.models.extract", "vse.encoders.video"):
        monkeypatch.setattr(f"{module}.create_backbone", create_tiny)


def write_clips(folder: Path, *names: str) -> Path:
    """Each clip is half a second longer than the one before."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        codec = {".webm": "libvpx-vp9", ".avi": "mpeg4"}.get(path.suffix, "libx264")
        write_clip(path, seconds=1 + number / 2, codec=codec)
    return folder


def naive_rows(path: Path, frames: int = 20, backbone: CaffeResNet | None = None) -> np.ndarray:
    """Frame by frame, alone: the mean over the map's places, (n, channels)."""
    network = (backbone or tiny()).eval()
    rows = []
    for frame in even_frames_of(path, frames).frames:
        with torch.no_grad():
            the_map = network.feature_map(torch.from_numpy(prepare(frame, imagenet(SIDE)))[None])[
                0
            ].numpy()  # (C, h, w)
        rows.append(the_map.reshape(len(the_map), -1).mean(axis=1))
    return np.array(rows)
