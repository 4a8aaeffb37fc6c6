"""Exports that are damaged or written by a stranger: refused in one line, never a wrong embedding."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vse
from vse.errors import InputError
from vse.inputs.published import published_tokenizer
from vse.models import integrity
from vse.models.sources import MODELS, PREVIOUS

PHOTO = MODELS / "photo"
WORDS = ["a dog on the beach"]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """Return a copy of the bundled model."""
    return Path(shutil.copytree(PHOTO, tmp_path / "photo"))


@pytest.fixture(autouse=True)
def _own_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VSE_HOME", str(tmp_path / "home"))


def damage(path: Path, at: float) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 4
    path.write_bytes(content)


def change(folder: Path, name: str, **values: Any) -> None:
    """Change values of a JSON file, and leave the export unverified, as a stranger's may be."""
    content = json.loads((folder / name).read_text())
    for file in (folder / name, folder / integrity.FILE):
        file.unlink(missing_ok=True)
    (folder / name).write_text(json.dumps(content | values))


@pytest.mark.parametrize("tower", ["image", "text"])
@pytest.mark.parametrize("at", [0.1, 0.5, 0.999])
def test_flipped_bit_of_weights_is_refused(export: Path, tower: str, at: float) -> None:
    """A single bit in the weights would give other embeddings under the same fingerprint."""
    (weights,) = export.glob(f"{tower}-*.onnx.data")
    damage(weights, at)
    model = vse.load(export)
    with pytest.raises(InputError, match="is damaged, its SHA-256"):
        model.encode_texts(WORDS) if tower == "text" else model.encode_images([np.zeros((9, 9, 3), np.uint8)])


def test_flipped_bit_of_tokenizer_is_refused(export: Path) -> None:
    """Another vocabulary is another model."""
    damage(export / "tokenizer.json", 0.5)
    with pytest.raises(InputError, match=r"tokenizer\.json is damaged"):
        vse.load(export).encode_texts(WORDS)


def test_files_are_hashed_once_for_each_state(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second load reads no weights; a changed file is hashed again, and so is any after a week."""
    hashed: list[str] = []
    real = integrity._sha256
    monkeypatch.setattr(integrity, "_sha256", lambda path: [hashed.append(path.name), real(path)][1])
    expected = vse.load(export).encode_texts(WORDS)
    assert {name.partition("-")[0] for name in hashed} == {"text", "text.onnx", "tokenizer.json",
                                                           "tokenizer_settings.json"}  # fmt: skip
    hashed.clear()
    np.testing.assert_array_equal(vse.load(export).encode_texts(WORDS), expected)
    assert hashed == []
    os.utime(export / "text.onnx", ns=(1, 1))
    vse.load(export).encode_texts(WORDS)
    assert hashed == ["text.onnx"]
    later = integrity.time.time() + 8 * 24 * 3600
    monkeypatch.setattr(integrity.time, "time", lambda: later)
    vse.load(export).encode_texts(WORDS)
    assert len(hashed) == 5


def test_bundled_models_match_their_checksums() -> None:
    """Every tower, weight and tokenizer file of the bundled models is listed, and none is damaged."""
    for name in ("photo", *PREVIOUS["photo"]):
        folder = MODELS / name
        listed = json.loads((folder / integrity.FILE).read_text())["sha256"]
        wanted = {path.name for path in folder.iterdir() if ".onnx" in path.name or path.name.startswith("tokenizer")}
        assert listed.keys() == wanted
        for start in ("image", "text", "tokenizer"):
            integrity.verify_files(folder, start)


def test_record_that_cannot_be_written_is_no_error(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a place to remember verified files, they are verified each time."""
    (export.parent / "home").write_text("a file")
    assert vse.load(export).encode_texts(WORDS).shape == (1, 512)


@pytest.mark.parametrize("content", ["[]", "{}", '{"sha256": 1}', '{"sha256": {"text/../../secret": "x"}}', "{" * 9000])
def test_malformed_checksums_are_refused(export: Path, content: str) -> None:
    """They name files beside them, and nothing else is opened."""
    (export / integrity.FILE).unlink()
    (export / integrity.FILE).write_text(content)
    with pytest.raises(InputError):
        vse.load(export).encode_texts(WORDS)


def test_export_of_another_width_is_refused(export: Path) -> None:
    """A configuration that promises other dimensions than the towers have."""
    change(export, "config.json", embed_size=17)
    model = vse.load(export)
    with pytest.raises(InputError, match=r"returns shape \(1, 512\).* says 17 dimensions"):
        model.encode_texts(WORDS)
    with pytest.raises(InputError, match=r"says 17 dimensions"):
        model.encode_images([np.zeros((9, 9, 3), np.uint8)])


@pytest.mark.parametrize(
    "how", [{"size": [100_000, 100_000]}, {"fit": "crop", "crop_ratio": 1e-9}, {"size": [10**18, 1]}]
)
def test_export_of_huge_images_is_refused(export: Path, how: dict[str, Any]) -> None:
    """Sizes that would take all memory."""
    before = json.loads((export / "config.json").read_text())["preprocessing"]
    change(export, "config.json", preprocessing=before | how)
    with pytest.raises(InputError, match="at most 16,777,216"):
        vse.load(export).encode_images([np.zeros((9, 9, 3), np.uint8)])


def test_tokenizer_pattern_that_backtracks_is_an_error(export: Path) -> None:
    """The library panics, which is no Exception in Python."""
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Removed", "invert": False}
    change(export, "tokenizer.json", pre_tokenizer=split)
    with pytest.raises(InputError, match="cannot be tokenized"):
        vse.load(export).encode_texts(["a" * 40 + "b"])


@pytest.mark.parametrize("nested", [False, True])
def test_tokenizer_rules_that_multiply_a_text_are_refused(export: Path, nested: bool) -> None:
    """Nine rules that write ten letters for one make a billion of one letter."""
    rules = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10} for _ in range(9)]
    normalizer: dict[str, Any] = {"type": "Sequence", "normalizers": rules}
    if nested:
        normalizer = {"type": "Sequence", "normalizers": [normalizer, normalizer]}
    change(export, "tokenizer.json", normalizer=normalizer)
    with pytest.raises(InputError, match="64 times longer"):
        vse.load(export).encode_texts(["a dog"])


def test_tokenizer_that_transformers_finds_has_the_same_limits(tmp_path: Path) -> None:
    """A folder without ``tokenizer.json`` may name another file for it: rules that multiply, and one that panics."""
    pytest.importorskip("transformers")
    words = {"<pad>": 0, "a": 1, "<unk>": 2}
    (tmp_path / "vocab.json").write_text(json.dumps(words))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    settings = {"fast_tokenizer_files": ["tokenizer.4.0.0.json"], "pad_token": "<pad>", "model_max_length": 16}
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **settings})
    )
    many = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}] * 9
    for normalizer, reason in (
        ({"type": "Sequence", "normalizers": many}, "64 times longer"),
        ({"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "cannot be read"),
    ):
        pipeline = {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
        }  # fmt: skip
        (tmp_path / "tokenizer.4.0.0.json").write_text(json.dumps(pipeline))
        with pytest.raises(InputError, match=reason):
            published_tokenizer(tmp_path, 16)
