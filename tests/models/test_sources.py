"""``vse.load``: folders, hub ids and everything that is neither. No test here touches a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support_models import assert_same_model, build, contents, draw_nothing

import vse
from vse.errors import InputError, VSEError
from vse.models.card import save_with_card
from vse.models.sources import FILES

hub = pytest.importorskip("huggingface_hub")


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    draw_nothing(monkeypatch)


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """What was asked of the hub, which is down."""
    calls = []

    def down(name, **options):
        calls.append((name, options))
        raise ConnectionError(f"cannot reach the hub for {name}\nand a long story about it")

    monkeypatch.setattr(hub, "snapshot_download", down)
    return calls


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

    def test_load_refuses_folder_without_model(self, tmp_path, asked):
        """It is not looked for on the hub."""
        refused(tmp_path, "without config.json", "vse convert")
        assert asked == []

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
    def test_load_refuses_missing_folder(self, source, asked, tmp_path, monkeypatch):
        """What cannot be a hub id is not asked for."""
        monkeypatch.chdir(tmp_path)
        refused(source)
        assert asked == []


class TestHub:
    """A model by its id."""

    def test_load_offline_names_hub_id(self, asked):
        """One line with the id and the first line of the reason; the local cache was tried too."""
        refused("nobody/nothing", "neither a local folder nor", "cannot reach the hub")
        assert [name for name, _ in asked] == ["nobody/nothing", "nobody/nothing"]
        assert asked[1][1]["local_files_only"] is True

    def test_hub_download_is_limited_to_model_files(self, asked):
        """No code, no pickles."""
        refused("nobody/nothing")
        for _, options in asked:
            assert options["allow_patterns"] == FILES
        assert not any(
            pattern.endswith(bad) for pattern in FILES for bad in ("*", ".py", ".bin", ".pt", ".pth", ".pkl")
        )

    def test_load_from_hub_cache(self, tmp_path, monkeypatch):
        """What the hub's client puts on the disk is loaded like a folder."""
        model = build()
        model.save(tmp_path / "snapshot")
        monkeypatch.setattr(hub, "snapshot_download", lambda name, **options: str(tmp_path / "snapshot"))
        assert_same_model(vse.load("owner/model"), model)

    def test_hub_cache_is_the_fallback(self, tmp_path, monkeypatch):
        """Fetched once, a model loads without a network."""
        model = build()
        model.save(tmp_path / "snapshot")

        def cached(name, *, local_files_only=False, **options):
            if not local_files_only:
                raise ConnectionError("offline")
            return str(tmp_path / "snapshot")

        monkeypatch.setattr(hub, "snapshot_download", cached)
        assert_same_model(vse.load("owner/model"), model)

    def test_hub_repository_without_model_is_refused(self, tmp_path, monkeypatch):
        """A snapshot without our configuration names the id, not the folder of the cache."""
        monkeypatch.setattr(hub, "snapshot_download", lambda name, **options: str(tmp_path))
        refused("owner/model", "config.json")


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

    def test_pushed_model_can_be_loaded(self, api, monkeypatch):
        """A round trip through the hub keeps the model."""
        model = build()
        model.push_to_hub("owner/model")
        monkeypatch.setattr(hub, "snapshot_download", lambda name, **options: str(api.folder))
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
