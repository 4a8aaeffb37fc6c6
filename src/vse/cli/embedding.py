"""A model and the name of a split, to vectors: what ``vse eval`` and ``vse calibrate`` begin with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse.errors import InputError, UsageError

if TYPE_CHECKING:
    from vse.data import FeatureStore
    from vse.evaluation.embeddings import Embeddings
    from vse.progress import ProgressReporter


def embed(
    name: str,
    path: Path,
    split: str,
    *,
    images: Path | None = None,
    features: Path | None = None,
    progress: ProgressReporter,
) -> Embeddings:
    """The vectors of one model for the split, from features or from pictures as the model asks."""
    from vse.data import FeatureStore, attach, open_data
    from vse.evaluation.embeddings import embed_split
    from vse.loading import load_towers

    model = load_towers(name)
    if model.preprocessing is None:
        data = open_data(path, split, use="features")
    else:
        data = open_data(path, split, images=images, use="files")
        if features is not None:
            store = FeatureStore.open(features)
            _check_store(store, model, name)
            data = attach(data, store)
    progress.note(f"{name}: {len(data.images)} images, {len(data.captions)} captions of {data.name} {data.split}")
    called = Path(name).resolve().name if Path(name).exists() else name.replace("/", "-")
    return embed_split(model, data, name=called, progress=progress)


def _check_store(store: FeatureStore, model: Any, name: str) -> None:
    """Features of another backbone may have the right width and mean something else."""
    if not hasattr(model, "image_encoder"):
        raise UsageError(f"--features: {name} is an export and reads pictures; use the model it was made from")
    from vse.features import backbone_fingerprint

    if store.header.fingerprint != backbone_fingerprint(model.image_encoder.backbone):
        raise InputError(f"{store.folder}: features of another backbone ({store.header.backbone}) than that of {name}")
