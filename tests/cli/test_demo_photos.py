"""``vse demo --photos DIR`` and ``make demo PHOTOS=DIR``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image
from tests.cli.search_support import error_line, reported
from tests.conftest import REPOSITORY
from tests.support_models import picture

from vse.cli.main import main


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """Images, the output folder, and the JSON result, which skips the page."""
    home = tmp_path_factory.mktemp("demo")
    (home / "my photos").mkdir()
    for seed in range(3):
        Image.fromarray(picture(seed)).save(home / "my photos" / f"{seed}.png")
    return (
        home / "my photos",
        home / "results",
        reported("demo", "--photos", home / "my photos", "--out", home / "results"),
    )


def test_demo_photos_indexes_folder(indexed):
    """The collection is the only output, since nothing is trained."""
    photos, out, result = indexed
    assert (result["files"], result["photos"]["new"]) == (3, 3)
    assert Path(result["collection"]) == out / "photos.vse"
    assert [path.name for path in out.iterdir()] == ["photos.vse"]
    (best,) = reported("search", out / "photos.vse", "--image", photos / "2.png", "-k", 1)["results"]
    assert best["path"] == str(photos / "2.png")


def test_demo_photos_skips_known_files_and_tests_page(indexed, tmp_path, capsys, monkeypatch):
    """A second call encodes nothing. Without a terminal the page is requested once and stopped; ``~`` is expanded."""
    photos, out, _ = indexed
    monkeypatch.setenv("HOME", str(photos.parent))
    assert main(["demo", "--photos", "~/my photos", "--out", str(out)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert f"{photos}: 3 unchanged" in said
    assert said[-1].startswith("the page: http://127.0.0.1:")
    assert ".png in " in said[-1]
    assert main(["demo", "--photos", str(photos), "--out", str(out), "--no-page"]) == 0
    assert "the page" not in capsys.readouterr().out


def test_demo_photos_refuses_folder_without_images(indexed, tmp_path, capsys, monkeypatch):
    """A missing folder, one without images, and one with corrupt images are one-line errors, without the page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x")
    assert "no such folder" in error_line(capsys, 1, "demo", "--photos", "nowhere")
    assert "no images or videos in it" in error_line(capsys, 1, "demo", "--photos", "notes")
    assert "--seeds and --quick" in error_line(capsys, 2, "demo", "--photos", indexed[0], "--quick")
    assert "--seeds and --quick" in error_line(capsys, 2, "demo", "--photos", indexed[0], "--seeds", "1")
    assert not (tmp_path / "vse-demo").exists()
    (tmp_path / "notes" / "a.jpg").write_bytes(b"x")
    assert main(["demo", "--photos", "notes"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "first a.jpg: " in output.err.splitlines()[-1]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("photos", [None, "", "~/My Pictures", "a'b\"c", "d$e`f;g"])
def test_make_demo_passes_photos_verbatim(tmp_path, photos):
    """``PHOTOS`` reaches the command unchanged; without it the option is absent."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vse").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "bin" / "vse").chmod(0o755)
    (tmp_path / ".installed").touch()
    given = [] if photos is None else [f"PHOTOS={photos}"]
    command = ["make", "-s", "demo", f"VENV={tmp_path}", *given]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["demo", *(["--photos", photos] if photos else [])]
