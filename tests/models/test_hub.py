"""Models on the hub: ``from_pretrained``, ``save_pretrained``, uploading models and exports. Nothing uses a network."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support_hub import FakeHub, fake_hub
from tests.support_models import assert_same_model, build, contents, draw_nothing

from vse.cli.main import main
from vse.convert.onnx_export import export_onnx
from vse.errors import InputError, MissingDependencyError, VSEError
from vse.models import OnnxModel, VSEModel
from vse.models.card import save_with_card
from vse.models.fetch import FILES
from vse.models.hub import local_file, push_saved, split_reference
from vse.models.sources import shipped_folder

hub = pytest.importorskip("huggingface_hub")


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    draw_nothing(monkeypatch)


@pytest.fixture
def api(monkeypatch, tmp_path):
    """A hub that keeps what it is given, chosen by the patterns of the real one."""
    told = SimpleNamespace(folder=tmp_path / "on the hub", created=None, token=None, commit=None, fail=None)

    def create_repo(self, repo_id, *, private, exist_ok):
        told.token = self.token
        if told.fail:
            raise told.fail
        told.created = repo_id, private, exist_ok
        return f"https://hub.example/{repo_id}"

    def upload_folder(self, *, repo_id, folder_path, allow_patterns, **commit):
        told.commit = commit
        files = [str(file.relative_to(folder_path)) for file in Path(folder_path).rglob("*") if file.is_file()]
        for name in hub.utils.filter_repo_objects(files, allow_patterns=allow_patterns):
            (told.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(folder_path) / name, told.folder / name)

    monkeypatch.setattr(hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(hub.HfApi, "upload_folder", upload_folder)
    return told


@pytest.fixture
def online(monkeypatch, tmp_path) -> FakeHub:
    """A hub with one repository."""
    (tmp_path / "online").mkdir()
    return fake_hub(monkeypatch, tmp_path / "online", tmp_path / "snapshot")


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """An exported model with its card."""
    folder = tmp_path_factory.mktemp("export") / "out"
    export_onnx(build(), folder)
    return folder


class TestPretrained:
    """Names and arguments of the hub's mixin."""

    def test_save_pretrained_writes_model_and_card(self, tmp_path):
        """The folder loads again, also by its path as text."""
        model = build()
        assert model.save_pretrained(tmp_path / "model") is None
        assert (tmp_path / "model" / "README.md").is_file()
        assert_same_model(VSEModel.from_pretrained(tmp_path / "model"), model)
        assert_same_model(VSEModel.from_pretrained(str(tmp_path / "model"), device="cpu", token="x"), model)

    def test_save_pretrained_can_push(self, api, tmp_path):
        """To the named repository, else to one with the name of the folder."""
        assert build().save_pretrained(tmp_path / "mine", push_to_hub=True, private=True) == "https://hub.example/mine"
        assert api.created == ("mine", True, True)
        build().save_pretrained(tmp_path / "mine", push_to_hub=True, repo_id="owner/other")
        assert api.created == ("owner/other", None, True)

    def test_from_pretrained_fetches_revision(self, online):
        """Revision and token reach the hub, which is asked for model files only."""
        model = build()
        model.save(online.folder)
        assert_same_model(VSEModel.from_pretrained("owner/model", revision="abc", token="secret"), model)
        assert [function for function, *_ in online.asked] == ["list", "file", "snapshot"]
        assert {options["revision"] for *_, options in online.asked} == {"abc"}
        chosen = {"revision": "abc", "token": "secret", "allow_patterns": FILES, "local_files_only": False}
        assert online.options("snapshot") == [chosen]

    def test_from_pretrained_without_network_names_revision(self, online):
        """One line without the token."""
        online.down = True
        with pytest.raises(InputError, match=r"'owner/model'.*at revision 'abc'.*cannot reach the hub") as caught:
            VSEModel.from_pretrained("owner/model", revision="abc", token="secret")
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_from_pretrained_refuses_repository_of_others(self, online):
        """A repository without a configuration of a model."""
        with pytest.raises(InputError, match=r"'owner/model'.*no image–text model"):
            VSEModel.from_pretrained("owner/model", revision="v1")

    def test_from_pretrained_refuses_revision_of_folder(self, tmp_path):
        """It would be ignored otherwise."""
        build().save(tmp_path / "model")
        with pytest.raises(InputError, match=r"revision 'abc'.*local folder"):
            VSEModel.from_pretrained(tmp_path / "model", revision="abc")

    def test_from_pretrained_refuses_export(self, export):
        """The message names the model that is needed instead."""
        with pytest.raises(InputError, match="already an export"):
            VSEModel.from_pretrained(export)


class TestPushedExports:
    """Exports and saved folders are uploaded as they are."""

    def test_push_export_uploads_folder_with_card(self, api, export, tmp_path):
        """The files of the export and no others; commit options are passed on."""
        folder = Path(shutil.copytree(export, tmp_path / "mine"))
        (folder / "private.jpg").write_bytes(b"a photo")
        (folder / "training.pth").write_bytes(b"a pickle")
        address = OnnxModel.load(folder).push_to_hub("owner/model", private=True, token="secret", branch="next")
        assert address == "https://hub.example/owner/model"
        assert (api.created, api.token) == (("owner/model", True, True), "secret")
        assert api.commit == {"commit_message": "Upload a vse model", "revision": "next"}
        assert contents(api.folder) == contents(export)
        assert (api.folder / "README.md").read_text(encoding="utf-8").startswith("---\nlibrary_name: vse\n")
        assert OnnxModel.load(api.folder).fingerprint() == OnnxModel.load(export).fingerprint()

    def test_push_command_uploads_export(self, api, export, capsys):
        """``vse push`` prints where the model is."""
        assert main(["push", str(export), "owner/model", "--private"]) == 0
        assert "https://hub.example/owner/model" in capsys.readouterr().out
        assert api.created == ("owner/model", True, True)

    def test_push_command_prints_json(self, api, tmp_path, capsys):
        """For a saved model with a card, whose confidence goes with it."""
        save_with_card(build(), tmp_path / "model")
        shutil.copy(shipped_folder("photo") / "confidence.json", tmp_path / "model")
        assert main(["push", str(tmp_path / "model"), "owner/model", "--json"]) == 0
        assert '"address": "https://hub.example/owner/model"' in capsys.readouterr().out
        assert api.created == ("owner/model", None, True)
        assert contents(api.folder) == contents(tmp_path / "model")

    def test_push_writes_missing_card(self, api, tmp_path):
        """A model that was saved without a card gets one on the hub, not in its folder."""
        build().save(tmp_path / "model")
        push_saved(tmp_path / "model", "owner/model")
        assert (api.folder / "README.md").is_file()
        assert not (tmp_path / "model" / "README.md").exists()

    def test_push_refuses_damaged_model(self, api, tmp_path, capsys):
        """Before anything is created on the hub."""
        save_with_card(build(), tmp_path / "model")
        (tmp_path / "model" / "model.safetensors").write_bytes(b"cut")
        assert main(["push", str(tmp_path / "model"), "owner/model"]) == 1
        assert "not a complete safetensors file" in capsys.readouterr().err
        assert api.created is None

    def test_push_of_export_fails_in_one_line(self, api, export):
        """With the name and the reason."""
        api.fail = PermissionError("403 Forbidden\nlong explanation")
        with pytest.raises(VSEError, match=r"'owner/model': 403 Forbidden") as caught:
            OnnxModel.load(export).push_to_hub("owner/model", token="secret")
        assert "\n" not in str(caught.value)

    def test_push_without_hub_library_names_extra(self, export, monkeypatch):
        """What to install."""
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(MissingDependencyError, match="huggingface_hub"):
            OnnxModel.load(export).push_to_hub("owner/model")


class TestReferences:
    """Files on the hub."""

    @pytest.mark.parametrize(
        ("reference", "parts"),
        [
            ("hub:o/r/f.pth", ("o/r", None, "f.pth")),
            ("hub:o/r@v1/a/b/f.pth", ("o/r", "v1", "a/b/f.pth")),
            ("hub:o/r@refs%2Fpr%2F1/f@2.pth", ("o/r", "refs/pr/1", "f@2.pth")),
        ],
    )
    def test_hub_reference_is_split(self, reference, parts):
        """Repository, revision and path."""
        assert split_reference(reference) == parts

    @pytest.mark.parametrize(
        "reference",
        ["hub:", "hub:o", "hub:o/r", "hub:o/r/", "hub:/r/f", "hub:o//f", "hub:o/r@/f", "hub:o/r/../f", "hub:o/r//f"],
    )
    def test_malformed_hub_reference_is_refused(self, reference):
        """Nothing is asked of the hub."""
        with pytest.raises(InputError, match="expected a file on the hub as hub:OWNER"):
            local_file(reference)

    def test_path_is_not_a_hub_reference(self, tmp_path, monkeypatch):
        """Paths stay paths; the home folder is resolved."""
        monkeypatch.setenv("HOME", str(tmp_path))
        assert local_file("~/x.pth") == tmp_path / "x.pth"
        assert local_file(tmp_path / "hub:o") == tmp_path / "hub:o"
