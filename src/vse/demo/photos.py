"""A folder of one's own photographs, made searchable with the model of the package: ``vse demo --photos``. No torch."""

from __future__ import annotations

import shlex
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vse.errors import InputError
from vse.progress import ProgressReporter
from vse.shipped import DEFAULT, place_of

if TYPE_CHECKING:
    from rich.console import Console

    from vse.index.collection import Collection, CollectionInfo
    from vse.index.indexing import IndexReport
    from vse.onnx_model import OnnxModel

COLLECTION = "photos.vse"


@dataclass(frozen=True)
class PhotosResult:
    """What the folder brought, and the collection that it is in now."""

    question: ClassVar[str] = "a dog in the snow"
    """One that the collection can be asked."""
    report: IndexReport
    info: CollectionInfo

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

    def render(self, console: Console) -> None:
        self.report.render(console)
        where, serve = self.info.where, f"vse serve {shlex.quote(self.info.where)}"
        console.print(f"index: {where}, {self.info.files:,} files   ({serve})", soft_wrap=True, markup=False)


def index_photos(out: Path, folder: Path, progress: ProgressReporter) -> PhotosResult:
    """Bring ``out/photos.vse`` up to date with ``folder``; other folders that it holds stay in it.

    A folder without anything to show is an error before a collection is made.
    """
    from vse.index.indexing import index_folder
    from vse.index.indexing.folder import root_of
    from vse.index.scan import walk
    from vse.onnx_model import OnnxModel

    root = root_of(folder)
    if next(walk(root), None) is None:
        raise InputError(f"{root}: no pictures or clips in it: name a folder that has some")
    model = OnnxModel.load(place_of(DEFAULT))
    with closing(_open(out / COLLECTION, model)) as collection:
        report = index_folder(collection, model, root, progress=progress)
        collection.settle(progress=progress)
        info = collection.info()
    if not info.files:
        first = f", first {report.problems[0]}" if report.problems else ""
        raise InputError(f"{root}: none of its pictures can be used{first}: name another folder")
    return PhotosResult(report, info)


def _open(where: Path, model: OnnxModel) -> Collection:
    from vse.index.open import collection_exists, create_collection, open_collection
    from vse.index.refusal import other_model

    mark = model.fingerprint()
    if not collection_exists(where):
        return create_collection(where, model=mark, model_source=DEFAULT, dimensions=model.embed_size)
    with closing(open_collection(where)) as before:
        info = before.info()
    if info.model != mark:
        raise other_model(info.where, info.model, info.model_source, mark, DEFAULT)
    return open_collection(where, write=True, model=mark)
