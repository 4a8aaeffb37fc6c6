"""Do the least work of indexing, in several arrangements: decode and resize with Pillow, run the image tower."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZE, BATCH = 224, 32
CORES = os.cpu_count() or 1

Tower = Callable[[np.ndarray], np.ndarray]
Towers = Callable[[int], Tower]
"""The tower on as many threads as asked for; several may call it at once."""


def read(path: Path) -> np.ndarray:
    """Return an image as the tower takes it, ``(3, 224, 224)``."""
    with Image.open(path) as image:
        image.draft("RGB", (2 * SIZE, 2 * SIZE))
        pixels = np.asarray(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC))
    out = np.empty((3, SIZE, SIZE), np.float32)
    np.subtract(pixels.transpose(2, 0, 1), np.float32(127), out=out)
    out /= np.float32(128)
    return out


def in_turns(files: list[Path], towers: Towers) -> None:
    """Read a batch, then run the tower on all cores."""
    tower = towers(CORES)
    for batch in batches(files, BATCH):
        tower(np.stack([read(file) for file in batch]))


def ahead(files: list[Path], towers: Towers) -> None:
    """Let threads read while the tower runs on all cores."""
    read_beside(files, towers(CORES), readers=CORES)


def halves(files: list[Path], towers: Towers) -> None:
    """Let one thread read while the tower runs on the other cores."""
    read_beside(files, towers(max(CORES - 1, 1)), readers=1)


def read_beside(files: list[Path], tower: Tower, readers: int) -> None:
    with ThreadPoolExecutor(readers) as pool:
        pixels = iter(pool.map(read, files))
        while batch := list(itertools.islice(pixels, BATCH)):
            tower(np.stack(batch))


def own_core(files: list[Path], towers: Towers, pictures: int) -> None:
    """Let every core read and run its own batches, on one thread."""
    tower = towers(1)
    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(lambda batch: tower(np.stack([read(file) for file in batch])), batches(files, pictures)))


ARRANGEMENTS: dict[str, Callable[[list[Path], Towers], None]] = {
    "in turns": in_turns,
    "read ahead": ahead,
    "one core reads": halves,
    "each core by 4": lambda files, towers: own_core(files, towers, 4),
    "each core by 16": lambda files, towers: own_core(files, towers, 16),
}


def batches(files: Sequence[Path], size: int) -> list[Sequence[Path]]:
    return [files[start : start + size] for start in range(0, len(files), size)]


def bare_onnx(folder: Path) -> Towers:
    import onnxruntime

    sessions: dict[int, Any] = {}

    def tower(threads: int) -> Tower:
        if threads not in sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            options.log_severity_level = 3
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # readers need the cores
            sessions[threads] = onnxruntime.InferenceSession(str(folder / "image.onnx"), options)
        only_vectors = onnxruntime.RunOptions()
        only_vectors.only_execute_path_to_fetches = True
        return lambda pixels: sessions[threads].run(["vectors"], {"pixels": pixels}, only_vectors)[0]

    return tower


def bare_torch(folder: Path) -> Towers:
    import torch

    import vse

    encoder = vse.load(folder).image_encoder.eval()

    def tower(threads: int) -> Tower:
        def embed(pixels: np.ndarray) -> np.ndarray:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)  # of the thread that calls
            with torch.inference_mode():
                return encoder(torch.from_numpy(pixels)).numpy()

        return embed

    return tower
