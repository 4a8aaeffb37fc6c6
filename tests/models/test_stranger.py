"""A model folder from a stranger: it reaches no network, runs no code, and is not larger than its files."""

from __future__ import annotations

import json
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.published import save_open_clip, save_transformers
from tests.support_models import BERT, SIZE, bert_config, build, draw_nothing, grid_config, write_wordpieces

import vse
from vse.encoders.third_party import offline
from vse.errors import InputError
from vse.inputs.pretrained import pretrained_tokenizer

VIT = {
    "model_type": "vit",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "image_size": 32,
    "patch_size": 16,
}


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every name that is resolved and every address that is connected to; none succeeds."""
    calls: list[Any] = []

    def refuse(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    draw_nothing(monkeypatch)
    return calls


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a transformer for images and one for texts."""
    top = tmp_path_factory.mktemp("stranger")
    image = grid_config(backbone={"name": "transformers", "options": {"architecture": VIT}}, image_size=32)
    tokenizer = pretrained_tokenizer(write_wordpieces(top / "words"))
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        return build(image, bert_config(), tokenizer=tokenizer).save(top / "model")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "model")


def change(folder: Path, part: str, **values: Any) -> None:
    """Change the architecture of a tower."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    place = config["text"] if part == "text" else config["image"]["backbone"]["options"]
    place["architecture"] = {**place["architecture"], **values}
    path.write_text(json.dumps(config))


def refused(folder: Path, *said: str) -> None:
    with pytest.raises(InputError) as caught:
        vse.load(folder)
    assert "\n" not in str(caught.value)
    for part in (str(folder), *said):
        assert part in str(caught.value)


HUB_BACKBONES = [
    {"model_type": "dpt", "backbone": "somebody/backbone", "use_pretrained_backbone": True},
    {"model_type": "maskformer", "backbone_config": {"model_type": "swin"}},
    {"model_type": "timm_backbone", "backbone": "resnet18", "use_pretrained_backbone": True},
]


@pytest.mark.parametrize("part", ["text", "image"])
@pytest.mark.parametrize("values", HUB_BACKBONES, ids=lambda values: values["model_type"])
def test_stranger_architecture_with_hub_backbone_is_refused(folder, asked, part, values):
    """A type outside of the list is one line, and nobody is asked for its backbone."""
    change(folder, part, **values)
    refused(folder, values["model_type"], "not supported")
    assert not asked


@pytest.mark.parametrize("part", ["text", "image"])
def test_stranger_key_that_names_other_files_is_refused(folder, asked, part):
    change(folder, part, backbone="somebody/backbone")
    refused(folder, "other files ('backbone')")
    assert not asked


@pytest.mark.parametrize("part", ["text", "image"])
def test_stranger_attention_kernels_are_ignored(folder, saved, asked, part):
    """Kernels of the hub are not loaded: the embeddings are those of the untouched model."""
    change(
        folder, part, attn_implementation="somebody/kernels", _attn_implementation="x/y", auto_map={"AutoModel": "x"}
    )
    found, expected = (vse.load(each).encode_texts(["a dog runs"]) for each in (folder, saved))
    assert (found == expected).all()
    assert not asked


@pytest.mark.parametrize("part", ["text", "image"])
@pytest.mark.parametrize(
    "values",
    [
        {"num_hidden_layers": 10_000_000},
        {"num_hidden_layers": 10**12},
        {"hidden_size": 100_000, "intermediate_size": 400_000},
        {"intermediate_size": 10**9},
        {"num_hidden_layers": 1e300},
    ],
    ids=str,
)
def test_stranger_sizes_are_refused_before_building(folder, part, values):
    """A network that is far larger than its file takes neither time nor memory."""
    change(folder, part, **values)
    refused(folder)


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        ("text", {"model_type": "squeezebert", "embedding_size": 8}, "AssertionError"),
        ("image", {"patch_size": 0}, "ZeroDivisionError"),
    ],
)
def test_stranger_network_that_cannot_be_built_is_one_line(folder, part, values, said):
    """Whatever a library raises for a configuration is a typed error."""
    change(folder, part, **values)
    refused(folder, said)


def test_stranger_option_that_repeats_the_name_is_one_line(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["image"]["backbone"]["options"]["name"] = "timm:resnet18"
    path.write_text(json.dumps(config))
    refused(folder, "multiple values for argument 'name'")


def test_stranger_vocabulary_is_refused_before_building(folder):
    change(folder, "text", vocab_size=2_000_000_000)
    refused(folder, "parameters", "tensors")


def test_stranger_layers_in_a_list_are_refused_before_building(tmp_path):
    """The options of any backbone are bounded, not those of transformers alone."""
    model = build(grid_config()).save(tmp_path / "model")
    path = model / "config.json"
    config = json.loads(path.read_text())
    config["image"]["backbone"]["options"]["blocks"] = [1, 1, 10_000_000, 1]
    path.write_text(json.dumps(config))
    refused(model, "'blocks' is 10000000")


def test_stranger_word_embedding_is_refused_before_building(tmp_path):
    model = build().save(tmp_path / "model")
    path = model / "config.json"
    config = json.loads(path.read_text())
    config["text"] |= {"vocabulary_size": 10_000_000, "word_size": 100_000}
    path.write_text(json.dumps(config))
    refused(model, "they belong to different models")


class TestPublished:
    """Folders in the form of others are judged in the same way."""

    def test_published_attention_kernels_are_ignored(self, tmp_path, asked):
        save_transformers(tmp_path, attn_implementation=None)
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "attn_implementation": "somebody/kernels"}))
        assert vse.load(tmp_path).encode_texts(["a dog"]).shape == (1, vse.load(tmp_path).embed_size)
        assert not asked

    @pytest.mark.parametrize("values", [{"num_hidden_layers": 10_000_000}, {"intermediate_size": 10**9}], ids=str)
    def test_published_sizes_are_refused_before_building(self, tmp_path, values):
        save_transformers(tmp_path)
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        config["text_config"] |= values
        path.write_text(json.dumps(config))
        refused(tmp_path, "tensors")

    def test_published_adapter_of_another_model_is_not_fetched(self, tmp_path, asked):
        """transformers would load the base model of an adapter from the hub."""
        save_transformers(tmp_path)
        adapter = {"base_model_name_or_path": "somebody/base", "peft_type": "LORA"}
        (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
        with suppress(InputError):  # with the library of adapters it is refused, without it the file is ignored
            vse.load(tmp_path)
        assert not asked

    @pytest.mark.parametrize(
        ("part", "values", "said"),
        [
            ("text_cfg", {"hf_model_name": "somebody/text", "hf_proj_type": "mlp"}, "somebody/text"),
            ("vision_cfg", {"layers": 10_000_000}, "'layers' is 10000000"),
            ("text_cfg", {"vocab_size": 2_000_000_000}, "parameters"),
        ],
    )
    def test_published_open_clip_asks_nobody(self, tmp_path, asked, part, values, said):
        pytest.importorskip("open_clip")
        save_open_clip(tmp_path)
        path = tmp_path / "open_clip_config.json"
        config = json.loads(path.read_text())
        config["model_cfg"][part] |= values
        path.write_text(json.dumps(config))
        refused(tmp_path, said)
        assert not asked


def test_offline_restores_the_setting_after_an_error():
    """The hub's library is told to stay silent within the context only, nested or not."""
    constants = pytest.importorskip("huggingface_hub.constants")
    before = constants.HF_HUB_OFFLINE

    def fail() -> None:
        with offline():
            assert constants.HF_HUB_OFFLINE
        assert constants.HF_HUB_OFFLINE
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"), offline():
        fail()
    assert before == constants.HF_HUB_OFFLINE


def test_frame_backbone_of_a_model_is_not_fetched(asked):
    """The backbone that a model's folder names comes from a package or the cache, never from the hub."""
    from vse.encoders.video import FrameBackbone

    with pytest.raises(InputError, match="unavailable here"):
        FrameBackbone("timm:resnet18", {}, "0123456789abcdef")
    assert not asked


def test_bert_without_hub_is_the_same_network():
    """Building offline and within bounds changes nothing of an honest model."""
    from vse.encoders.transformer_text import architecture_of, create_transformer

    network = create_transformer(BERT)
    assert create_transformer(architecture_of(network)).config.to_dict() == network.config.to_dict()
    assert network.config.hidden_size == SIZE
    assert all(parameter.device == torch.device("cpu") for parameter in network.parameters())


def test_equal_models_are_equal_files(tmp_path):
    """Metadata is written in a fixed order, so that a resumed run can be compared as files."""
    first = build().save(tmp_path / "first")
    files = {(build().save(tmp_path / str(n)) / "model.safetensors").read_bytes() for n in range(6)}
    assert files == {(first / "model.safetensors").read_bytes()}
