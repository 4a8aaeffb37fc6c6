"""Files that change their kind, warn, or meet too little memory while they are indexed."""

from __future__ import annotations

import io
import os
import resource
import struct
import subprocess
import sys
import textwrap
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.hostile.numpy_model import NumpyModel

from vse.index.pipeline import index_folder
from vse.index.scan.describe import digest
from vse.index.store import EmbeddedCollection
from vse.index.transfer.parquet import check_embedded
from vse.index.transfer.sources import table_rows
from vse.inputs import files as opening
from vse.inputs.files import BadMediaError
from vse.inputs.images import ImageLimits
from vse.service.media import OpenFile

MODEL = NumpyModel()


def new_collection(folder: Path) -> EmbeddedCollection:
    made = {"model": MODEL.fingerprint(), "model_source": "numpy", "dimensions": MODEL.embed_size}
    return EmbeddedCollection.create(folder, **made)


def save_noise(path: Path, seed: int, **options: Any) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (60, 80, 3), np.uint8)
    Image.fromarray(pixels).save(path, **options)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipe_that_replaces_a_file_does_not_stop_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe takes the place of the file between the look at it and its opening; nobody ever writes to it."""
    path = tmp_path / "a.mp4"
    os.mkfifo(path)
    monkeypatch.setitem(digest.__globals__, "regular_size", lambda path: 5)
    with pytest.raises(BadMediaError, match="not a regular file"):
        digest(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipe_that_replaces_a_file_does_not_stop_indexing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other files are indexed, and the pipe is listed."""
    root = tmp_path / "photos"
    root.mkdir()
    for number in range(3):
        save_noise(root / f"{number}.png", number)
    (root / "nameless").write_bytes((root / "0.png").read_bytes())
    real = opening.os.open

    def replaced(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if str(path).endswith("nameless") and Path(path).is_file():
            Path(path).unlink()
            os.mkfifo(path)
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(opening.os, "open", replaced)
    with new_collection(tmp_path / "index.vse") as collection:
        report = index_folder(collection, MODEL, root)
        assert report.new == 3
        assert [problem.path for problem in report.problems] == ["nameless"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("name", [".vseignore", "captions.csv", "captions.jsonl"])
def test_pipe_named_like_a_file_of_settings_does_not_stop_indexing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whether it is there from the start, or takes the place of a caption file that was just looked at."""
    root = tmp_path / "photos"
    root.mkdir()
    save_noise(root / "0.png", 0)
    os.mkfifo(root / name)
    with new_collection(tmp_path / "index.vse") as collection:
        report = index_folder(collection, MODEL, root)
        assert report.new == (0 if name == ".vseignore" else 1), "what it would leave out is not taken in"
        assert len(report.problems) == (1 if name == ".vseignore" else 0)
        if name != ".vseignore":
            monkeypatch.setattr(Path, "is_file", lambda path: True)
            (problem,) = index_folder(collection, MODEL, root).problems
            assert (problem.path, "not a regular file" in problem.reason) == (name, True)


def with_bad_exif(content: bytes) -> bytes:
    """Return a JPEG with EXIF whose first entry is cut off."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01\x03\0"
    return content[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + content[2:]


def with_bad_animation(content: bytes) -> bytes:
    """Return a PNG that announces an animation of no frames."""
    chunk = b"acTL" + bytes(8)
    return content[:33] + struct.pack(">I", 8) + chunk + struct.pack(">I", zlib.crc32(chunk)) + content[33:]


def test_images_with_broken_metadata_print_nothing(tmp_path: Path) -> None:
    """Pillow warns on stderr; whoever indexes a folder sees reasons of files that fail, and nothing else."""
    for ending, damaged in (("jpg", with_bad_exif), ("png", with_bad_animation)):
        buffer = io.BytesIO()
        Image.new("RGB", (40, 30), "red").save(buffer, "JPEG" if ending == "jpg" else "PNG")
        (tmp_path / f"a.{ending}").write_bytes(damaged(buffer.getvalue()))
    program = """
        import sys
        from pathlib import Path
        from vse.index.scan.metadata import *  # noqa
        from vse.inputs import read_image
        for path in sorted(Path(sys.argv[1]).iterdir()):
            assert read_image(path).shape == (30, 40, 3)
            assert read_image(path, at_least=(8, 8)).shape[2] == 3
        """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
def test_ordinary_images_are_indexed_with_little_memory(tmp_path: Path) -> None:
    """Under a limit of 1.5 GB of address space, none of the files is called too large for the memory."""
    root = tmp_path / "photos"
    root.mkdir()
    for number in range(12):
        save_noise(root / f"{number}.jpg", number)
    program = """
        import sys
        from tests.hostile.test_files_media import MODEL, new_collection
        from pathlib import Path
        from vse.index.pipeline import index_folder
        with new_collection(Path(sys.argv[2])) as collection:
            report = index_folder(collection, MODEL, sys.argv[1])
        assert report.new == 12 and not report.problems, report
        """

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(program), str(root), str(tmp_path / "index.vse")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, preexec_fn=limited)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes are those of Unix")
def test_small_files_take_no_memory_for_their_limits(tmp_path: Path) -> None:
    """Files of the service and of an import: limits of 200 MB and 1 GB, files of a few bytes."""
    for name, content in (("a.png", "x" * 500), ("manifest.json", "{}"), ("rows.json", '[{"id": "a"}]')):
        (tmp_path / name).write_text(content)
    stream = io.FileIO(tmp_path / "a.png")
    check_embedded(tmp_path)  # imports what it needs
    tracemalloc.start()
    try:
        assert OpenFile(stream, 500, 0).read(ImageLimits().max_bytes) == b"x" * 500
        check_embedded(tmp_path)
        assert list(table_rows(tmp_path / "rows.json")) == [{"id": "a"}]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
        stream.close()


def test_reading_at_most_a_limit_cuts_nothing_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its size before nor a reader without one, such as that of a URL, cuts the content."""
    path, content = tmp_path / "file", bytes(range(256)) * 20
    path.write_bytes(content)
    monkeypatch.setattr(opening, "READ_BYTES", 100)
    for limit in (0, 1, 250, 5000, 5120, 9999):
        assert opening.read_at_most(io.BytesIO(content), limit) == content[:limit]
        with path.open("rb") as file:
            assert opening.read_at_most(file, limit) == content[:limit]


def test_full_disk_while_the_cache_follows_says_what_is_stored(tmp_path: Path) -> None:
    """Everything was committed: the message does not say that nothing was changed."""
    root = tmp_path / "photos"
    root.mkdir()
    for number in range(40):
        save_noise(root / f"{number}.png", number)
    program = """
        import resource, sys
        from pathlib import Path
        from tests.hostile.test_files_media import MODEL, new_collection
        from vse.errors import VSEError
        from vse.index.pipeline import index_folder
        collection = new_collection(Path(sys.argv[2]))
        index_folder(collection, MODEL, sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
        try:
            collection.settle()
        except VSEError as error:
            print(error)
        """
    command = [sys.executable, "-c", textwrap.dedent(program), str(root), str(tmp_path / "index.vse")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "every file is stored" in said
    assert "nothing was changed" not in said
    with EmbeddedCollection.open(tmp_path / "index.vse") as reader:
        assert reader.info().files == 40
        assert len(reader.search(MODEL.encode_texts(["a red square"])[0], 100).ids) == 40
