"""Models that come with the package: found by their names, in the way of nothing, and in what is installed."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from tests.conftest import REPOSITORY
from tests.support_models import assert_unit, picture

import vse
from vse._util.plugins import Registry
from vse.errors import InputError, MissingDependencyError
from vse.models.coefficients import FILE, RELEVANCE_FILE, coefficients_of, own_relevance, read_coefficients
from vse.models.inspection import inspect_folder
from vse.models.onnx import OnnxModel
from vse.models.sources import (
    DEFAULT,
    MODELS,
    NAMES,
    list_installed,
    model_folder,
    place_of,
    shipped_folder,
    shipped_name,
)


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


def test_code_distribution_leaves_models_out():
    """Neither wheel nor source distribution of vse-infinity contains a file of the models."""
    builders = pytest.importorskip("hatchling.builders.wheel"), pytest.importorskip("hatchling.builders.sdist")
    for builder in (builders[0].WheelBuilder(str(REPOSITORY)), builders[1].SdistBuilder(str(REPOSITORY))):
        files = {Path(each.path) for each in builder.recurse_project_files()}
        assert REPOSITORY / "src" / "vse" / "__init__.py" in files
        assert not [path for path in files if path.is_relative_to(MODELS)]


def test_photo_distribution_holds_current_model_and_licences():
    """Wheel and source distribution of vse-infinity-photo contain all its files; an editable install copies none."""
    builders = pytest.importorskip("hatchling.builders.wheel"), pytest.importorskip("hatchling.builders.sdist")
    project = REPOSITORY / "packages" / "photo"
    expected = {path.relative_to(MODELS).as_posix() for path in (MODELS / DEFAULT).rglob("*") if path.is_file()}
    for builder, package in (
        (builders[0].WheelBuilder(str(project)), "vse_infinity_photo/models"),
        (builders[1].SdistBuilder(str(project)), "src/vse_infinity_photo/models"),
    ):
        data = builder.get_default_build_data() | {"force_include": {}}
        for hook in builder.get_build_hooks("").values():
            hook.initialize("editable", data)
            assert data["force_include"] == {}
            hook.initialize("standard", data)
        taken = {Path(source): target for source, target in data["force_include"].items()}
        found = {
            f"{target.removeprefix(package + '/')}/{path.relative_to(source).as_posix()}"
            for source, target in taken.items()
            for path in source.rglob("*")
            if path.is_file()
        }
        assert found == expected
        assert not builder.config.force_include
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    for name in about["license-files"]:
        assert (project / name).is_file()
    apache = (project / "LICENSE-APACHE-2.0.txt").read_text()
    assert apache == (MODELS / DEFAULT / "LICENSE-APACHE-2.0.txt").read_text()
    assert set(about["entry-points"]["vse.models"]) == {DEFAULT}


@pytest.fixture
def no_checkout(monkeypatch, tmp_path):
    """As installed from wheels: no models beside the code, and no package with models yet."""
    monkeypatch.setattr("vse.models.sources.MODELS", tmp_path / "none")
    monkeypatch.setitem(sys.modules, "vse_infinity_photo", None)
    monkeypatch.setattr("vse.models.sources.INSTALLED", Registry("vse.none"))
    return monkeypatch


def test_photo_package_provides_the_current_version(no_checkout, tmp_path):
    """By name; its predecessor is only in a checkout, where the fingerprint that a collection recorded finds it."""
    for name, print_of in (("photo", "new"), ("photo-v1", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"runtime": "onnx", "fingerprint": print_of}))
    package = ModuleType("vse_infinity_photo")
    package.photo = lambda: tmp_path / "photo"
    no_checkout.setitem(sys.modules, "vse_infinity_photo", package)
    assert shipped_folder("photo") == tmp_path / "photo"
    assert place_of("photo", "old") == str(tmp_path / "photo")
    no_checkout.setattr("vse.models.sources.MODELS", tmp_path)
    assert place_of("photo", "old") == str(tmp_path / "photo-v1")
    assert shipped_name(tmp_path / "photo") == "photo"
    assert shipped_folder("photo-v1") is None
    assert list_installed() == ["photo"]


def test_missing_photo_model_says_what_to_install(no_checkout, here):
    """One line with the command, from Python and before anything is indexed."""
    with pytest.raises(MissingDependencyError, match=r'pip install ./packages/photo "\.\[search\]"') as caught:
        vse.load(DEFAULT)
    assert "\n" not in str(caught.value)
    assert list_installed() == []
    assert place_of(DEFAULT) == DEFAULT


def test_git_attributes_keep_weights_binary():
    """Line endings in weights are data."""
    lines = (REPOSITORY / ".gitattributes").read_text().splitlines()
    assert {"*.onnx binary", "*.onnx.data binary"} <= set(lines)
