"""Models that come with the package: found by their names, in the way of nothing, and in what is installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.conftest import REPOSITORY
from tests.support_models import assert_unit, picture

import vse
from vse.errors import InputError
from vse.models.coefficients import FILE, RELEVANCE_FILE, coefficients_of, own_relevance, read_coefficients
from vse.models.inspection import inspect_folder
from vse.models.onnx import OnnxModel
from vse.models.sources import DEFAULT, MODELS, NAMES, model_folder, place_of, shipped_folder, shipped_name


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty present folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_bundled_model_loads_by_name(here, name):
    """It is an export that reads images and sentences, with a card, curves and coefficients of its own."""
    model = vse.load(name, threads=1)
    assert isinstance(model, OnnxModel)
    assert_unit(model.encode_images([picture(0), picture(1)]), 2, model.embed_size)
    assert_unit(model.encode_texts(["a dog in the snow"]), 1, model.embed_size)
    folder = MODELS / name
    assert model_folder(name) == model.folder == shipped_folder(name) == folder
    assert (folder / "README.md").is_file()
    report = inspect_folder(folder)
    assert {curve.tower for curve in report.curves} == {"image", "text"}
    assert coefficients_of(name) == read_coefficients(folder / FILE)
    assert report.confidence == coefficients_of(name).source
    assert report.relevance == own_relevance(name).source
    assert own_relevance(name).dimensions == model.embed_size
    assert (folder / RELEVANCE_FILE).stat().st_size < 500_000


def test_local_model_hides_bundled_model(here):
    """Whoever made a model and called it so means that one."""
    (here / DEFAULT).mkdir()
    (here / DEFAULT / "config.json").write_text("{}")
    assert model_folder(DEFAULT) == Path(DEFAULT)
    assert shipped_name(DEFAULT) is None


def test_image_folder_does_not_hide_bundled_model(here):
    """A folder of images is not a model, nor is a file; only a path that says where it looks is taken at its word."""
    (here / DEFAULT).mkdir()
    (here / DEFAULT / "a.jpg").write_bytes(b"x")
    assert model_folder(DEFAULT) == MODELS / DEFAULT
    assert shipped_name(DEFAULT) == DEFAULT
    assert shipped_name(f"./{DEFAULT}") is None
    with pytest.raises(InputError, match="without config"):
        model_folder(f"./{DEFAULT}")
    (here / DEFAULT / "a.jpg").unlink()
    (here / DEFAULT).rmdir()
    (here / DEFAULT).write_bytes(b"x")
    assert model_folder(DEFAULT) == MODELS / DEFAULT


def test_bundled_model_is_recorded_by_name(here):
    """The folder of a model of ours is remembered by its name, from everywhere; what is remembered is ours alone."""
    (here / "link").symlink_to(MODELS / DEFAULT)
    for written in (MODELS / DEFAULT, f"{MODELS}/../{MODELS.name}/{DEFAULT}/", "link", DEFAULT):
        assert shipped_name(written) == DEFAULT
    (here / DEFAULT).mkdir()
    (here / DEFAULT / "config.json").write_text("{}")
    assert place_of(DEFAULT) == str(MODELS / DEFAULT)
    for other in ("owner/model", "/models/photo", "./photo", "Photo", "", ".", ".."):
        assert place_of(other) == other
        assert shipped_folder(other) is None
        assert shipped_name(other) is None


def test_distributions_hold_bundled_models():
    """Wheel and source distribution hold every file of the models, and the licences of others go along."""
    builders = pytest.importorskip("hatchling.builders.wheel"), pytest.importorskip("hatchling.builders.sdist")
    files = {path for path in MODELS.rglob("*") if path.is_file()}
    for builder in (builders[0].WheelBuilder(str(REPOSITORY)), builders[1].SdistBuilder(str(REPOSITORY))):
        assert files <= {Path(each.path) for each in builder.recurse_project_files()}
    about = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    noticed = {path for pattern in about["license-files"] for path in REPOSITORY.glob(pattern)}
    for name in NAMES:
        texts = {MODELS / name / "LICENSES.md", MODELS / name / "LICENSE-APACHE-2.0.txt"}
        assert texts <= noticed & files
        assert "TERMS AND CONDITIONS" in (MODELS / name / "LICENSE-APACHE-2.0.txt").read_text()


def test_git_attributes_keep_weights_binary():
    """Line endings in weights are data."""
    lines = (REPOSITORY / ".gitattributes").read_text().splitlines()
    assert {"*.onnx binary", "*.onnx.data binary"} <= set(lines)
