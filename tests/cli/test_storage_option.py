"""``--storage`` of ``vse index`` and ``vse collection import``: recorded, shown, kept, and refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from tests.cli.search_support import error_line, reported
from tests.index.examples import directions
from tests.support_models import build, grid_config, picture

from vse.cli.main import main
from vse.index.open import open_collection
from vse.index.storage import rounded


@pytest.fixture
def vectors(tmp_path):
    found = directions(30, 16, seed=70)
    np.save(tmp_path / "vectors.npy", found)
    return found


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_import_with_storage_is_shown_and_imports_again_unchanged(tmp_path, vectors, storage, capsys):
    index = tmp_path / "own.vse"
    first = reported("collection", "import", index, tmp_path / "vectors.npy", "--storage", storage)
    assert first["added"] == 30
    again = reported("collection", "import", index, tmp_path / "vectors.npy")
    assert (again["unchanged"], again["replaced"]) == (30, 0)
    assert reported("collection", "info", index)["storage"] == storage
    capsys.readouterr()
    assert main(["collection", "info", str(index)]) == 0
    assert f"16 dimensions, stored as {storage}" in capsys.readouterr().out
    reported("collection", "export", index, tmp_path / "out")
    copy = tmp_path / "copy.vse"
    reported("collection", "import", copy, tmp_path / "out", "--storage", storage)
    for place in (index, copy):
        collection = open_collection(place)
        (_, found), *_ = collection.all_vectors()
        collection.close()
        assert found.tobytes() == rounded(vectors, storage).tobytes()
    assert reported("collection", "verify", copy)["ok"]


def test_other_storage_of_a_known_index_is_refused(tmp_path, vectors, capsys):
    index = tmp_path / "own.vse"
    reported("collection", "import", index, tmp_path / "vectors.npy")
    arguments = ("collection", "import", index, tmp_path / "vectors.npy", "--storage", "int8")
    assert "stores float32, not int8" in error_line(capsys, 1, *arguments)


@pytest.mark.parametrize("value", ["float8", "", "FLOAT16"])
def test_unknown_storage_option_creates_nothing(tmp_path, vectors, capsys, value):
    Image.fromarray(picture(1)).save(tmp_path / "a.png")
    new = tmp_path / "new.vse"
    for command in (("index", tmp_path, "--into", new), ("collection", "import", new, tmp_path / "vectors.npy")):
        line = error_line(capsys, 1, *command, "--storage", value)
        assert "expected one of 'float32', 'float16', 'int8'" in line
    assert not (tmp_path / "new.vse").exists()


def test_index_of_images_in_float16_is_updated_and_searched(tmp_path, capsys):
    """Without the option, the next update keeps the storage."""
    build(grid_config(), seed=0).save(tmp_path / "model")
    (tmp_path / "photos").mkdir()
    for seed in range(3):
        Image.fromarray(picture(seed)).save(tmp_path / "photos" / f"{seed}.png")
    arguments = ("index", tmp_path / "photos", "--into", tmp_path / "new.vse", "--model", tmp_path / "model")
    assert reported(*arguments, "--storage", "float16")["items"] == 3
    Image.fromarray(picture(7)).save(tmp_path / "photos" / "late.png")
    assert reported(*arguments)["items"] == 4
    assert reported("collection", "info", tmp_path / "new.vse")["storage"] == "float16"
    found = reported("search", tmp_path / "new.vse", "--image", tmp_path / "photos" / "late.png")
    assert found["results"][0]["path"].endswith("late.png")
    assert found["results"][0]["score"] == pytest.approx(1, abs=1e-3)
