"""Collections whose files are damaged while somebody uses them, or that a killed process left half done."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.hostile.numpy_model import NumpyModel
from tests.index.examples import VECTORS, directions
from tests.index.support import batch, create

from vse.index.pipeline import index_folder
from vse.index.store import EmbeddedCollection
from vse.index.watching import watch
from vse.inputs.preprocessing import load_pixels

BUSY = """
    import os, sys, threading, time
    from pathlib import Path
    from tests.index.examples import directions
    from vse.index.store import EmbeddedCollection, approximate

    kind = sys.argv[2]
    if kind != "vectors":
        approximate.kind_for = lambda rows: kind
    reader = EmbeddedCollection.open(Path(sys.argv[1]))
    query = directions(1, 64, seed=9)[0]
    expected = reader.search(query, 10).ids.tolist()

    def shorten():
        time.sleep(0.15)
        for path in Path(sys.argv[1]).glob(f"*/cache/items-*.{kind}"):
            os.truncate(path, 4096)

    thread = threading.Thread(target=shorten)
    thread.start()
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert reader.search(query, 10).ids.tolist() == expected
    thread.join()
    """


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be shortened there")
@pytest.mark.parametrize(("kind", "rows"), [("vectors", 8_000), ("hnsw", 500)])
def test_cache_shortened_under_a_busy_reader_ends_nothing(tmp_path: Path, kind: str, rows: int) -> None:
    """Searches run without a pause, so that the file is shortened in the middle of one: the answers stay right."""
    folder = tmp_path / "collection"
    with pytest.MonkeyPatch.context() as patch:
        if kind == "hnsw":
            patch.setattr("vse.index.store.approximate.kind_for", lambda rows: "hnsw" if rows else None)
        with create(folder, 64) as writer:
            writer.add(batch(directions(rows, 64)))
    command = [sys.executable, "-c", textwrap.dedent(BUSY), str(folder), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"


def test_temporary_header_of_a_killed_writer_is_removed(tmp_path: Path) -> None:
    """A process was killed between writing ``collection.json`` and renaming it."""
    folder = tmp_path / "collection"
    with create(folder) as writer:
        writer.add(batch(VECTORS))
    (folder / ".collection.json.k8_x1").write_text("{")
    EmbeddedCollection.open(folder, write=True).close()
    assert not list(folder.glob(".collection.json.*"))


@pytest.mark.slow
def test_milvus_killed_while_creating_tables_is_cleaned_up(tmp_path: Path) -> None:
    """Milvus Lite makes a folder, then its schema; without a schema it neither lists nor replaces the folder."""
    pytest.importorskip("milvus_lite")
    from vse.index.milvus import MilvusCollection

    folder = tmp_path / "photos.db"
    for name in ("vse", "vse_captions"):
        (folder / "collections" / name).mkdir(parents=True)
    (folder / "LOCK").touch()
    (folder / "collections" / "vse" / "schema.json.tmp").write_text("{")
    strange = folder / "collections" / "vsevolod"
    strange.mkdir()
    with MilvusCollection.create(folder, model="m1", model_source="s", dimensions=8) as writer:
        writer.add(batch(VECTORS))
    (folder / "collections" / "vse_g2").mkdir()
    with (
        MilvusCollection.open(folder, write=True) as writer,
        writer.new_generation(model="m2", model_source="s", dimensions=8) as new,
    ):
        new.add(batch(VECTORS))
        new.commit()
    with MilvusCollection.open(folder) as reader:
        assert (reader.info().model, reader.info().files) == ("m2", len(VECTORS))
    assert strange.is_dir(), "what is not ours is left alone"


@pytest.mark.slow
def test_watching_a_folder_that_never_rests(tmp_path: Path) -> None:
    """Files are written, replaced, renamed and deleted all the time; once it rests, the collection is the folder."""
    model, root, chosen = NumpyModel(), tmp_path / "photos", random.Random(3)
    root.mkdir()

    def save(name: str) -> None:
        pixels = np.random.default_rng(chosen.randrange(10**9)).integers(0, 256, (12, 16, 3), np.uint8)
        Image.fromarray(pixels).save(root / name)

    def churn() -> None:
        for number in range(120):
            save(f"{chosen.randrange(25):02}.png")
            time.sleep(0.01)
            names = sorted(path.name for path in root.iterdir())
            if number % 3 == 0:
                (root / names.pop(chosen.randrange(len(names)))).unlink()
            if number % 4 == 0 and len(names) > 3:
                (root / names[1]).replace(root / f"renamed{chosen.randrange(5)}.png")

    def churn_and_rest() -> None:
        try:
            churn()
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and indexed() != {path.name for path in root.iterdir()}:
                time.sleep(0.05)
        finally:
            stop.set()

    def indexed() -> set[str]:
        return {file.path for file in collection.files()}

    stop = threading.Event()
    made = {"model": model.fingerprint(), "model_source": "numpy", "dimensions": model.embed_size}
    with EmbeddedCollection.create(tmp_path / "index.vse", **made) as collection:
        writer = threading.Thread(target=churn_and_rest)
        writer.start()
        reports = list(watch(collection, model, [root], every=0.05, patience=0.2, stop=stop))
        writer.join()
        assert sum(report.new + report.changed for report in reports) > 20
        report = index_folder(collection, model, root)
        assert report.problems == ()
        assert indexed() == {path.name for path in root.iterdir()}
        for ids, vectors in collection.all_vectors():
            paths = [item.file.path for item in collection.items(ids.tolist())]
            pixels = [load_pixels(root / path, model.preprocessing) for path in paths]
            np.testing.assert_allclose(vectors, model.embed_images(np.stack(pixels)), atol=1e-6)
        assert collection.verify().ok
