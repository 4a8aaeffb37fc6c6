"""A few small images, in the packings that a source may have."""

from __future__ import annotations

import io
import json
import tarfile
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow
from PIL import Image
from pyarrow import parquet

from vse.models import load

COUNT, SHARD = 7, 3
NAMES = [f"{number:03}.png" for number in range(COUNT)]
CAPTIONS = [f"a photo of number {number}" for number in range(COUNT)]


@cache
def contents() -> list[bytes]:
    """PNG files, which differ."""
    found = []
    for number in range(COUNT):
        buffer = io.BytesIO()
        noise = np.random.default_rng(number).integers(0, 255, (8, 10, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((40, 32)).save(buffer, "PNG")
        found.append(buffer.getvalue())
    return found


@cache
def model():
    return load("photo", threads=1)


@cache
def expected(bounds: tuple[int, ...] = (0, 3, 6, COUNT)) -> np.ndarray:
    """The embeddings, computed in the batches of the shards."""
    parts = [contents()[first:last] for first, last in pairwise(bounds)]
    return np.concatenate([model().encode_images(part) for part in parts])


def write_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in zip(NAMES, contents(), strict=True):
        (folder / name).write_bytes(content)
    return folder


def tar_of(members: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def sample_members(first: int, last: int) -> list[tuple[str, bytes]]:
    members = []
    for number in range(first, last):
        members.append((NAMES[number], contents()[number]))
        members.append((f"{number:03}.txt", CAPTIONS[number].encode()))
        members.append((f"{number:03}.json", json.dumps({"width": 40 + number}).encode()))
    return members


def write_tars(folder: Path) -> Path:
    """Two tars with the images, their captions and a JSON object each."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "00.tar").write_bytes(tar_of(sample_members(0, 4)))
    (folder / "01.tar").write_bytes(tar_of(sample_members(4, COUNT)))
    return folder


def image_table() -> pyarrow.Table:
    """Rows as ``datasets`` stores them."""
    images = [{"bytes": content, "path": name} for name, content in zip(NAMES, contents(), strict=True)]
    return pyarrow.table({"image": images, "caption": CAPTIONS, "score": [float(n) for n in range(COUNT)]})


def write_parquet(path: Path, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(image_table(), path, **({"row_group_size": 2} | options))
    return path


def read_shards(folder: Path) -> tuple[pyarrow.Table, np.ndarray]:
    """The rows of all shards in order, and the embeddings."""
    table = pyarrow.concat_tables(parquet.read_table(path) for path in sorted(folder.glob("shard-*.parquet")))
    flat = pyarrow.concat_arrays(chunk.flatten() for chunk in table.column("embedding").chunks)
    return table, flat.to_numpy().reshape(len(table), -1)


def files(folder: Path) -> dict[str, bytes]:
    """The content of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
