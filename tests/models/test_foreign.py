"""Public dual encoders in every layout: their embeddings are those of the library that they were made with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.models import published
from tests.support_models import assert_unit, picture

import vse
from vse.errors import InputError, VSEError
from vse.models import foreign
from vse.models.coefficients import coefficients_of
from vse.models.onnx_pair import OnnxPair
from vse.models.vse_model import VSEModel

FAMILIES = ("clip", "siglip", "chinese_clip", "altclip", "metaclip_2")
TORCH = (*FAMILIES, "sentence-transformers", "flat sentence-transformers", "open_clip", "sharded")
PAIRS = ("transformers.js", "immich", "rclip")
TOLERANCE = 1e-4
PICTURES = [picture(seed, 30 + 13 * seed, 50 - 3 * seed) for seed in range(5)]
TEXTS = [*published.CAPTIONS, "dog", "Snow  and ICE, 2024 …", "a very long sentence " * 40]


@dataclass
class Layout:
    """A folder and what the library itself computes."""

    folder: Path
    images: Callable[[list[np.ndarray]], torch.Tensor]
    texts: Callable[[list[str]], torch.Tensor]
    size: int


def by_transformers(folder: Path, parts: tuple[Any, Any, Any], family: str = "clip") -> Layout:
    model, tokenizer, _ = parts
    hf = published.transformers()
    kind = {"siglip": hf.SiglipImageProcessorPil, "chinese_clip": hf.ChineseCLIPImageProcessorPil}
    processor = kind.get(family, hf.CLIPImageProcessorPil).from_pretrained(folder)
    padding = "max_length" if family == "siglip" else True

    def images(arrays: list[np.ndarray]) -> torch.Tensor:
        pixels = processor(images=[Image.fromarray(array) for array in arrays], return_tensors="pt")
        return model.get_image_features(**pixels).pooler_output

    def texts(sentences: list[str]) -> torch.Tensor:
        inputs = tokenizer(sentences, padding=padding, truncation=True, return_tensors="pt")
        used = {name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs}
        if family == "siglip":
            used.pop("attention_mask")
        return model.get_text_features(**used).pooler_output

    return Layout(folder, images, texts, published.WIDTH if family == "siglip" else published.DIMS)


def by_open_clip(folder: Path, model: Any, size: int = published.SIZE) -> Layout:
    import open_clip

    transform = open_clip.image_transform(size, is_train=False)
    tokenizer = open_clip.SimpleTokenizer(context_length=77)
    return Layout(
        folder,
        lambda arrays: model.encode_image(torch.stack([transform(Image.fromarray(array)) for array in arrays])),
        lambda sentences: model.encode_text(tokenizer(sentences)),
        published.DIMS,
    )


def make(kind: str, root: Path, seed: int = 0) -> Layout:
    """Save the tiny model of a layout."""
    folder = root / "model"
    if kind in {"open_clip", "immich", "rclip"}:
        folder.mkdir(parents=True)
        save = {"open_clip": published.save_open_clip, "immich": published.save_immich, "rclip": published.save_rclip}
        return by_open_clip(folder, save[kind](folder, seed), 256 if kind == "rclip" else published.SIZE)
    if kind in FAMILIES:
        return by_transformers(folder, published.save_transformers(folder, kind, seed), kind)
    if kind == "sharded":
        parts = published.save_transformers(folder, "siglip", seed)
        (folder / "model.safetensors").unlink()
        parts[0].save_pretrained(folder, max_shard_size="20KB")
        return by_transformers(folder, parts, "siglip")
    if kind.endswith("sentence-transformers"):
        path = "" if kind.startswith("flat") else "0_CLIPModel"
        parts = published.save_transformers(folder / path, seed=seed)
        modules = [{"idx": 0, "name": "0", "path": path, "type": "sentence_transformers.models.CLIPModel"}]
        (folder / "modules.json").write_text(json.dumps(modules))
        return by_transformers(folder / path, parts)
    model, tokenizer = published.save_transformers_js(folder, seed)
    return by_transformers(folder, (model, tokenizer, None))


def top(kind: str, layout: Layout) -> Path:
    return layout.folder.parent if kind == "sentence-transformers" else layout.folder


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """For networks of this size, threads cost more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    """Layouts by name, each made once."""
    made: dict[str, Layout] = {}

    def get(kind: str) -> Layout:
        if kind not in made:
            made[kind] = make(kind, tmp_path_factory.mktemp("layout"))
        return made[kind]

    return get


@pytest.fixture(scope="module")
def loaded(layouts):
    """Loaded models by name, each loaded once."""
    made: dict[str, Any] = {}

    def get(kind: str) -> Any:
        if kind not in made:
            made[kind] = vse.load(top(kind, layouts(kind)), threads=1)
        return made[kind]

    return get


@torch.no_grad()
def unit(vectors: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(vectors, dim=-1).numpy()


@pytest.mark.parametrize("kind", [*TORCH, *PAIRS])
def test_public_model_embeds_as_its_library(kind, layouts, loaded):
    """Images and texts, through preprocessing and tokenizer, alone and in batches."""
    layout, model = layouts(kind), loaded(kind)
    assert isinstance(model, OnnxPair if kind in PAIRS else VSEModel)
    assert model.embed_size == layout.size
    images, texts = model.encode_images(PICTURES, batch_size=2), model.encode_texts(TEXTS, batch_size=3)
    assert_unit(images, len(PICTURES), layout.size)
    assert_unit(texts, len(TEXTS), layout.size)
    with torch.no_grad():
        np.testing.assert_allclose(images, unit(layout.images(PICTURES)), atol=TOLERANCE)
        np.testing.assert_allclose(texts, unit(layout.texts(TEXTS)), atol=TOLERANCE)
    np.testing.assert_allclose(model.encode_texts(TEXTS[:1]), texts[:1], atol=TOLERANCE)
    np.testing.assert_allclose(model.encode_images(PICTURES[1:2]), images[1:2], atol=TOLERANCE)


@pytest.mark.parametrize("kind", [*TORCH, *PAIRS])
def test_public_model_has_no_evidence_and_no_coefficients(kind, layouts, loaded):
    """Images, texts and videos by their frames; a probability would need a calibration."""
    can = loaded(kind).capabilities
    assert (can.images, can.texts, can.videos, can.evidence, can.features) == (True, True, True, False, False)
    assert coefficients_of(top(kind, layouts(kind))) is None
    with pytest.raises(VSEError, match="no evidence"):
        loaded(kind).cell_contributions(np.zeros((1, 3, 32, 32), np.float32))


@pytest.mark.parametrize("kind", TORCH)
def test_public_model_survives_saving(kind, layouts, loaded, tmp_path):
    """The copy needs no file of the original, has its fingerprint and is still marked as foreign."""
    model = loaded(kind)
    model.save(tmp_path / "copy")
    copy = vse.load(tmp_path / "copy")
    assert copy.fingerprint() == model.fingerprint()
    assert copy.config == model.config
    np.testing.assert_array_equal(copy.encode_images(PICTURES), model.encode_images(PICTURES))
    np.testing.assert_array_equal(copy.encode_texts(TEXTS), model.encode_texts(TEXTS))
    assert coefficients_of(tmp_path / "copy") is None
    assert copy.config.foreign["source"] == str(top(kind, layouts(kind)))


@pytest.mark.parametrize("kind", ["clip", "open_clip", "transformers.js"])
def test_public_model_fingerprint_depends_on_weights(kind, layouts, loaded, tmp_path):
    """Not on the folder."""
    shutil.copytree(top(kind, layouts(kind)), tmp_path / "moved")
    assert vse.load(tmp_path / "moved").fingerprint() == loaded(kind).fingerprint()
    other = make(kind, tmp_path, seed=1)
    assert vse.load(other.folder).fingerprint() != loaded(kind).fingerprint()


def test_public_sharded_weights_are_in_several_files(layouts, loaded):
    """The index lists them; the model equals the one of a single file."""
    folder = layouts("sharded").folder
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    assert not (folder / "model.safetensors").exists()
    assert loaded("sharded").fingerprint() == loaded("siglip").fingerprint()


def test_public_model_prefers_torch_to_onnx(layouts, tmp_path, monkeypatch):
    """With safetensors and ONNX files, the install decides; a precision asks for ONNX."""
    folder = Path(shutil.copytree(layouts("transformers.js").folder, tmp_path / "both"))
    shutil.copy(layouts("clip").folder / "model.safetensors", folder)
    assert isinstance(vse.load(folder), VSEModel)
    assert foreign.recognise_folder(folder, precision="fp32").kind == "transformers.js"
    find = foreign.find_spec
    monkeypatch.setattr(foreign, "find_spec", lambda name: None if name == "torch" else find(name))
    pair = vse.load(folder)
    assert isinstance(pair, OnnxPair)
    np.testing.assert_allclose(
        pair.encode_texts(TEXTS), vse.load(layouts("transformers.js").folder).encode_texts(TEXTS), atol=1e-6
    )


def test_public_onnx_files_are_chosen_by_precision(layouts, tmp_path):
    """The most precise by default; one that is not there is refused with a list of those that are."""
    folder = Path(shutil.copytree(layouts("transformers.js").folder, tmp_path / "several"))
    for tower in ("vision", "text"):
        shutil.copy(folder / f"onnx/{tower}_model.onnx", folder / f"onnx/{tower}_model_quantized.onnx")
    assert foreign.recognise_folder(folder).pair == ("onnx/vision_model.onnx", "onnx/text_model.onnx")
    chosen = foreign.recognise_folder(folder, precision="int8").pair
    assert chosen == ("onnx/vision_model_quantized.onnx", "onnx/text_model_quantized.onnx")
    with pytest.raises(InputError, match=r"no ONNX files in fp16; it has onnx/vision_model\.onnx"):
        foreign.recognise_folder(folder, precision="fp16")
