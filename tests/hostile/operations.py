"""Change a collection in forked processes whose disk fails: ``python -m tests.hostile.operations``, with the shim.

Reads one JSON object per line: ``do`` (an operation below), ``folder``, ``root``, ``acknowledged`` (a file), and
``at``, ``kind`` and ``log`` as in ``disk_faults.c``. Answers each with the exit status: 0 done, 3 a VSEError, 4 another
error, negative for a signal. What a call of the collection returned from is appended to ``acknowledged``.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.numpy_model import NumpyModel
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS
from tests.index.support import batch

from vse.errors import VSEError
from vse.index.pipeline import index_folder
from vse.index.store import EmbeddedCollection, cache
from vse.index.store.layout import is_collection
from vse.index.types import Entry
from vse.index.upgrade import upgrade_collection

OLD, NEW = NumpyModel(1, 16), NumpyModel(2, 24)
TIMEOUT = 120
DONE, TYPED, UNTYPED = 0, 3, 4


class Acknowledging(EmbeddedCollection):
    """A collection that records what it acknowledged, in a file that the shim leaves alone."""

    record: int

    def add(self, entries: Any) -> None:
        entries = list(entries)
        super().add(entries)
        self._acknowledge("added", [entry.file.path for entry in entries if isinstance(entry, Entry)])

    def remove(self, files: Any) -> int:
        files = list(files)
        count = super().remove(files)
        self._acknowledge("removed", [path for _, path in files])
        return count

    def _acknowledge(self, what: str, paths: list[str]) -> None:
        os.write(self.record, (json.dumps([what, paths]) + "\n").encode())


def opened(asked: dict[str, Any]) -> Acknowledging:
    folder = Path(asked["folder"])
    made = (
        EmbeddedCollection.open(folder, write=True)
        if is_collection(folder)
        else EmbeddedCollection.create(folder, model=OLD.fingerprint(), model_source="old", dimensions=OLD.embed_size)
    )
    collection = Acknowledging(made.session)
    collection.record = os.open(asked["acknowledged"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    return collection


def index(asked: dict[str, Any]) -> None:
    with opened(asked) as collection:
        index_folder(collection, OLD, asked["root"], commit_files=3, batch_size=2)
        collection.settle()


def remove(asked: dict[str, Any]) -> None:
    with opened(asked) as collection:
        names = sorted(file.path for file in collection.files())
        for name in names[::3]:
            collection.remove([(asked["root"], name)])


def rebuild(asked: dict[str, Any]) -> None:
    with opened(asked) as collection:
        collection.rebuild()


def upgrade(asked: dict[str, Any]) -> None:
    with opened(asked) as collection:
        if collection.info().model != NEW.fingerprint():
            upgrade_collection(collection, NEW, model_source="new")


def in_milvus(asked: dict[str, Any]) -> Any:
    """Return the collection in Milvus Lite, created unless it is there, as ``vse index`` does."""
    from vse.index.milvus import MilvusCollection

    if MilvusCollection.exists(asked["folder"]):
        return MilvusCollection.open(asked["folder"], write=True)
    return MilvusCollection.create(asked["folder"], model="m1", model_source="s", dimensions=DIMENSIONS)


def index_milvus(asked: dict[str, Any]) -> None:
    with in_milvus(asked) as collection:
        collection.add(batch(VECTORS))


def upgrade_milvus(asked: dict[str, Any]) -> None:
    with in_milvus(asked) as collection:
        if collection.info().model != "m2":
            with collection.new_generation(model="m2", model_source="s", dimensions=DIMENSIONS) as new:
                new.add(batch(VECTORS))
                new.commit()


def check_milvus(asked: dict[str, Any]) -> None:
    """Check as a reader that every file is there once, and is found."""
    from vse.index.milvus import MilvusCollection

    with MilvusCollection.open(asked["folder"]) as reader:
        info = reader.info()
        assert info.model in asked["models"].split(), info
        assert info.files == info.items == info.captions == len(VECTORS), info
        assert len(reader.search(QUERIES[0], 1000).ids) == len(VECTORS)


OPERATIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "index": index,
    "remove": remove,
    "rebuild": rebuild,
    "upgrade": upgrade,
    "index_milvus": index_milvus,
    "upgrade_milvus": upgrade_milvus,
    "check_milvus": check_milvus,
}


def run(asked: dict[str, Any], arm: Any) -> int:
    """Run one operation in this process, which was forked for it."""
    signal.alarm(TIMEOUT)
    cache.FOLLOW_AFTER = 4  # so that faults also hit the cache while it follows
    folder, log = str(asked["folder"]).encode(), str(asked.get("log", "")).encode()
    arm(folder, int(asked.get("at", 0)), str(asked.get("kind", "kill")).encode(), log)
    try:
        OPERATIONS[asked["do"]](asked)
    except VSEError as error:
        os.write(2, f"{error}\n".encode())
        return TYPED
    except BaseException:  # noqa: BLE001 - reported by the exit status
        traceback.print_exc()
        return UNTYPED
    return DONE


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)  # once, before the forks
    arm = ctypes.CDLL(None).disk_faults_arm
    arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p]
    os.write(1, b"ready\n")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(run(json.loads(line), arm))
        _, status = os.waitpid(child, 0)
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    main()
