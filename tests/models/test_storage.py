"""A model as a folder: whole or not at all, and never a mixture of two."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tests.support_models import (
    assert_same_model,
    bigru_config,
    build,
    contents,
    draw_nothing,
    feature_sets,
    region_config,
)

import vse
from vse.errors import InputError
from vse.inputs import Vocabulary
from vse.models.config import About, Score
from vse.models.storage import load_model
from vse.models.vse_model import VSEModel

safetensors = pytest.importorskip("safetensors.torch")


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    draw_nothing(monkeypatch)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model and its folder, not to be changed."""
    folder = tmp_path_factory.mktemp("models") / "one"
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        return build().save(folder)


@pytest.fixture
def folder(saved, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(saved, tmp_path / "model")


def refused(folder: Path, *said: str) -> None:
    with pytest.raises(InputError) as caught:
        vse.load(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    for part in said:
        assert part in message


def change(path: Path, **values: object) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | values))


class TestWriting:
    """What is on the disk afterwards."""

    def test_saved_model_files(self, saved):
        """Configuration, weights, tokenizer, card and curves; nothing temporary."""
        names = {path.name for path in saved.iterdir()}
        assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_settings.json"} == names
        assert not any(name.startswith(".") for name in names)
        assert not any(name.endswith((".bin", ".pt", ".pth", ".pkl")) for name in names)

    def test_saved_files_are_world_readable(self, saved):
        """Ordinary permissions, as other files have, not those of temporary ones."""
        for path in saved.iterdir():
            assert path.stat().st_mode & 0o044 == 0o044, path.name
        with safetensors.safe_open(saved / "model.safetensors", framework="pt") as file:
            assert file.metadata()["format"] == "pt"

    def test_saved_configuration_is_complete(self, saved):
        """What was recorded about a model comes back with it."""
        about = About(
            name="Ü",
            data="scenes",
            recipe={"lr": 5e-4, "hard": True},
            scores=(Score(protocol="1K", data="scenes", split="dev", values={"rsum": 401.5}),),
            notes=("one", "two"),
        )
        model = build(about=about)
        model.save(saved.parent / "about")
        assert vse.load(saved.parent / "about").config.about == about

    def test_save_creates_parent_folders(self, tmp_path):
        """However deep; and the folder is returned."""
        target = tmp_path / "a" / "b" / "c"
        assert build().save(target) == target
        assert build().save(str(tmp_path / "d")) == tmp_path / "d"

    def test_save_refuses_a_file(self, tmp_path):
        """A file instead of the folder is refused and kept."""
        path = tmp_path / "model"
        path.write_text("kept")
        with pytest.raises(InputError, match="is a file"):
            build().save(path)
        assert path.read_text() == "kept"

    def test_save_writes_views_and_shared_tensors(self, tmp_path):
        """Transposed, strided and tied tensors are stored like any others."""
        model = build()
        with torch.no_grad():
            model.image_encoder.projection.fc.weight = torch.nn.Parameter(
                torch.randn(model.feature_size, model.embed_size).T
            )
        loaded = vse.load(model.save(tmp_path))
        assert torch.equal(loaded.image_encoder.projection.fc.weight, model.image_encoder.projection.fc.weight)


class TestLoading:
    """What does not belong together, or is not whole, is reported in one line."""

    def test_load_refuses_weights_of_another_model(self, folder, tmp_path):
        """Equal shapes do not hide that the files are of two models."""
        other = build(seed=1).save(tmp_path / "other")
        shutil.copy(other / "model.safetensors", folder)
        refused(folder, "different models")

    def test_load_refuses_configuration_of_another_model(self, folder, tmp_path):
        """Missing and unexpected tensors, or the two marks, are named."""
        other = build(region_config(hidden_size=9)).save(tmp_path / "other")
        shutil.copy(other / "config.json", folder)
        refused(folder)

    def test_load_refuses_vocabulary_of_another_model(self, folder, tmp_path):
        """It is not the one that the configuration names."""
        Vocabulary.build(["two words"], min_count=1).tokenizer().save(folder)
        refused(folder, "the tokenizer belong to different models")

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
    def test_truncated_weights_are_refused(self, folder, share):
        """The size that was found is in the message."""
        path = folder / "model.safetensors"
        data = path.read_bytes()[: int(path.stat().st_size * share)]
        path.write_bytes(data)
        refused(folder, "safetensors", f"{len(data)} bytes")

    def test_load_names_missing_files(self, folder):
        """Weights, settings of the tokenizer, configuration: each is named."""
        (folder / "model.safetensors").rename(folder / "away")
        refused(folder, "model.safetensors", "no such file")
        (folder / "away").rename(folder / "model.safetensors")
        (folder / "tokenizer_settings.json").unlink()
        refused(folder, "tokenizer_settings.json")
        (folder / "config.json").unlink()
        refused(folder, "config.json")

    def test_load_suggests_closest_configuration_key(self, folder):
        """The closest one is proposed, at any depth."""
        change(folder / "config.json", embedsize=3)
        refused(folder, "'embedsize'", "did you mean 'embed_size'")

    def test_load_names_nested_unknown_key(self, folder):
        """With the place where it stands."""
        config = json.loads((folder / "config.json").read_text())
        config["image"]["hiden_size"] = 3
        change(folder / "config.json", image=config["image"])
        refused(folder, "'hiden_size'", "did you mean 'hidden_size'")

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}'])
    def test_load_refuses_broken_configuration(self, folder, text):
        """Not JSON, not an object, not complete."""
        (folder / "config.json").write_text(text)
        refused(folder, "config.json")

    @pytest.mark.parametrize("version", [0, 2, "1"])
    def test_load_refuses_later_format(self, folder, version):
        """A folder of a later version is not guessed at."""
        change(folder / "config.json", format=version)
        refused(folder, "format", repr(version))

    def test_load_names_missing_and_additional_tensors(self, folder):
        """Both are counted and the first ones named."""
        path = folder / "model.safetensors"
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        renamed = {("text_encoder.extra" if k == "text_encoder.embed.weight" else k): v for k, v in state.items()}
        safetensors.save_file(renamed, path, metadata=metadata)
        refused(folder, "1 missing (text_encoder.embed.weight)", "1 not expected (text_encoder.extra)")
        state["text_encoder.embed.weight"] = state["text_encoder.embed.weight"][:-1].clone()
        safetensors.save_file(state, path, metadata=metadata)
        refused(folder, "of another shape (text_encoder.embed.weight")

    def test_load_refuses_pickled_weights(self, folder):
        """Weights are read by safetensors alone."""
        torch.save({"a": torch.zeros(1)}, folder / "model.safetensors")
        refused(folder, "not a complete safetensors file")

    def test_load_puts_model_on_device(self, folder):
        """Any device of torch is taken; names are those of ``vse.load``."""
        model = load_model(folder, device=torch.device("meta"))
        assert model.device == torch.device("meta")

    def test_load_does_not_write(self, folder):
        """A folder that only can be read is enough, and stays as it was."""
        before = contents(folder)
        model = vse.load(folder)
        assert isinstance(model, VSEModel)
        model.encode_images(feature_sets(3))
        assert contents(folder) == before


def test_load_without_tokenizer_files(tmp_path):
    """Saved without a tokenizer, loaded without one."""
    model = build(text=bigru_config())
    model.tokenizer = None
    loaded = vse.load(model.save(tmp_path))
    assert loaded.tokenizer is None
    assert_same_model(loaded, model)
