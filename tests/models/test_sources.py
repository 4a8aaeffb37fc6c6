"""``vse.load``: folders, hub ids and everything that is neither. No test here touches a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support_hub import FakeHub, fake_hub
from tests.support_models import assert_same_model, build, contents, draw_nothing

import vse
from vse.errors import InputError, VSEError
from vse.models.card import save_with_card
from vse.models.fetch import FILES

hub = pytest.importorskip("huggingface_hub")


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    draw_nothing(monkeypatch)


@pytest.fixture(autouse=True)
def online(monkeypatch, tmp_path) -> FakeHub:
    """A hub that is down unless a test turns it on."""
    fake = fake_hub(monkeypatch, tmp_path / "online", tmp_path / "snapshot")
    fake.down = True
    return fake


def refused(source, *said: str) -> None:
    with pytest.raises(InputError) as caught:
        vse.load(source)
    assert "\n" not in str(caught.value)
    assert str(source) in str(caught.value)
    for part in said:
        assert part in str(caught.value)


class TestFolders:
    """Local folders come first."""

    def test_load_accepts_path_and_str(self, tmp_path, monkeypatch):
        """Absolute, relative or below the home folder."""
        model = build()
        model.save(tmp_path / "owner" / "model")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        for source in (tmp_path / "owner" / "model", str(tmp_path / "owner" / "model"), "owner/model", "~/owner/model"):
            assert_same_model(vse.load(source), model)

    def test_load_of_run_folder_names_its_models(self, tmp_path):
        """The folder of a run is not a model; the error names the ones inside that exist."""
        build().save(tmp_path / "model-00000062")
        (tmp_path / "best").symlink_to("model-00000062")
        refused(tmp_path, "training run", f"use '{tmp_path / 'best'}'")

    def test_load_refuses_folder_without_model(self, tmp_path, online):
        """It is not looked for on the hub."""
        refused(tmp_path, "without config.json", "vse convert")
        assert online.asked == []

    @pytest.mark.parametrize("name", ["model.pth", "model.pt", "model.pth.tar"])
    def test_load_of_checkpoint_suggests_convert(self, tmp_path, name):
        """With the command to type."""
        path = tmp_path / name
        path.write_bytes(b"x")
        refused(path, f"vse convert {path} DIR")

    def test_load_refuses_a_file(self, tmp_path):
        """A file is not a folder."""
        path = tmp_path / "config.json"
        path.write_text("{}")
        refused(path, "a file, expected the folder of a model")

    @pytest.mark.parametrize(
        "source", ["nowhere", "./nowhere/model", "/nowhere/model", "a/b/c", "~/nowhere", "runs/best.pth", "", "../x/y"]
    )
    def test_load_refuses_missing_folder(self, source, online, tmp_path, monkeypatch):
        """What cannot be a hub id is not asked for."""
        monkeypatch.chdir(tmp_path)
        refused(source)
        assert online.asked == []


class TestHub:
    """A model by its id."""

    def test_load_offline_names_hub_id(self, online):
        """One line with the id and the first line of the reason; the local cache was tried too."""
        refused("nobody/nothing", "neither a local folder nor", "cannot reach the hub")
        assert [(function, name) for function, name, _ in online.asked] == [
            ("list", "nobody/nothing"),
            ("snapshot", "nobody/nothing"),
        ]
        assert online.options("snapshot")[0]["local_files_only"] is True

    def test_hub_download_is_limited_to_model_files(self, online):
        """No code, no pickles."""
        online.down = False
        build().save(online.folder)
        for name in ("code.py", "weights.bin", "weights.pth"):
            (online.folder / name).write_bytes(b"x")
        vse.load("owner/model")
        assert [options["allow_patterns"] for options in online.options("snapshot")] == [FILES]
        assert not any(
            pattern.endswith(bad) for pattern in FILES for bad in ("*", ".py", ".bin", ".pt", ".pth", ".pkl")
        )
        assert not {"code.py", "weights.bin", "weights.pth"} & set(online.fetched)

    def test_load_from_hub_cache(self, online):
        """What the hub's client puts on the disk is loaded like a folder."""
        online.down = False
        model = build()
        model.save(online.folder)
        assert_same_model(vse.load("owner/model"), model)

    def test_hub_cache_is_the_fallback(self, online):
        """Fetched once, a model loads without a network."""
        model = build()
        model.save(online.cache)
        assert_same_model(vse.load("owner/model"), model)

    def test_hub_repository_without_model_is_refused(self, online):
        """A repository without a configuration names the id, not the folder of the cache; nothing is downloaded."""
        online.down = False
        online.folder.mkdir()
        (online.folder / "data.csv").write_text("x")
        refused("owner/model", "config.json")
        assert online.fetched == []


class TestPush:
    """Uploading."""

    @pytest.fixture
    def api(self, monkeypatch, tmp_path):
        """A hub that writes down what it is given."""
        told = SimpleNamespace(files=None, folder=None, repo=None, token=None, fail=None)

        class Fake:
            def __init__(self, token=None):
                told.token = token

            def create_repo(self, name, *, private, exist_ok):
                if told.fail:
                    raise told.fail
                told.repo = name, private, exist_ok
                return f"https://hub.example/{name}"

            def upload_folder(self, *, repo_id, folder_path, **options):
                assert repo_id == told.repo[0]
                told.files = contents(Path(folder_path))
                told.folder = Path(shutil.copytree(folder_path, tmp_path / "hub"))

        monkeypatch.setattr(hub, "HfApi", Fake)
        told.uploads = Fake
        return told

    def test_push_uploads_model_and_card(self, api, tmp_path):
        """The files of ``save_with_card`` with the same bytes; the address is returned."""
        model = build()
        address = model.push_to_hub("owner/model", private=True, token="secret")
        assert address == "https://hub.example/owner/model"
        assert api.repo == ("owner/model", True, True)
        assert api.token == "secret"
        save_with_card(model, tmp_path / "here")
        assert api.files == contents(tmp_path / "here")

    def test_pushed_model_can_be_loaded(self, api, online, monkeypatch):
        """A round trip through the hub keeps the model."""
        model = build()
        model.push_to_hub("owner/model")
        online.folder, online.down = api.folder, False
        listed = lambda self, name, **options: online.list_repo_files(name, **options)  # noqa: E731
        monkeypatch.setattr(api.uploads, "list_repo_files", listed, raising=False)
        assert_same_model(vse.load("owner/model"), model)

    def test_push_failure_is_one_line_without_token(self, api):
        """The name and the reason."""
        api.fail = PermissionError("403 Forbidden\nlong explanation")
        with pytest.raises(VSEError, match="'owner/model': 403 Forbidden") as caught:
            build().push_to_hub("owner/model", token="secret")
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)


def test_importing_vse_loads_nothing():
    """``import vse`` and the name ``vse.load`` cost neither torch nor numpy."""
    code = "import sys, vse; vse.load; print(*({'torch', 'numpy', 'pydantic', 'huggingface_hub'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
