"""A model's folder is described without torch: its configuration, the head of its weights, its curves."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.inputs.vocabulary import FIRST, Vocabulary
from vse.models.card import save_with_card
from vse.models.config import About, BiGRUConfig, GridConfig, ModelConfig, RegionConfig, Score
from vse.models.inspection import inspect_folder, read_header
from vse.models.learned_curves import curves_of
from vse.models.vse_model import VSEModel

safetensors = pytest.importorskip("safetensors.torch")

ABOUT = About(
    name="Toy",
    data="generated scenes",
    recipe={"lr": 5e-4},
    scores=(Score(protocol="5K", data="coco", split="testall", values={"rsum": 402.25}),),
    notes=("trained for a test",),
)


def tiny(about: About = ABOUT) -> VSEModel:
    tokenizer = Vocabulary((*FIRST, "a", "dog", "red", "runs")).tokenizer()
    text = BiGRUConfig(vocabulary_size=9, word_size=5)
    config = ModelConfig(embed_size=16, image=RegionConfig(feature_size=8, hidden_size=4), text=text, about=about)
    return VSEModel.build(config, tokenizer)


@pytest.fixture(scope="module")
def model() -> VSEModel:
    return tiny()


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    return save_with_card(model, tmp_path_factory.mktemp("models") / "toy", draw=False)


@pytest.fixture
def folder(saved, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(saved, tmp_path / "toy")


def change(path, **values):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | values))


def test_inspection_reports_the_model(model, saved):
    """Sizes, counts, poolings, inputs, data, scores and curves are those of the live model."""
    report = inspect_folder(saved)
    assert (report.runtime, report.embed_size, report.fingerprint) == ("torch", 16, model.fingerprint())
    image, text = report.towers
    assert (image.tower, image.kind, image.feature_size, image.pooling) == ("image", "region", 8, "gpo")
    assert (text.tower, text.kind, text.feature_size, text.pooling) == ("text", "bigru", 5, "gpo")
    assert image.parameters == sum(p.numel() for p in model.image_encoder.parameters())
    assert text.parameters == sum(p.numel() for p in model.text_encoder.parameters())
    assert report.preprocessing is None
    assert (report.tokenizer.kind, report.tokenizer.vocab_size) == ("words", 9)
    assert report.about == ABOUT
    assert report.curves == tuple(curves_of(model))
    assert report.file_sizes == {"model.safetensors": (saved / "model.safetensors").stat().st_size}


def test_inspection_reports_backbone_and_preprocessing(tmp_path):
    """What the configuration does not hold, the width of a cell, comes from the weights."""
    backbone = {"name": "caffe-resnet", "options": {"blocks": [1, 1, 1, 1], "width": 2}}
    image = GridConfig(backbone=backbone, image_size=64, pooling={"name": "k-max", "options": {"k": 2}})
    model = VSEModel.build(ModelConfig(embed_size=4, image=image, text=BiGRUConfig(vocabulary_size=9, word_size=5)))
    report = inspect_folder(save_with_card(model, tmp_path / "grid", draw=False))
    tower = report.towers[0]
    assert tower.feature_size == model.feature_size == 64
    assert tower.parameters == sum(p.numel() for p in model.image_encoder.parameters())
    assert "caffe-resnet" in tower.network
    assert tower.pooling == "k-max (k = 2)"
    assert report.preprocessing == model.preprocessing


def test_inspection_json_is_plain_and_finite(folder):
    """The report is one JSON object; a figure that is no number becomes null."""
    about = ABOUT.model_dump(mode="json")
    about["scores"][0]["values"]["rsum"] = float("nan")
    change(folder / "config.json", about=about)
    value = json.loads(json.dumps(inspect_folder(folder).to_json(), allow_nan=False))
    assert value["about"]["scores"][0]["values"]["rsum"] is None
    assert value["tokenizer"] == {"kind": "words", "vocab_size": 9, "max_length": 128}
    assert [tower["tower"] for tower in value["towers"]] == ["image", "text"]
    assert {"label", "likeness", "name", "k"} == set(value["curves"][0]["nearest"])
    assert value["plot"] is None


def test_inspection_without_curves(folder):
    """A folder from before curves were written says that they are absent."""
    (folder / "pooling_curves.json").unlink()
    report = inspect_folder(folder)
    assert report.curves == ()


def export(folder, **values):
    """What ``vse export`` leaves in a folder, as far as it is read here."""
    source = json.loads((folder / "config.json").read_text())
    config = {"runtime": "onnx", "precision": "int8", "embed_size": 16, "feature_size": 8, "preprocessing": None}
    (folder / "config.json").write_text(json.dumps(config | {"source": source, "fingerprint": "abc-int8"} | values))
    (folder / "model.safetensors").unlink()
    (folder / "image.onnx").write_bytes(b"12345")
    (folder / "text.onnx").write_bytes(b"123")


def test_inspection_of_export_reports_source_model(folder):
    """Its towers are those of the source, its fingerprint and precision are its own."""
    export(folder)
    report = inspect_folder(folder)
    assert (report.runtime, report.precision, report.fingerprint) == ("onnx", "int8", "abc-int8")
    assert report.file_sizes == {"image.onnx": 5, "text.onnx": 3}
    assert [tower.parameters for tower in report.towers] == [None, None]
    assert report.about == ABOUT
    assert report.curves


def test_inspection_of_export_without_source(folder):
    """What is there is shown and nothing is required."""
    export(folder, source=None)
    report = inspect_folder(folder)
    assert (report.towers, report.embed_size) == ((), 16)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"config\.json: no such file"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config\.json: not JSON"),
        (lambda folder: change(folder / "config.json", runtime="tpu"), r"'tpu'.*'torch', 'onnx'"),
        (lambda folder: change(folder / "config.json", embed_sise=3), "'embed_sise'.*did you mean 'embed_size'"),
        (lambda folder: change(folder / "config.json", fingerprint="other"), "belong to different models"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors: no such file"),
        (lambda folder: (folder / "pooling_curves.json").write_text("{}"), r"pooling_curves\.json"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), r"tokenizer\.json"),
    ],
)
def test_inspection_names_broken_folder(folder, spoil, message):
    """Whatever is wrong with a folder is one line that names the file."""
    spoil(folder)
    with pytest.raises(InputError, match=message) as caught:
        inspect_folder(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_safetensors_header_has_shapes_and_metadata(tmp_path):
    """Shapes of all kinds of tensors are read, scalars and empty ones too."""
    tensors = {"a": torch.zeros(2, 3), "b": torch.zeros(()), "c": torch.zeros(0, 4, dtype=torch.float16)}
    safetensors.save_file(tensors, tmp_path / "x.safetensors", metadata={"k": "v"})
    shapes, metadata = read_header(tmp_path / "x.safetensors")
    assert shapes == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert metadata == {"k": "v"}


@given(data=st.data())
def test_safetensors_of_wrong_length_is_refused(saved, tmp_path_factory, data):
    """At whatever byte a file ends too early or too late, its sizes do not agree with its header."""
    whole = (saved / "model.safetensors").read_bytes()
    end = data.draw(st.integers(0, 3000) | st.integers(0, len(whole) - 1) | st.integers(len(whole) + 1, len(whole) + 9))
    path = tmp_path_factory.mktemp("cut") / "model.safetensors"
    path.write_bytes((whole + bytes(9))[:end])
    with pytest.raises(InputError, match=f"not a complete safetensors file, {end} bytes"):
        read_header(path)


@pytest.mark.parametrize(
    "head", [b"[]", b"{not json", b'{"a": 3}', b'{"a": {"shape": [1]}}', b'{"a": {"shape": 1, "data_offsets": [0]}}']
)
def test_invalid_safetensors_header_is_refused(tmp_path, head):
    """A header that is no description of tensors is an error, not a traceback."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(head)) + head)
    with pytest.raises(InputError, match="not a complete safetensors file"):
        read_header(path)


def test_inspection_never_loads_torch(saved):
    """A model is inspected in an install without torch and safetensors."""
    code = (
        "import sys; sys.modules.update(torch=None, safetensors=None);"
        "from vse.models.inspection import inspect_folder;"
        "print(inspect_folder(sys.argv[1]).towers[0].kind)"
    )
    command = [sys.executable, "-c", code, str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "region\n"), done.stderr
