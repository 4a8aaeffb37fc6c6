"""List the modules of vse that one task runs through: index one JPEG, answer one text query.

    python benchmarks/walks.py

A module is on the walk when the task calls one of its functions; package faces and code that runs while a module is
imported do not count. The number of imported modules is printed beside it. Each task runs in a fresh process with the
bundled model. ``docs/architecture.md`` shows the output.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

TASKS = ("index", "search")


def walk(task: Callable[[], Any]) -> tuple[list[str], int]:
    """Return the modules whose functions ``task`` calls, in the order of first calls, and how many it imports."""
    called: dict[str, None] = {}

    def profile(frame: Any, event: str, _argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("vse.") and name not in called and not _is_import(frame):
            called[name] = None

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        task()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    imported = [name for name in sys.modules if name.split(".")[0] == "vse"]
    return [name for name in called if not hasattr(sys.modules[name], "__path__")], len(imported)


def _is_import(frame: Any) -> bool:
    """Whether a frame runs because some module is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals["__name__"] != "__main__":
            return True
        frame = frame.f_back
    return False


def index_one(home: Path) -> None:
    """Index the folder ``home/photos`` into ``home/photos.vse``."""
    import vse.index

    model = vse.load("photo")
    collection = vse.index.create_collection(
        home / "photos.vse", model=model.fingerprint(), model_source="photo", dimensions=model.embed_size
    )
    vse.index.index_folder(collection, model, home / "photos")
    collection.close()


def search_one(home: Path) -> None:
    """Search ``home/photos.vse`` for a text."""
    from vse.index import open_collection, search

    collection = open_collection(home / "photos.vse")
    search(collection, "a red square")
    collection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", nargs="?", choices=TASKS, help="print one list as JSON; used by this script itself")
    parser.add_argument("home", nargs="?", type=Path)
    arguments = parser.parse_args()
    if arguments.task:
        task = {"index": index_one, "search": search_one}[arguments.task]
        print(json.dumps(walk(lambda: task(arguments.home))))
        return
    with tempfile.TemporaryDirectory() as folder:
        _write_image(Path(folder) / "photos" / "red.jpg")
        for task, title in zip(TASKS, ("Index one JPEG", "Answer one query"), strict=True):
            command = [sys.executable, __file__, task, folder]
            names, imported = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(f"{title}: {len(names)} modules, {imported} imported\n\n    " + "\n    ".join(names) + "\n")


def _write_image(path: Path) -> None:
    from PIL import Image

    path.parent.mkdir()
    Image.new("RGB", (64, 48), "red").save(path)


if __name__ == "__main__":
    main()
