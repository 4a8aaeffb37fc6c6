"""Public models that cannot be used: one line that names the folder, and nothing is left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models import published

import vse
from vse.errors import InputError

LIMIT = 500  # characters of a message


def use(folder: Path) -> None:
    model = vse.load(folder)
    model.encode_images([np.zeros((40, 40, 3), np.uint8)])  # an ONNX file is opened on first use
    model.encode_texts(["a dog"])


def refused(folder: Path, *said: str) -> None:
    """Loading fails in one line with the folder and each of ``said``; the folder stays as it is."""
    before = sorted(path for path in folder.rglob("*"))
    with pytest.raises(InputError) as caught:
        use(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < LIMIT
    assert str(folder) in message, message
    for part in said:
        assert part in message, message
    assert sorted(path for path in folder.rglob("*")) == before


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_part(path: Path, part: str, **values: Any) -> None:
    content = json.loads(path.read_text())
    change(path, **{part: content[part] | values})


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Folders by layout, each made once."""
    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            folder = tmp_path_factory.mktemp("original") / "model"
            if kind == "open_clip":
                published.save_open_clip(folder)
            elif kind == "transformers.js":
                published.save_transformers_js(folder)
            elif kind == "immich":
                published.save_immich(folder)
            else:
                published.save_transformers(folder, kind)
            made[kind] = folder
        return made[kind]

    return get


@pytest.fixture
def copied(originals, tmp_path):
    """A copy of a layout that a test may spoil."""

    def get(kind: str) -> Path:
        return Path(shutil.copytree(originals(kind), tmp_path / "model"))

    return get


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("kind", "spoil", "said"),
    [
        ("siglip", lambda top: (top / "model.safetensors").unlink(), "weights are missing"),
        ("open_clip", lambda top: (top / "open_clip_model.safetensors").unlink(), "weights are missing"),
        ("siglip", lambda top: cut(top / "model.safetensors"), "safetensors"),
        ("siglip", lambda top: (top / "model.safetensors").write_bytes(b""), "safetensors"),
        ("open_clip", lambda top: cut(top / "open_clip_model.safetensors"), "not a complete safetensors"),
        ("siglip", lambda top: (top / "config.json").write_text('{"model_type": "sig'), "config.json"),
        ("siglip", lambda top: (top / "config.json").write_text("[]"), "config.json"),
        ("siglip", lambda top: (top / "preprocessor_config.json").unlink(), "preprocessor_config.json"),
        ("siglip", lambda top: (top / "preprocessor_config.json").write_text("[1]"), "preprocessor_config.json"),
        ("siglip", lambda top: (top / "tokenizer.json").unlink(), "no tokenizer"),
        ("siglip", lambda top: (top / "tokenizer.json").write_text("{}"), "tokenizer.json"),
        ("open_clip", lambda top: (top / "open_clip_config.json").write_text("{"), "open_clip_config.json"),
        ("open_clip", lambda top: (top / "open_clip_config.json").write_text("{}"), "model_cfg"),
        ("immich", lambda top: (top / "textual/tokenizer.json").unlink(), "tokenizer.json"),
        ("immich", lambda top: (top / "visual/preprocess_cfg.json").unlink(), "preprocess_cfg.json"),
        ("immich", lambda top: (top / "textual/model.onnx").write_bytes(b"x"), "textual/model.onnx"),
        ("transformers.js", lambda top: (top / "onnx/text_model.onnx").unlink(), "weights are missing"),
        ("transformers.js", lambda top: cut(top / "onnx/text_model.onnx"), "text_model.onnx"),
    ],
)
def test_incomplete_public_model_is_refused(copied, kind, spoil, said):
    """Half of a download, or a file that was cut."""
    folder = copied(kind)
    spoil(folder)
    refused(folder, said)


def test_public_model_with_missing_shard_is_refused(copied, tmp_path):
    """The message names the shard."""
    model, *_ = published.save_transformers(tmp_path / "model", "siglip")
    (tmp_path / "model/model.safetensors").unlink()
    model.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    last = max((tmp_path / "model").glob("model-*.safetensors"))
    last.unlink()
    refused(tmp_path / "model", f"{last.name} is missing")


@pytest.mark.parametrize("listed", ["[]", '{"weight_map": []}', "{}"])
def test_public_model_with_empty_index_of_shards_is_refused(copied, listed):
    """An index without weights is no model."""
    folder = copied("siglip")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(listed)
    refused(folder, "model.safetensors.index.json")


def test_public_model_with_shard_outside_of_its_folder_is_refused(copied):
    """A file elsewhere is never opened."""
    folder = copied("siglip")
    (folder / "model.safetensors").rename(folder.parent / "other.safetensors")
    index = {"metadata": {}, "weight_map": {"logit_scale": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(folder, "outside")


class TestMismatches:
    """Files of different models."""

    def test_public_tokenizer_of_another_model_is_refused(self, copied, originals):
        """More tokens than the text tower has embeddings of."""
        folder = copied("siglip")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(originals("chinese_clip") / name, folder)
        refused(folder, "30522 tokens", "different models")

    def test_public_onnx_towers_of_different_widths_are_refused(self, copied, tmp_path):
        """Each graph is fine by itself."""
        import onnx
        from onnx import helper

        folder = copied("immich")
        ids = helper.make_tensor_value_info("text", onnx.TensorProto.INT32, ["batch", 77])
        out = helper.make_tensor_value_info("embedding", onnx.TensorProto.FLOAT, ["batch", 77])
        cast = helper.make_node("Cast", ["text"], ["embedding"], to=onnx.TensorProto.FLOAT)
        graph = helper.make_graph([cast], "text", [ids], [out])
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "textual/model.onnx")
        refused(folder, "12 dimensions", "77", "different models")

    def test_public_siglip_with_another_text_projection_is_refused(self, copied):
        """Images and texts would have different sizes."""
        folder = copied("siglip")
        change_part(folder / "config.json", "text_config", projection_size=10)
        refused(folder, "16 dimensions", "10")

    def test_public_clip_with_another_projection_is_refused(self, copied):
        """The weights decide: a size of the configuration that differs from theirs would leave random weights."""
        folder = copied("clip")
        change(folder / "config.json", projection_dim=20)
        refused(folder, "projection")

    def test_public_open_clip_with_other_weights_is_refused(self, copied):
        """Width of the configuration and of the tensors differ."""
        folder = copied("open_clip")
        change_part(folder / "open_clip_config.json", "model_cfg", embed_dim=10)
        refused(folder, "do not fit open_clip_config.json")


class TestKinds:
    """Models of other kinds."""

    def test_public_model_of_pickles_is_refused(self, copied):
        """The message names the file and what to use."""
        folder = copied("siglip")
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        refused(folder, "pytorch_model.bin", "safetensors")

    @pytest.mark.parametrize("model_type", ["bert", "llava", "siglip2", None, 3, ["clip"]])
    def test_public_model_of_unknown_type_is_refused(self, copied, model_type):
        """The message names the type; for SigLIP 2 NaFlex a model to use instead."""
        folder = copied("siglip")
        change(folder / "config.json", model_type=model_type)
        said = "google/siglip2-base-patch16-224" if model_type == "siglip2" else str(model_type or "config.json")
        refused(folder, said)

    @pytest.mark.parametrize("path", ["../other", "/etc", "0/../../x"])
    def test_sentence_transformers_module_outside_is_refused(self, tmp_path, path):
        """Its path is not followed."""
        modules = [{"path": path, "type": "sentence_transformers.models.CLIPModel"}]
        (tmp_path / "modules.json").write_text(json.dumps(modules))
        refused(tmp_path, repr(path), "outside")

    @pytest.mark.parametrize("modules", ['[{"path": "", "type": "sentence_transformers.models.Transformer"}]', "{}"])
    def test_sentence_transformers_of_texts_is_refused(self, tmp_path, modules):
        """No image tower."""
        (tmp_path / "modules.json").write_text(modules)
        refused(tmp_path, "no image tower")

    def test_sentence_transformers_with_absent_module_is_refused(self, tmp_path):
        """The folder of the CLIP model was not downloaded."""
        modules = [{"path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}]
        (tmp_path / "modules.json").write_text(json.dumps(modules))
        refused(tmp_path)

    def test_rclip_without_vocabulary_is_refused(self, tmp_path):
        """It is looked for beside the files and one folder up."""
        folder = tmp_path / "deep/model"
        folder.mkdir(parents=True)
        for name in ("visual.onnx", "textual.onnx"):
            (folder / name).write_bytes(b"x")
        refused(folder, "bpe_simple_vocab_16e6.txt.gz is missing")

    def test_folder_with_name_of_hub_model_points_to_the_hub(self, tmp_path, monkeypatch):
        """A local folder hides the hub, unless the name has the prefix."""
        (tmp_path / "owner/model").mkdir(parents=True)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InputError, match="hub:owner/model"):
            vse.load("owner/model")


def test_saved_dual_encoders_name_no_code_and_no_hub():
    """Keys that would fetch attention kernels or classes are ignored; a text tower of the hub is refused unasked."""
    from tests.models.published import TOWER, open_clip_config

    from vse.encoders import dual
    from vse.models import foreign

    assert dual.MODEL_TYPES == foreign.MODEL_TYPES
    text = {**TOWER, "vocab_size": 30, "attn_implementation": "somebody/kernels"}
    config = {
        "model_type": "clip",
        "text_config": text,
        "_attn_implementation": "somebody/kernels",
        "auto_map": {"x": "y"},
    }
    network = dual.create_dual("transformers", config)
    assert "somebody" not in str(network.config.to_dict())
    open_clip = open_clip_config()
    open_clip["text_cfg"]["hf_model_name"] = "somebody/encoder"
    with pytest.raises(InputError, match="somebody/encoder"):
        dual.create_dual("open_clip", open_clip)


def test_missing_onnx_precision_does_not_matter_for_torch_weights():
    """Only a repository without weights for torch is refused for it."""
    from vse.models.foreign import recognise

    names = ["config.json", "onnx/vision_model.onnx", "onnx/text_model.onnx"]
    with pytest.raises(InputError, match="no ONNX files in fp16"):
        recognise(names, lambda name: {"model_type": "clip"}, "owner/model", precision="fp16")
    found = recognise(
        [*names, "model.safetensors"], lambda name: {"model_type": "clip"}, "owner/model", precision="fp16"
    )
    assert found is not None
    assert found.pair is None
