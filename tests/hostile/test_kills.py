"""A process that changes a collection is killed, or its disk fails, at single write operations; nothing is lost.

Operations are those of the system: SQLite's and the cache's writes, syncs, renames, truncations and deletions, counted
by ``disk_faults.c``. A fixed seed chooses some of them; ``VSE_LONG_TESTS=1`` takes every one with each kind of fault.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.hostile.operations import DONE, NEW, OLD, TYPED

from vse.index.store import EmbeddedCollection
from vse.index.store.layout import is_collection
from vse.inputs.preprocessing import load_pixels

COMPILER = shutil.which("gcc") or shutil.which("cc")
LONG = bool(os.environ.get("VSE_LONG_TESTS"))
POINTS = 8
FILES = 10
KINDS = ("kill", "torn", "full", "error")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or COMPILER is None, reason="needs Linux and a C compiler"),
]


class Operations:
    """The process that forks operations, with the shim loaded."""

    def __init__(self, shim: Path, errors: Path, *modules: str) -> None:
        environment = {**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.errors = errors
        with errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.operations", *modules],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment,
            )  # fmt: skip
        assert self._answer() == "ready"

    def run(self, **asked: Any) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({key: str(value) for key, value in asked.items()}) + "\n")
        self.process.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, self.errors.read_text()
        return line


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shim") / "shim.so"
    source = Path(__file__).with_name("disk_faults.c")
    command = [str(COMPILER), "-O1", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return made


@pytest.fixture(scope="module")
def operations(shim: Path) -> Iterator[Operations]:
    made = Operations(shim, shim.with_name("stderr"))
    yield made
    made.process.communicate()


@pytest.fixture(scope="module")
def milvus_operations(shim: Path) -> Iterator[Operations]:
    pytest.importorskip("milvus_lite")
    made = Operations(shim, shim.with_name("stderr-milvus"), "vse.index.milvus", "milvus_lite.adapter.grpc.server")
    yield made
    made.process.communicate()


def save_images(root: Path, numbers: range, seed: int = 0) -> None:
    root.mkdir(exist_ok=True)
    for number in numbers:
        pixels = np.random.default_rng([seed, number]).integers(0, 256, (12, 16, 3), np.uint8)
        Image.fromarray(pixels).save(root / f"{number:03}.png")


def prepared(scenario: str, operations: Operations, place: Path) -> dict[str, Any]:
    """Make the state that an operation starts from; return what to ask for."""
    root, folder = place / "photos", place / "photos.vse"
    asked = {"folder": folder, "root": root, "acknowledged": place / "acknowledged", "do": scenario}
    save_images(root, range(FILES))
    if scenario == "new":
        return asked | {"do": "index"}
    assert operations.run(**asked | {"do": "index", "acknowledged": place / "before"}) == DONE
    if scenario == "changed":
        save_images(root, range(3, 6), seed=1)
        save_images(root, range(FILES, FILES + 4))
        for gone in (0, 1):
            (root / f"{gone:03}.png").unlink()
        (root / "002.png").rename(root / "moved.png")
        return asked | {"do": "index"}
    return asked


def expected_vectors(root: Path, paths: list[str], model: Any) -> np.ndarray:
    pixels = [load_pixels(root / path, model.preprocessing) for path in paths]
    return model.embed_images(np.stack(pixels)) if pixels else np.empty((0, model.embed_size), np.float32)


def check_state(asked: dict[str, Any], scenario: str) -> None:
    """Compare what a reader finds with what was acknowledged and, by brute force, with the images themselves."""
    folder, root = Path(asked["folder"]), Path(asked["root"])
    lines = asked["acknowledged"].read_text().splitlines() if asked["acknowledged"].exists() else []
    added, removed = set[str](), set[str]()
    for what, paths in map(json.loads, lines):
        added, removed = (added | set(paths), removed) if what == "added" else (added, removed | set(paths))
    if not is_collection(folder):
        assert not added, "acknowledged files are lost with the whole collection"
        return
    with EmbeddedCollection.open(folder) as reader:
        model = NEW if reader.info().model == NEW.fingerprint() else OLD
        assert reader.info().model == model.fingerprint()
        files = [file.path for file in reader.files()]
        assert added - removed <= set(files), "an acknowledged file is lost"
        assert not (removed - added) & set(files), "a removed file is back"
        if scenario in {"rebuild", "upgrade"}:
            assert len(files) == FILES
        report = reader.verify()
        assert report.ok or scenario == "rebuild", report
        ids, vectors = zip(*reader.all_vectors(), strict=True) if files else ((), ())
        items = reader.items(np.concatenate(ids).tolist()) if files else []
        stored = np.concatenate(vectors) if files else np.empty((0, model.embed_size), np.float32)
        fresh = [n for n, item in enumerate(items) if item.file.path in added or scenario in {"rebuild", "upgrade"}]
        paths = [items[n].file.path for n in fresh]
        np.testing.assert_allclose(stored[fresh], expected_vectors(root, paths, model), atol=1e-6)
        query = model.encode_texts(["a red square"])[0]
        hits = reader.search(query, 1000)
        scores = stored @ query
        np.testing.assert_allclose(hits.scores, np.sort(scores)[::-1], atol=1e-6)
        assert hits.exact
        assert set(hits.ids.tolist()) == {item.id for item in items}


def check_resumed(operations: Operations, asked: dict[str, Any], scenario: str) -> None:
    """The same operation, on a disk that works, ends in the same state as if nothing had happened."""
    assert operations.run(**asked | {"at": 0, "log": ""}) == DONE, operations.errors.read_text()
    names = {path.name for path in Path(asked["root"]).iterdir()}
    with EmbeddedCollection.open(asked["folder"]) as reader:
        assert reader.verify().ok
        found = {file.path for file in reader.files()}
        assert found == names if scenario != "remove" else found <= names
        assert scenario != "upgrade" or reader.info().model == NEW.fingerprint()
    leftovers = [path.name for path in Path(asked["folder"]).rglob(".*.json.*")]
    assert not leftovers, "temporary files of killed writers stay"


@pytest.mark.parametrize("scenario", ["new", "changed", "remove", "rebuild", "upgrade"])
def test_nothing_is_lost_at_any_write_operation(scenario: str, operations: Operations, tmp_path: Path) -> None:
    """Kills, torn writes, a full disk and I/O errors: acknowledged files are there, and the command can be repeated."""
    start = tmp_path / "start"
    start.mkdir()
    asked = prepared(scenario, operations, start)
    whole = shutil.copytree(start, tmp_path / "whole")
    log = tmp_path / "log"
    moved = {key: whole / Path(value).name if key != "do" else value for key, value in asked.items()}
    root = asked["root"]  # images stay in one place: a collection knows their folder
    assert operations.run(**moved | {"root": root, "log": log}) == DONE, operations.errors.read_text()
    total = len(log.read_text().splitlines())
    assert total > 15
    chosen = random.Random(20)
    sample = sorted(chosen.sample(range(1, total + 1), min(POINTS, total)))
    every = list(product(range(1, total + 1), KINDS))
    for at, kind in every if LONG else zip(sample, cycle(KINDS), strict=False):
        place = shutil.copytree(start, tmp_path / f"{at}-{kind}")
        here = {"folder": place / "photos.vse", "acknowledged": place / "acknowledged", "root": root, "do": asked["do"]}
        status = operations.run(**here, at=at, kind=kind)
        assert status in {-9, TYPED, DONE}, f"{kind} at {at}: {operations.errors.read_text()}"
        check_state(here, scenario)
        check_resumed(operations, here, scenario)
        shutil.rmtree(place)


@pytest.mark.parametrize("scenario", ["index_milvus", "upgrade_milvus"])
def test_milvus_killed_while_it_creates_a_collection_is_repeated(
    scenario: str, milvus_operations: Operations, tmp_path: Path
) -> None:
    """The same command succeeds after it, with every file once; until then an upgrade leaves the old embeddings."""
    start, log = tmp_path / "start.db", tmp_path / "log"
    if scenario == "upgrade_milvus":
        assert milvus_operations.run(folder=start, do="index_milvus") == DONE, milvus_operations.errors.read_text()
    else:
        start.mkdir()
    whole = shutil.copytree(start, tmp_path / "whole.db")
    assert milvus_operations.run(folder=whole, do=scenario, log=log) == DONE, milvus_operations.errors.read_text()
    lines = log.read_text().splitlines()
    creating = [at for at, line in enumerate(lines, 1) if "/partitions/" not in line]  # where rows are
    every = [(at, "kill") for at in creating]
    every += [(at, "torn") for at in creating if lines[at - 1].startswith("write")]
    assert len(every) > 60
    without_schema = next(at for at in creating if lines[at - 1].startswith("rename\t/collections/"))
    sample = [(without_schema, "kill"), *random.Random(21).sample(every, 2 if scenario == "index_milvus" else 1)]
    for at, kind in every if LONG else sample:
        place = shutil.copytree(start, tmp_path / f"{at}-{kind}.db")
        status = milvus_operations.run(folder=place, do=scenario, at=at, kind=kind)
        models = {"index_milvus": "m1", "upgrade_milvus": "m2"}[scenario]
        asked = [{"do": scenario}, {"do": "check_milvus", "models": models}]
        if scenario == "upgrade_milvus":
            asked.insert(0, {"do": "check_milvus", "models": "m1 m2"})
        for each in asked:
            found = milvus_operations.run(folder=place, **each)
            assert found == DONE, f"{kind} at {at} ({status}), {each}: {milvus_operations.errors.read_text()}"
        left = [path.name for path in (place / "collections").iterdir() if not (path / "schema.json").exists()]
        assert not left, f"{kind} at {at}: Milvus Lite neither lists nor replaces these"
        shutil.rmtree(place)


NOT_SYNCED = ("-shm", "-committed", ".lock")
"""Endings of files that may be lost with the power: SQLite rebuilds the first, the second may name fewer changes."""


def unsynced_at_commit_points(log: str, existing: set[str]) -> list[str]:
    """Return what is wrong with the order of writes, syncs and renames: each is a way to lose data with the power.

    The first write to a file that is not ``existing``, and a new folder, are names that have to be synced, too.
    """
    dirty, unsynced_names, seen, wrong = set[str](), set[str](), set(existing), list[str]()
    for number, line in enumerate(log.splitlines(), start=1):
        what, path, source = line.split("\t")
        folder, _, name = path.rpartition("/")
        if what == "write" and name == "acknowledged":  # not a file of the collection: marks where a call returned
            wrong += [f"{number}: acknowledged before {each} is synced" for each in dirty if each.endswith("-wal")]
            wrong += [f"{number}: acknowledged before the names in {each!r} are synced" for each in unsynced_names]
        elif what == "mkdir" and name not in {"", "cache"}:
            unsynced_names.add(folder)
        elif what == "write" and not path.endswith(NOT_SYNCED):
            dirty.add(path)
            if path not in seen and "/cache/" not in path and not name.startswith("."):  # its name is new, too
                unsynced_names.add(folder)
            seen.add(path)
        elif what == "fsync":
            dirty.discard(path)
            unsynced_names.discard(path)
        elif what == "unlink":
            dirty.discard(path)
        elif what == "rename":
            if f"{folder}/{source}" in dirty:
                wrong.append(f"{number}: {path} is renamed before it is synced")
            unsynced_names.add(folder)
            for each in dirty:
                same_cache = each.startswith(f"{folder}/{name.removesuffix('.json')}-")
                if same_cache or (name == "collection.json" and each.endswith((".sqlite", "-wal"))):
                    wrong.append(f"{number}: {path} names {each} before it is synced")
    return wrong + [f"the names in {folder or 'the folder'} are not synced" for folder in unsynced_names]


def test_files_are_synced_before_a_name_leads_to_them(operations: Operations, tmp_path: Path) -> None:
    """A power failure finds every commit point after the data it refers to, and every acknowledged change on disk."""
    logs = []
    for scenario in ("new", "changed", "remove", "rebuild", "upgrade"):
        place = tmp_path / scenario
        place.mkdir()
        asked = prepared(scenario, operations, place)
        if scenario != "new":
            asked["acknowledged"] = asked["folder"] / "acknowledged"
        existing = {str(path).removeprefix(str(asked["folder"])) for path in asked["folder"].rglob("*")}
        assert operations.run(**asked, log=place / "log") == DONE, operations.errors.read_text()
        logs.append((place / "log").read_text())
        assert unsynced_at_commit_points(logs[-1], existing) == [], scenario
    assert "acknowledged" in logs[1]
    without_syncs = "".join(line for line in logs[0].splitlines(keepends=True) if not line.startswith("fsync"))
    assert len(unsynced_at_commit_points(without_syncs, set())) > 5, "the audit finds missing syncs"
