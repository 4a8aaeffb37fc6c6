"""The install ``[search]``, in a separate environment without torch, indexes and searches with an exported model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from tests.conftest import REPOSITORY
from tests.inputs.video.clips import write_clip
from tests.support_models import build, draw_nothing, grid_config, picture

from vse.convert.onnx_export import export_onnx
from vse.models.onnx import OnnxModel

ABSENT = ("torch", "transformers", "safetensors", "matplotlib")
IMAGES = 10
NO_INDEX = re.compile(r"connection broken|NewConnectionError|Max retries exceeded|ReadTimeoutError|name resolution")

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that sees neither this checkout nor this environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """A new environment with the package and its photo model, and a folder with a model, images and a video."""
    home = tmp_path_factory.mktemp("light")
    made = run(sys.executable, "-m", "venv", home / "venv", cwd=home)
    assert made.returncode == 0, made.stderr
    programs = home / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip = (programs / "python", "-m", "pip", "install", "--disable-pip-version-check", "--retries", "1")
    both = (REPOSITORY / "packages" / "photo", f"{REPOSITORY}[search]")
    installed = run(*pip, "--constraint", REPOSITORY / "constraints.txt", *both, cwd=home)
    if installed.returncode and NO_INDEX.search(installed.stdout + installed.stderr):
        pytest.skip("pip reaches no package index")
    assert installed.returncode == 0, installed.stderr
    photos = home / "photos"
    photos.mkdir()
    for number in range(IMAGES):
        Image.fromarray(picture(number)).save(photos / f"{number}.png")
    write_clip(photos / "clip.mp4", seconds=2)
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        export_onnx(build(grid_config()), home / "model")
    return SimpleNamespace(home=home, photos=photos, programs=programs, model=OnnxModel.load(home / "model", threads=1))


def json_of(light: SimpleNamespace, *arguments: object) -> dict:
    """Return what ``vse`` of the light environment prints with ``--json``."""
    done = run(light.programs / "vse", *arguments, "--json", cwd=light.home)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def names(found: dict) -> Sequence[str]:
    return [Path(result["path"]).name for result in found["results"]]


def test_light_install_has_no_training_libraries(light):
    """The package comes from the new environment without a copy of the model, and torch is absent."""
    code = (
        "import importlib.util, json, vse;"
        f"print(json.dumps([vse.__file__, [n for n in {ABSENT!r} if importlib.util.find_spec(n)]]))"
    )
    done = run(light.programs / "python", "-c", code, cwd=light.home)
    where, found = json.loads(done.stdout)
    assert Path(where).is_relative_to(light.home / "venv")
    assert found == []
    assert not (Path(where).parent / "models" / "shipped").exists()


def test_light_install_indexes_and_searches(light):
    """Images and a video are indexed; text, image and combined queries rank as the model scores them."""
    made = json_of(light, "index", "photos", "--into", "own.vse", "--model", "model")
    assert made["files"] == IMAGES + 1
    assert made["items"] > IMAGES
    found = json_of(light, "search", "own.vse", "a dog runs in the snow", "-k", 50)
    assert len(found["results"]) == made["items"]
    pictures = light.model.encode_images([light.photos / f"{number}.png" for number in range(IMAGES)])
    scores = pictures @ light.model.encode_texts(["a dog runs in the snow"])[0]
    for result in found["results"]:
        name = Path(result["path"])
        if name.suffix == ".png":
            np.testing.assert_allclose(result["score"], scores[int(name.stem)], atol=1e-4)
    assert names(json_of(light, "search", "own.vse", "--image", "photos/7.png", "-k", 1)) == ["7.png"]
    both = json_of(light, "search", "own.vse", "snow", "--image", "photos/7.png", "--not", "two cats")
    assert both["results"]
    again = json_of(light, "index", "photos", "--into", "own.vse")
    assert again["items"] == made["items"]


def test_light_install_uses_bundled_model_by_default(light):
    """The photo model comes as a package of its own: naming a folder is enough."""
    code = "import vse_infinity_photo as p; print(p.photo())"
    where = Path(run(light.programs / "python", "-c", code, cwd=light.home).stdout.strip())
    assert where.is_relative_to(light.home / "venv")
    assert json_of(light, "models")["bundled"][0]["folder"] == str(where)
    assert json_of(light, "index", "photos")["index"] == "photos.vse"
    about = json_of(light, "collection", "info", "photos.vse")
    assert (about["files"], about["model_source"]) == (IMAGES + 1, "photo")
    assert json_of(light, "search", "photos.vse", "a dog in the snow", "-k", 1, "--all")["results"]


def test_light_install_prints_results_as_lines(light):
    """Without ``--json`` results are lines on stdout, and stderr is empty."""
    json_of(light, "index", "photos", "--into", "lines.vse", "--model", "model")
    done = run(light.programs / "vse", "search", "lines.vse", "a zebra in the snow", "-k", 3, cwd=light.home)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "words the model does not know: zebra"
    assert [line.split()[0] for line in lines[1:4]] == ["1.", "2.", "3."]
    assert lines[4:] == ["more with --page 2"]


def test_light_install_refuses_torch_model_in_one_line(light):
    """The error for a torch model is one line with the command that helps."""
    build(grid_config()).save(light.home / "torch-model")
    done = run(
        light.programs / "vse", "index", "photos", "--into", "torch.vse", "--model", "torch-model", cwd=light.home
    )
    assert done.returncode == 1
    assert done.stderr.startswith("vse: error: ")
    assert len(done.stderr.splitlines()) == 1
    assert 'pip install ".[train]"' in done.stderr
