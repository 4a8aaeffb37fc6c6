"""``vse pull``: a public model is fetched once, and afterwards its name means the export."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.models import published
from tests.support_hub import FakeHub, fake_hub

import vse
from vse.convert.pull import folder_name, pull_model
from vse.errors import InputError, VSEError
from vse.models.catalogue import PULLED_FILE, list_models
from vse.models.coefficients import coefficients_of, shipped_coefficients
from vse.models.onnx import OnnxModel
from vse.models.sources import load_torch, model_folder, named_place
from vse.models.vse_model import VSEModel

NAME = "owner/tiny-clip"


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A CLIP for torch and a pair of ONNX files, with cards."""
    folder = tmp_path_factory.mktemp("originals")
    published.save_transformers(folder / "clip")
    published.save_immich(folder / "immich")
    (folder / "clip" / "README.md").write_text("---\nlicense: mit\nlanguage:\n- en\n- de\n---\n# Tiny\n")
    return folder


@pytest.fixture(scope="module")
def exported(originals, tmp_path_factory):
    """The home of pulled models after one pull of the CLIP from a hub."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSE_HOME", str(home))
        hub = fake_hub(patch, originals / "clip", home / "cache")
        report = pull_model(NAME, revision="v1")
    return home, report, hub


@pytest.fixture
def home(exported, tmp_path, monkeypatch):
    """A copy of that home; the hub is down, and nothing is in its cache."""
    shutil.copytree(exported[0] / "models", tmp_path / "home" / "models")
    monkeypatch.setenv("VSE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    hub: FakeHub = fake_hub(monkeypatch, tmp_path / "nothing", tmp_path / "no cache")
    hub.down = True
    return tmp_path / "home" / "models"


def test_pull_exports_and_records_the_origin(exported):
    """Two towers that agree with torch, a card with licence and languages, and where they come from."""
    home, report, hub = exported
    folder = Path(report.folder)
    assert folder == home / "models" / "owner--tiny-clip"
    assert report.agreement.keys() == {"image", "text"}
    assert max(report.agreement.values()) < 1e-4
    assert [options["revision"] for options in hub.options("snapshot")] == ["v1"]
    record = json.loads((folder / PULLED_FILE).read_text())
    assert (record["source"], record["precision"]) == (NAME, "fp32")
    card = (folder / "README.md").read_text()
    assert "license: mit" in card
    assert f"base_model: {NAME}" in card.replace('"', "")
    assert not list((home / "models").glob(".pulling-*"))


def test_pulled_model_loads_by_name_without_network_and_torch(home, originals):
    """The same embeddings as the original, in a process that cannot import torch."""
    texts = ["a dog in the snow", "zwei Katzen"]
    code = (
        "import sys, json; sys.modules['torch'] = None\n"
        f"import vse; model = vse.load({NAME!r})\n"
        f"print(json.dumps(model.encode_texts({texts!r}).tolist()), 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    vectors, loaded = done.stdout.rsplit(" ", 1)
    assert loaded.strip() == "False"
    expected = vse.load(originals / "clip").encode_texts(texts)
    np.testing.assert_allclose(json.loads(vectors), expected, atol=1e-4)


def test_pulled_models_are_found_with_their_prefixes(home):
    """``hub:`` means the same model; one of open_clip's list is found under its whole name."""
    folder = home / "owner--tiny-clip"
    assert model_folder(f"hub:{NAME}") == model_folder(NAME) == folder
    record = json.loads((folder / PULLED_FILE).read_text())
    (folder / PULLED_FILE).write_text(json.dumps(record | {"source": "open_clip:ViT-B-32/openai"}))
    assert model_folder("open_clip:ViT-B-32/openai") == folder
    with pytest.raises(InputError, match="expected hub:owner/model"):
        model_folder("hub:nonsense")


def test_pull_again_fetches_nothing_unless_forced(home):
    """An equal request is answered from the disk; another revision or --force asks the hub, which is down."""
    assert pull_model(NAME).fetched is False
    for options in ({"force": True}, {"revision": "v2", "force": True}, {"precision": "fp16"}):
        with pytest.raises(InputError, match="cannot reach the hub"):
            pull_model(NAME, **options)
    assert vse.load(NAME).embed_size == published.DIMS


def test_tag_of_a_pulled_model_and_its_commit_mean_the_same(home):
    """The commit is recorded beside the tag or branch that was asked for."""
    record = home / "owner--tiny-clip" / PULLED_FILE
    record.write_text(json.dumps(json.loads(record.read_text()) | {"revision": "abc123", "asked": "v1"}))
    for revision in (None, "v1", "abc123"):
        assert pull_model(NAME, revision=revision).fetched is False
        assert model_folder(NAME, revision=revision) == record.parent
    with pytest.raises(InputError, match="exists and is not"):
        pull_model(NAME, revision="v2")


def test_failed_export_leaves_neither_model_nor_staging(originals, tmp_path, monkeypatch):
    """What was there stays, and nothing half-made is left."""

    def broken(*args, **kwargs):
        raise VSEError("the export differs")

    monkeypatch.setenv("VSE_HOME", str(tmp_path))
    monkeypatch.setattr("vse.convert.onnx_export.export_onnx", broken)
    with pytest.raises(VSEError, match="differs"):
        pull_model(str(originals / "clip"))
    assert list((tmp_path / "models").iterdir()) == []


def test_pull_keeps_a_pair_of_onnx_files(originals, tmp_path, monkeypatch):
    """In its own layout, tried once, and found by its name afterwards."""
    monkeypatch.setenv("VSE_HOME", str(tmp_path / "home"))
    source = str(originals / "immich")
    report = pull_model(source)
    assert (Path(report.folder) / "visual" / "model.onnx").is_file()
    assert [each.problem for each in list_models().pulled] == [None]
    assert vse.load(report.folder).fingerprint() == vse.load(source).fingerprint()


def test_pull_refuses_bundled_models_other_folders_and_unknown_precisions(originals, tmp_path, monkeypatch):
    """One line each; the folder of somebody else is not touched."""
    monkeypatch.setenv("VSE_HOME", str(tmp_path / "home"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="is bundled"):
        pull_model("photo")
    with pytest.raises(InputError, match="exists and is not"):
        pull_model(str(originals / "clip"), tmp_path / "mine")
    with pytest.raises(InputError, match="unknown precision"):
        pull_model(NAME, precision="fp8")  # type: ignore[arg-type]
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def test_coefficients_of_a_pulled_model_follow_its_name(home, tmp_path):
    """None until it is calibrated; then those in its folder. A hub's model in no cache keeps the bundled ones."""
    assert named_place(NAME) == str(home / "owner--tiny-clip")
    assert coefficients_of(NAME) is None
    own = {"intercept": -1.0, "collection": 0.5, "query": 0.5, "items": 1.0, "source": "a test"}
    (home / "owner--tiny-clip" / "confidence.json").write_text(json.dumps(own))
    found = coefficients_of(NAME)
    assert found is not None
    assert found.source == "a test"
    assert coefficients_of("owner/unknown") == shipped_coefficients()


def test_coefficients_of_a_public_model_in_the_cache_of_the_hub(originals, tmp_path, monkeypatch):
    """A public model that was downloaded, but not pulled, has none either."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("VSE_HOME", str(tmp_path / "home"))
    place = tmp_path / "hub" / "models--owner--cached"
    shutil.copytree(originals / "clip", place / "snapshots" / "abc")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("abc")
    assert named_place("owner/cached") == str(place / "snapshots" / "abc")
    assert coefficients_of("owner/cached") is None


def test_training_and_export_use_the_original_of_a_pulled_model(home, originals, monkeypatch):
    """The pulled copy is an export, which torch cannot change."""
    fake_hub(monkeypatch, originals / "clip", home.parent / "cache")
    assert isinstance(vse.load(NAME), OnnxModel)
    assert isinstance(load_torch(NAME), VSEModel)
    assert isinstance(VSEModel.from_pretrained(originals / "clip"), VSEModel)
    with pytest.raises(InputError, match="made for ONNX Runtime"):
        load_torch(originals / "immich")


@pytest.mark.parametrize(
    ("source", "precision", "name"),
    [
        ("openai/clip-vit-base-patch32", "fp32", "openai--clip-vit-base-patch32"),
        ("hub:owner/model", "int8", "owner--model-int8"),
        ("open_clip:ViT-B-32/laion2b_s34b_b79k", "fp32", "open_clip--ViT-B-32--laion2b_s34b_b79k"),
        ("../models/my clip", "fp16", "models--my--clip-fp16"),
    ],
)
def test_folder_names_of_pulled_models(source, precision, name):
    """Readable, different for different precisions, and never outside of the home."""
    assert folder_name(source, precision) == name
