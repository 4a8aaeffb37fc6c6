"""Public models on the hub: judged by their configuration before any weight is fetched. Nothing uses a network."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from tests.models import published
from tests.support_hub import fake_hub

import vse
from vse.errors import InputError
from vse.models.fetch import download

UNWANTED = ("pytorch_model.bin", "modeling_custom.py", "training_args.pt", "tf_model.h5", "flax_model.msgpack", "a.jpg")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub") / "siglip"
    published.save_transformers(folder, "siglip")
    for name in UNWANTED:
        (folder / name).write_bytes(b"x")
    (folder / "README.md").write_text("a card")
    return folder


@pytest.fixture
def online(original, monkeypatch, tmp_path):
    """A hub with a copy of a public model that a test may spoil."""
    return fake_hub(monkeypatch, shutil.copytree(original, tmp_path / "online"), tmp_path / "cache")


def refused(source: str, *said: str, **options) -> str:
    with pytest.raises(InputError) as caught:
        vse.load(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in said:
        assert part in message, message
    return message


def test_hub_model_is_judged_before_its_weights(online, original):
    """The list of files, then the configuration, then everything that is needed and nothing else."""
    model = vse.load("owner/model", revision="v2")
    assert [(function, what) for function, what, _ in online.asked] == [
        ("list", "owner/model"),
        ("file", "config.json"),
        ("snapshot", "owner/model"),
    ]
    assert {options["revision"] for *_, options in online.asked} == {"v2"}
    needed = {"config.json", "model.safetensors", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert set(online.fetched) == {*needed, "README.md"}
    (patterns,) = (options["allow_patterns"] for options in online.options("snapshot"))
    assert not any("*" in pattern or pattern in UNWANTED for pattern in patterns)
    assert model.config.foreign["source"] == "owner/model"
    assert model.config.foreign["revision"] == "v2"
    assert model.fingerprint() == vse.load(original).fingerprint()


@pytest.mark.parametrize("model_type", ["bert", "llava", "siglip2"])
def test_hub_model_of_unknown_type_downloads_nothing_else(online, model_type):
    """The configuration is all that is fetched."""
    config = json.loads((online.folder / "config.json").read_text())
    (online.folder / "config.json").write_text(json.dumps(config | {"model_type": model_type}))
    refused("owner/model", "owner/model", "NaFlex" if model_type == "siglip2" else repr(model_type))
    assert online.fetched == ["config.json"]
    assert online.options("snapshot") == []


@pytest.mark.parametrize("content", ["{", "[]"])
def test_hub_model_with_broken_configuration_downloads_nothing_else(online, content):
    """Named with the id."""
    (online.folder / "config.json").write_text(content)
    refused("owner/model", "owner/model", "config.json")
    assert online.fetched == ["config.json"]


def test_hub_model_of_pickles_downloads_no_weights(online):
    """The message names the file."""
    (online.folder / "model.safetensors").unlink()
    refused("owner/model", "owner/model", "pytorch_model.bin", "safetensors")
    assert online.fetched == ["config.json"]


def test_hub_model_with_missing_shard_downloads_no_weights(online):
    """The index is judged against the list of files."""
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (online.folder / "model.safetensors").rename(online.folder / "model-00001-of-00002.safetensors")
    (online.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused("owner/model", "owner/model", "no model-00002-of-00002.safetensors")
    assert online.fetched == ["config.json", "model.safetensors.index.json"]


def test_hub_model_of_texts_downloads_no_weights(online):
    """A sentence-transformers model without images."""
    (online.folder / "modules.json").write_text('[{"path": "", "type": "sentence_transformers.models.Transformer"}]')
    refused("owner/model", "owner/model", "no image tower")
    assert "model.safetensors" not in online.fetched


def test_hub_cache_is_the_fallback_for_public_models(online):
    """Fetched once, it answers without a network, at the same revision."""
    before = vse.load("owner/model", revision="v2").encode_texts(["a dog"])
    online.down = True
    online.asked.clear()
    np.testing.assert_array_equal(vse.load("owner/model", revision="v2").encode_texts(["a dog"]), before)
    assert [(name, options["revision"]) for name, _, options in online.asked] == [("list", "v2"), ("snapshot", "v2")]


def test_public_model_without_network_and_cache_is_refused(online):
    """One line with the id, the revision and the reason."""
    online.down = True
    refused("owner/model", "'owner/model'", "'v2'", "cannot reach the hub", revision="v2")
    assert online.fetched == []


def test_interrupted_download_of_public_model_is_refused(online):
    """The cache holds the configuration, but no weights."""
    online.cache.mkdir()
    shutil.copy(online.folder / "config.json", online.cache)
    online.down = True
    refused("owner/model", "missing")


def test_hub_prefix_passes_a_local_folder(online, tmp_path, monkeypatch):
    """``hub:`` is never a folder."""
    (tmp_path / "owner/model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    refused("owner/model", "hub:owner/model")
    assert online.asked == []
    assert vse.load("hub:owner/model").embed_size == published.WIDTH
    refused("hub:nothing", "hub:nothing", "hub:owner/model")


def test_hub_model_of_one_precision_fetches_two_towers(monkeypatch, tmp_path):
    """Of many ONNX files only the pair that is asked for is downloaded, with its external data."""
    folder = tmp_path / "online"
    (folder / "onnx").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "clip"}')
    for ending in ("", "_fp16", "_quantized", "_q4"):
        for tower in ("vision_model", "text_model", "model"):
            (folder / f"onnx/{tower}{ending}.onnx").write_bytes(b"x")
    (folder / "onnx/vision_model_fp16.onnx_data").write_bytes(b"x")
    online = fake_hub(monkeypatch, folder, tmp_path / "cache")
    download("owner/model", precision="fp16")
    towers = ["onnx/text_model_fp16.onnx", "onnx/vision_model_fp16.onnx", "onnx/vision_model_fp16.onnx_data"]
    assert online.fetched == ["config.json", *towers]
