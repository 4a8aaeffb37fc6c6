"""``vse inspect`` of public models: what their files say, without torch and without loading weights."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.models import published

import vse
from vse.cli.main import main
from vse.errors import InputError
from vse.models.hub import push_saved
from vse.models.inspection import inspect_folder

KINDS = ("siglip", "open_clip", "immich", "rclip")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders by layout, each made once."""
    top = tmp_path_factory.mktemp("public")
    for kind in KINDS:
        (top / kind).mkdir()
    published.save_transformers(top / "siglip", "siglip")
    published.save_open_clip(top / "open_clip")
    published.save_immich(top / "immich")
    published.save_rclip(top / "rclip")
    return top


@pytest.mark.parametrize("kind", KINDS)
def test_inspection_of_public_model_agrees_with_loading(kind, folders):
    """Runtime, sizes, inputs and capabilities are those of the loaded model."""
    report, model = inspect_folder(folders / kind), vse.load(folders / kind)
    onnx = kind in {"immich", "rclip"}
    assert (report.runtime, report.foreign, report.confidence) == ("onnx" if onnx else "torch", True, None)
    assert report.embed_size in {None, model.embed_size}
    assert (report.embed_size is None) == (kind == "rclip")
    assert report.preprocessing == model.preprocessing
    assert report.tokenizer.to_json() == model.tokenizer.to_json()
    assert report.capabilities == model.capabilities
    assert [tower.network for tower in report.towers] == [f"{kind}, image half", f"{kind}, text half"]
    assert sum(report.file_sizes.values()) > 1000
    assert json.loads(json.dumps(report.to_json()))["foreign"] is True
    if not onnx:
        counted = [sum(p.numel() for p in half.parameters()) for half in (model.image_encoder, model.text_encoder)]
        ours = [tower.parameters for tower in report.towers]
        assert all(0 <= found - expected <= 2 for found, expected in zip(ours, counted, strict=True))  # temperatures


def test_inspection_of_saved_public_model_has_its_towers(folders, tmp_path):
    """A copy in our format is described like any other model of ours."""
    model = vse.load(folders / "siglip")
    model.save(tmp_path / "copy")
    report = inspect_folder(tmp_path / "copy")
    assert (report.foreign, report.embed_size, report.fingerprint) == (True, model.embed_size, model.fingerprint())
    assert report.preprocessing == model.preprocessing
    assert report.capabilities == model.capabilities
    assert [tower.kind for tower in report.towers] == ["dual", "dual"]


def test_inspect_command_prints_public_model(folders, capsys):
    """As tables and as JSON."""
    assert main(["inspect", str(folders / "siglip")]) == 0
    assert "siglip, image half" in capsys.readouterr().out
    assert main(["inspect", str(folders / "immich"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runtime"] == "onnx"


def test_inspection_of_public_model_never_loads_torch(folders):
    """Nor transformers."""
    code = (
        "import sys; sys.modules.update(torch=None, transformers=None, safetensors=None);"
        "from vse.models.inspection import inspect_folder;"
        "print(inspect_folder(sys.argv[1]).runtime)"
    )
    command = [sys.executable, "-c", code, str(folders / "siglip")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "torch\n"), done.stderr


def test_inspection_refuses_cut_weights_of_public_model(tmp_path):
    """The header of a safetensors file announces its length."""
    published.save_transformers(tmp_path, "siglip")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match="not a complete safetensors file"):
        inspect_folder(tmp_path)


def test_public_model_is_not_pushed_as_it_is(folders):
    """A repository of ours holds models in our format."""
    with pytest.raises(InputError, match="a model of others"):
        push_saved(folders / "siglip", "owner/model")
