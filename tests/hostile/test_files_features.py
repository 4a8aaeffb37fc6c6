"""Feature files and tables that a stranger wrote: bombs, links into other files and broken headers are one line."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from vse.data.files import read_rows
from vse.data.npy import map_array, open_features
from vse.data.reading import stop
from vse.data.video_sources import open_frames
from vse.errors import InputError
from vse.evaluation.embeddings import Embeddings
from vse.index.transfer.sources import _open_npy

HEADERS = {
    "negative shape": "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }",
    "negative product": "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -4), }",
    "brackets": "[" * 3000 + "]" * 3000,
    "signs": "-" * 5000 + "1",
    "sides": f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'-' * 3000}1, 4), }}",
    "huge": "{'descr': '<f4', 'fortran_order': False, 'shape': (%s, 4), }" % ("9" * 400),
    "overflow": "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
    "expression": "{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').getpid(), 4), }",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (2, 4), }",
    "keys": "{'descr': '<f4'}",
    "type": "{'descr': ['<f4'], 'fortran_order': 1, 'shape': 3}",
}


def npy(header: str) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(400)


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_npy_headers_of_a_stranger_are_one_line(header: str, tmp_path: Path) -> None:
    """Every reader of arrays refuses them, and none runs, allocates or maps anything."""
    path = tmp_path / "features.npy"
    path.write_bytes(npy(header))
    with pytest.raises(InputError, match=r"features\.npy"):
        open_features(path)
    with pytest.raises(ValueError, match=r"\w"):
        map_array(path)
    with pytest.raises(InputError, match=r"features\.npy"):
        _open_npy(path)
    with pytest.raises(InputError, match="features"):
        open_frames(tmp_path).read("features")
    with zipfile.ZipFile(tmp_path / "frames.npz", "w") as archive:
        archive.writestr("features.npy", npy(header))
    with pytest.raises(InputError, match="frames"):
        open_frames(tmp_path / "frames.npz").read("features")


def test_saved_embeddings_with_broken_header_are_refused(tmp_path: Path) -> None:
    """A folder of saved embeddings may come from somebody else too."""
    header = {"format": 1, "data": "d", "split": "test", "split_hash": "0", "model": "m", "fingerprint": "f"}
    (tmp_path / "embeddings.json").write_text(json.dumps(header))
    for name in ("images.npy", "texts.npy", "text_to_image.npy"):
        (tmp_path / name).write_bytes(npy(HEADERS["brackets"]))
    with pytest.raises(InputError):
        Embeddings.load(tmp_path)


def test_npz_bomb_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A header that promises more than one video can have."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 4096), }"
    with zipfile.ZipFile(tmp_path / "frames.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("v.npy", npy(header))
    with pytest.raises(InputError, match="16,384,000,000 bytes of features"):
        open_frames(tmp_path / "frames.npz").shape("v")


def test_hdf5_links_into_other_files_are_refused(tmp_path: Path) -> None:
    """External links, soft links, external storage and virtual datasets would show bytes of any file."""
    h5py = pytest.importorskip("h5py")
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["v"] = np.ones((3, 4), np.float32)
    (tmp_path / "secret.txt").write_bytes(b"password" * 8)
    path = tmp_path / "frames.h5"
    with h5py.File(path, "w") as file:
        file["plain"] = np.ones((3, 4), np.float32)
        file["external"] = h5py.ExternalLink(str(secret), "/v")
        file["soft"] = h5py.SoftLink("/plain")
        file.create_dataset("raw", (4, 4), np.float32, external=[(str(tmp_path / "secret.txt"), 0, 64)])
        layout = h5py.VirtualLayout((3, 4), np.float32)
        layout[:] = h5py.VirtualSource(str(secret), "v", (3, 4))
        file.create_virtual_dataset("virtual", layout)
    frames = open_frames(path)
    assert frames.read("plain").shape == (3, 4)
    for name in ("external", "soft", "raw", "virtual"):
        for use in (frames.shape, frames.read):
            with pytest.raises(InputError, match=r"is a link|stored in other files"):
                use(name)


def test_hdf5_bomb_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Few bytes on disk that decompress to 16 GB, in one chunk or in many; a few of its frames can be read."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "frames.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("many", (1_000_000, 4096), np.float32, chunks=(1024, 1024), compression="gzip")
        file.create_dataset("one", (10, 4), np.float32, chunks=(10, 4), maxshape=(None, 4))
    assert path.stat().st_size < 100_000
    frames = open_frames(path)
    with pytest.raises(InputError, match="bytes of features"):
        frames.read("many")
    assert frames.read("many", np.array([0])).shape == (1, 4096)
    assert frames.read("one").shape == (10, 4)


def test_parquet_bomb_is_refused(tmp_path: Path) -> None:
    """A caption of 100 MB, stored once and repeated in each row: a small file with gigabytes of captions."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    captions = pyarrow.DictionaryArray.from_arrays(np.zeros(200, np.int32), pyarrow.array(["a" * 20_000_000]))
    table = pyarrow.table({"path": [f"{n}.jpg" for n in range(200)], "caption": captions})
    path = tmp_path / "captions.parquet"
    parquet.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="a text of 20,000,000 bytes"):
        list(read_rows(path, stop))


def test_parquet_of_noise_is_one_line(tmp_path: Path) -> None:
    """Flipped bytes anywhere in the file: rows, or one line that names it."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({"path": ["a.jpg"] * 50, "caption": ["a dog"] * 50}), buffer)
    random = np.random.default_rng(5)
    for _ in range(150):
        content = bytearray(buffer.getvalue())
        for at in random.integers(0, len(content), 3):
            content[at] ^= 1 << int(random.integers(8))
        path = tmp_path / "captions.parquet"
        path.write_bytes(content)
        with suppress(InputError):  # nothing else
            list(read_rows(path, stop))
