"""Compute what tools/photo_train.py trains on: the feature maps of the first five stages of EfficientNet-Lite2.

    python tools/photo_features.py --flickr8k DATA/flickr8k --coco DATA/coco --into features/photo

Both folders are datasets as ``vse data check`` reads them: train and dev of each are used, and no test split is
opened. Written are, in float16,

- ``base.f16``: a map of 17 × 17 cells and 120 channels for every image, as the model sees it;
- ``view1.f16`` and so on: the same of random views (a crop, perhaps mirrored) of the training images;
- ``base.meta.json``: split, file and captions of every image, in the order of the maps.

A run that was interrupted goes on where it was. One thread is used for each of ``--workers`` processes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROW = 17 * 17 * 120 * 2  # bytes of one map
STAGES = 5
TOGETHER = 2  # images in one call: more are slower, their maps leave the cache
NOTED = 200  # images between two notes of how far a worker is


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flickr8k", type=Path, required=True, metavar="DIR")
    parser.add_argument("--coco", type=Path, required=True, metavar="DIR")
    parser.add_argument("--into", type=Path, required=True, metavar="DIR")
    parser.add_argument("--views", type=int, default=3, help="of a training image, the plain one included [default: 3]")
    parser.add_argument("--workers", type=int, default=2, help="processes [default: 2]")
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    meta = list_images(options.flickr8k, options.coco)
    (options.into / "base.meta.json").write_text(json.dumps(meta), "utf-8")
    export_stages(options.into / "stages.onnx")
    train = [each["path"] for each in meta if each["split"].endswith("train")]
    several = {"base": [each["path"] for each in meta], **{f"view{n}": train for n in range(1, options.views)}}
    for number, (name, paths) in enumerate(several.items()):
        work = [(options.into, name, paths, worker, options.workers, number) for worker in range(options.workers)]
        with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
            pool.starmap(compute, work)
    return 0


def list_images(flickr8k: Path, coco: Path) -> list[dict[str, Any]]:
    """Dev splits first, so that training images are the rest."""
    from vse.data import open_data

    found = []
    for folder, split, name in (
        (coco, "dev", "coco-dev"),
        (flickr8k, "dev", "f8k-dev"),
        (flickr8k, "train", "f8k-train"),
        (coco, "train", "coco-train"),
    ):
        data = open_data(folder, split, use="files", check_files=True)
        captions: list[list[str]] = [[] for _ in range(len(data.images))]
        for caption, owner in zip(data.captions, data.caption_to_image.tolist(), strict=True):
            captions[owner].append(caption)
        paths = [str(data.images[place]) for place in range(len(data.images))]
        found += [{"path": p, "split": name, "captions": c} for p, c in zip(paths, captions, strict=True)]
    return found


def export_stages(path: Path) -> None:
    """The stem and the first five stages, with their published weights, for ONNX Runtime."""
    import torch

    from vse.encoders.backbones.efficientnet_lite import EfficientNetLite

    class Stages(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = EfficientNetLite(2, pretrained=True).model

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            maps = self.model.bn1(self.model.conv_stem(pixels))
            for stage in self.model.blocks[:STAGES]:
                maps = stage(maps)
            return maps

    free = {"pixels": {0: "images"}, "maps": {0: "images"}}
    example = (torch.zeros(TOGETHER, 3, 260, 260),)
    names = {"input_names": ["pixels"], "output_names": ["maps"], "dynamic_axes": free}
    torch.onnx.export(Stages().eval(), example, str(path), dynamo=False, opset_version=17, **names)


def compute(folder: Path, name: str, paths: Sequence[str], worker: int, workers: int, seed: int) -> None:
    """The maps of every ``workers``-th image, of random views unless ``seed`` is 0."""
    import onnxruntime

    from vse.inputs.preprocessing import efficientnet_lite, load_pixels

    how = replace(efficientnet_lite(260), resize="bicubic")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "stages.onnx", settings, providers=["CPUExecutionProvider"])
    note = folder / f"{name}.done{worker}-{workers}"
    file = os.open(folder / f"{name}.f16", os.O_RDWR | os.O_CREAT)
    mine = range(worker, len(paths), workers)
    began, before = time.perf_counter(), int(note.read_text("utf-8")) if note.exists() else 0
    for place in range(before, len(mine), TOGETHER):
        rows = mine[place : place + TOGETHER]
        pixels = [
            load_pixels(paths[row], how, augment=np.random.default_rng([seed, row]) if seed else None) for row in rows
        ]
        maps = session.run(None, {"pixels": np.stack(pixels)})[0].transpose(0, 2, 3, 1)
        for row, each in zip(rows, maps.clip(-65504, 65504).astype(np.float16), strict=True):
            os.pwrite(file, np.ascontiguousarray(each).tobytes(), row * ROW)
        done = place + len(rows)
        if done % NOTED == 0 or done == len(mine):
            note.write_text(str(done), "utf-8")
            rate = (done - before) / (time.perf_counter() - began)
            print(f"{name}, process {worker + 1}: {done} of {len(mine)}, {rate:.1f} images/s", file=sys.stderr)
    os.close(file)


if __name__ == "__main__":
    sys.exit(main())
