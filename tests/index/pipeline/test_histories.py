"""After any sequence of file changes, the updated collection equals a rebuilt one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.index.pipeline.support import ids_of, model, new_collection, save_picture

from vse.index.pipeline import index_folder
from vse.index.scan import digest

NAMES = [f"{folder}{name}.bmp" for folder in ("", "x/", "x/y/", "é ") for name in "abc"]


def change(root: Path, random: np.random.Generator, step: int) -> None:
    """Apply one random file operation with a unique time; contents are few, so that equal ones are common."""
    now = (step * 1_000_000_000,) * 2
    path, other = (root / NAMES[int(k)] for k in random.integers(len(NAMES), size=2))
    what = random.choice(["write", "delete", "rename", "copy", "exchange", "touch", "break"])
    other.parent.mkdir(parents=True, exist_ok=True)
    if what == "write" or not path.exists():
        os.utime(save_picture(root, path.relative_to(root).as_posix(), int(random.integers(6))), ns=now)
    elif what == "delete":
        path.unlink()
    elif what == "rename":
        path.replace(other)
    elif what == "copy" and path != other:
        shutil.copy2(path, other)
        os.utime(other, ns=now)
    elif what == "exchange" and other.exists() and path != other:
        path.rename(root / "between")
        other.rename(path)
        (root / "between").rename(other)
    elif what == "touch":
        os.utime(path, ns=now)
    elif what == "break":
        path.unlink()
        (path.parent / "broken.png").write_bytes(b"broken")


@pytest.mark.parametrize("seed", range(4))
def test_updated_collection_equals_rebuilt_one(tmp_path, seed):
    """Compare paths, digests, times and embeddings; another run finds nothing to do."""
    random, root = np.random.default_rng(seed), tmp_path / "photos"
    save_picture(root, "stays.bmp", 99)
    (root / "x/y").mkdir(parents=True)
    for folder in ("x", "x/y"):  # an empty folder could be an unmounted disk
        (root / folder / "notes.txt").touch()
    step = 0
    with new_collection(tmp_path / "index.vse") as collection:
        for _ in range(12):
            for _ in range(int(random.integers(1, 6))):
                step += 1
                change(root, random, step)
            index_folder(collection, model(), root, batch_size=4)
            expected = {path.relative_to(root).as_posix(): path for path in root.rglob("*.bmp")}
            files = {file.path: file for file in collection.files()}
            assert files.keys() == expected.keys()
            for path, file in files.items():
                status = expected[path].stat()
                assert file.digest == digest(expected[path])
                assert (file.size, file.modified) == (status.st_size, status.st_mtime_ns)
            ids = ids_of(collection)
            found = np.concatenate([collection.vectors(ids[path]) for path in expected])
            np.testing.assert_allclose(found, model().encode_images(list(expected.values())), atol=1e-5)
            again = index_folder(collection, model(), root)
            assert again.unchanged == len(expected)
            assert (again.new, again.changed, again.touched, again.moved, again.removed) == (0, 0, 0, 0, 0)
            assert ids_of(collection) == ids
        assert collection.verify().ok
