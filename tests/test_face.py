"""The top-level functions do what the commands do: same results, same refusals."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.search_support import reported, saved_folder
from tests.index.pipeline.support import save_picture as save_image
from tests.support_models import build, grid_config
from tests.training.support import tiny_values, write_pairs, write_toml

import vse
from vse.errors import InputError


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    for number in range(5):
        save_image(tmp_path / "images", f"{number}.png", number)
    result = vse.index_folders(tmp_path / "images", tmp_path / "index", model=str(saved_folder()))
    assert (result.new, result.info.items, result.reports[0].new) == (True, 5, 5)
    return tmp_path / "index"


def test_import_of_vse_loads_no_library():
    code = "import sys, vse; print(sorted(n for n in sys.modules if n.partition('.')[0] in {'numpy', 'torch', 'vse'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['vse', 'vse._version']"


def test_every_exported_name_exists():
    for name in vse.__all__:
        assert getattr(vse, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'serach'"):
        vse.serach  # noqa: B018


def test_face_search_equals_the_command(indexed):
    """The model and its coefficients are found from the collection, so confidences are those of ``vse search``."""
    with closing(vse.open_collection(indexed)) as collection:
        found = vse.search(collection, "a dog runs", k=5)
    rows = reported("search", indexed, "a dog runs", "-k", "5")["results"]
    assert [result.path for result in found.results] == [row["path"] for row in rows]
    assert [result.confidence for result in found.results] == pytest.approx([row["confidence"] for row in rows])


def test_face_search_refuses_another_model_of_equal_width(indexed, tmp_path):
    other = build(grid_config(image_size=96), seed=1)
    with closing(vse.open_collection(indexed)) as collection, pytest.raises(InputError, match=other.fingerprint()):
        vse.search(collection, "a dog runs", model=other)


def test_indexing_again_adds_only_new_files(indexed, tmp_path):
    save_image(tmp_path / "images", "9.png", 9)
    again = vse.index_folders([tmp_path / "images"], indexed)
    assert (again.new, again.reports[0].new, again.info.items) == (False, 1, 6)


def test_index_folders_refuses_an_empty_list(tmp_path):
    with pytest.raises(InputError, match="folders is empty"):
        vse.index_folders([], tmp_path / "index")


def test_face_trains_and_evaluates_like_the_commands(tmp_path):
    """A recipe by file, its run resumed for nothing, and the same rsum from both ways of evaluating."""
    data = write_pairs(tmp_path / "pairs")
    recipe = write_toml(
        tmp_path / "tiny.toml", tiny_values(data, schedule={"epochs": 1, "batch_size": 16, "decay_epochs": 0})
    )
    result = vse.train(recipe, tmp_path / "run", changes=["seed=5"])
    assert vse.train(recipe, tmp_path / "run", changes=["seed=5"]).to_json() == result.to_json()
    report = vse.evaluate(tmp_path / "run/best", data, "dev", samples=10)
    in_memory = vse.evaluate(vse.load(tmp_path / "run/best"), data, "dev", samples=10)
    shown = reported("eval", tmp_path / "run/best", "--data", data, "--split", "dev", "--out", tmp_path / "out.json")
    rsum = report.results[0].metrics.rsum
    assert rsum == in_memory.results[0].metrics.rsum
    assert rsum == pytest.approx(shown["results"][0]["metrics"]["rsum"])
