"""Helpers for the indexing tests: folders, a tiny model, inspection of collections."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
from PIL import Image
from tests.support_models import SIZE, build, grid_config, picture

from vse.index.store import EmbeddedCollection
from vse.models.vse_model import VSEModel

HOUR = 3_600_000_000_000


@functools.cache
def model() -> VSEModel:
    """Return a model that reads images of 40 pixels and a few words."""
    return build(grid_config())


def save_picture(root: Path, path: str, seed: int = 0, **options: object) -> Path:
    """Save an image that is unique per seed; all BMP files have the same size."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(seed)).save(root / path, **options)
    return root / path


def later(path: Path, by: int = HOUR) -> None:
    """Shift the modification time of a file."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + by))


def new_collection(folder: Path, encoder: VSEModel | None = None) -> EmbeddedCollection:
    encoder = encoder or model()
    return EmbeddedCollection.create(folder, model=encoder.fingerprint(), model_source="tiny", dimensions=SIZE)


def ids_of(collection: EmbeddedCollection) -> dict[str, list[int]]:
    """Return the item ids by path."""
    found: dict[str, list[int]] = {}
    for ids, _ in collection.all_vectors():
        for item in collection.items(ids.tolist()):
            found.setdefault(item.file.path, []).append(item.id)
    return found


def vectors_of(collection: EmbeddedCollection, path: str) -> np.ndarray:
    return collection.vectors(ids_of(collection)[path])


def counts(report) -> dict[str, int]:
    """Return the non-zero counts of a report, problems included."""
    names = ("new", "changed", "touched", "moved", "removed", "excluded", "kept", "waiting", "unchanged")
    found = {name: getattr(report, name) for name in names} | {"problems": len(report.problems)}
    return {name: count for name, count in found.items() if count}
