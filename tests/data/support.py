"""Tiny datasets on disk, written with nothing of ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def features(images: int, regions: int = 3, size: int = 4, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Random features without two equal images."""
    return np.random.default_rng(seed).normal(size=(images, regions, size)).astype(dtype)


def write_lines(path: Path, lines) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def write_precomp(folder: Path, split: str, rows: np.ndarray, captions, ids=None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{split}_ims.npy", rows)
    write_lines(folder / f"{split}_caps.txt", captions)
    if ids is not None:
        write_lines(folder / f"{split}_ids.txt", ids)
    return folder


def write_image(path: Path, content: bytes | None = None) -> Path:
    """A file that is called an image; the readers never decode one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(path.name.encode() if content is None else content)
    return path


def write_karpathy(path: Path, images) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"images": images, "dataset": "x"}), encoding="utf-8")
    return path


def entry(filename: str, split: str, *captions: str, **more) -> dict:
    return {"filename": filename, "split": split, "sentences": [{"raw": text} for text in captions], **more}
