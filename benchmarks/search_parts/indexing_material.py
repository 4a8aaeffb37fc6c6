"""Create the model and the images of the indexing part; they stay for the next run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from search_parts.indexing_bare import SIZE

EMBED_SIZE = 512
LARGE, NOISE, QUALITY = (4000, 3000), 6.0, 90


def make_model(place: Path) -> None:
    """Create the model in ``place/torch`` and its export in ``place/onnx``, unless they exist."""
    if (place / "onnx" / "config.json").exists():
        return
    import torch

    from vse.convert.onnx_export import export_onnx
    from vse.inputs import Vocabulary
    from vse.models.config import BackboneConfig, BiGRUConfig, GridConfig, ModelConfig
    from vse.models.vse_model import VSEModel

    words = Vocabulary.build(["a dog runs in the snow"], min_count=1).tokenizer()
    config = ModelConfig(
        embed_size=EMBED_SIZE,
        image=GridConfig(backbone=BackboneConfig(name="efficientnet-lite0"), image_size=SIZE),
        text=BiGRUConfig(vocabulary_size=words.vocab_size),
    )
    torch.manual_seed(0)
    model = VSEModel.build(config, words, pretrained=True).eval()
    place.mkdir(parents=True, exist_ok=True)
    model.save(place / "torch")
    export_onnx(model, place / "onnx")


def take(photos: Path, into: Path, count: int) -> Path:
    """Copy the first images of a folder into a separate one."""
    chosen = sorted(photos.glob("*.jpg"))[:count]
    if not chosen:
        raise SystemExit(f"{photos}: no *.jpg here; name a folder of images with --photos")
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for file in chosen:
        shutil.copy(file, into / file.name)
    return into


def enlarge(photos: Path, into: Path, count: int) -> Path:
    """Enlarge some of them to the size of a camera, with noise so that they take as many bytes as photographs do."""
    chosen = sorted(photos.glob("*.jpg"))[:count]
    if into.exists() and {file.name for file in into.glob("*.jpg")} == {file.name for file in chosen}:
        return into
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for file in chosen:
        with Image.open(file) as image:
            pixels = np.asarray(image.convert("RGB").resize(LARGE, Image.Resampling.BICUBIC), np.float32)
        pixels = pixels + generator.normal(0, NOISE, (*pixels.shape[:2], 1)).astype(np.float32)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(into / file.name, quality=QUALITY)
    return into
