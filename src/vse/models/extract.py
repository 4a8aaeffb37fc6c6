"""Grid features of many pictures, computed once and kept: what ``vse features`` does."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray

from vse.data.dataset import ImageFiles
from vse.data.feature_writer import FeaturePlan, FeatureWriter
from vse.data.features import distinct_files
from vse.data.open import AUTO, list_splits, open_data
from vse.data.reading import ALL
from vse.encoders.backbones import Backbone, create_backbone
from vse.encoders.functional import evaluation_mode, state_fingerprint
from vse.encoders.video import NAN, as_float16, see_cells
from vse.errors import InputError, VSEError
from vse.models.encode import check_batch_size, read_ahead, read_pixels
from vse.models.protocols import Items
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing


class NamedImages(Items, Protocol):
    """Pictures with an id each, such as :class:`~vse.data.ImageFiles`."""

    @property
    def ids(self) -> Sequence[str]:
        """One id for each picture, no two alike."""


@dataclass(frozen=True)
class FeaturesReport:
    """What a run did. ``clipped`` counts the values of this run that float16 cannot hold, ``bad`` is id → reason."""

    folder: Path
    backbone: str
    grid: tuple[int, int]
    channels: int
    images: int
    computed: int
    kept: int
    clipped: int
    seconds: float
    bad: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "backbone": self.backbone,
            "grid": list(self.grid),
            "channels": self.channels,
            "images": self.images,
            "computed": self.computed,
            "kept": self.kept,
            "clipped": self.clipped,
            "seconds": round(self.seconds, 3),
            "bad": [{"id": name, "reason": reason} for name, reason in self.bad.items()],
        }


def find_images(path: str | os.PathLike[str], *, layout: str = AUTO, split: str | None = None) -> ImageFiles:
    """The picture files of a folder or of a data set, each once; of all its splits unless one is named."""
    splits = (split,) if split is not None else list_splits(path, layout=layout) or (ALL,)
    found = [open_data(path, each, layout=layout, use="files").images for each in splits]
    return distinct_files(images for images in found if isinstance(images, ImageFiles))


def extract_features(
    images: NamedImages,
    backbone: str | Backbone,
    into: str | os.PathLike[str],
    *,
    size: int | None = None,
    batch_size: int = 16,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
    progress: ProgressReporter | None = None,
) -> FeaturesReport:
    """Write the features ``(cells, channels)`` of every picture into the store ``into``, or what it still lacks.

    ``backbone`` is a name of :func:`~vse.encoders.create_backbone`, built with ``options`` and its published weights,
    or a ready one, which ``name`` and ``options`` then describe in the store. ``size`` is the side to which pictures
    are brought, by default the backbone's own. Values are clipped to ±65504 and rounded to float16. A picture that
    cannot be read is noted in the store and in the report; a later run tries it again. An interrupted run loses the
    batch under way. A named backbone runs on the GPU if there is one; ``device`` decides otherwise.
    """
    check_batch_size(batch_size)
    opened = open_backbone(backbone, size, name, options, device)
    with evaluation_mode(opened.network):
        plan = FeaturePlan(
            backbone=opened.name,
            options=opened.options,
            preprocessing=opened.preprocessing.to_json(),
            grid=opened.grid,
            channels=opened.network.channels,
            fingerprint=backbone_fingerprint(opened.network),
            ids=tuple(images.ids),
        )
        with FeatureWriter.open_or_create(into, plan) as writer:
            return _fill(writer, images, opened.network, opened.preprocessing, batch_size, progress or SilentProgress())


@dataclass(frozen=True)
class OpenedBackbone:
    """A network that is ready to see pictures of one size, and how it is described beside its features."""

    network: Backbone
    name: str
    options: dict[str, Any]
    preprocessing: ImagePreprocessing
    grid: tuple[int, int]


def open_backbone(
    backbone: str | Backbone,
    size: int | None,
    name: str | None,
    options: Mapping[str, Any] | None,
    device: str | torch.device | None,
) -> OpenedBackbone:
    """The parameters are those of :func:`extract_features`."""
    if size is not None and size < 1:
        raise InputError(f"size must be a whole number from 1 up, got {size!r}")
    given = dict(options or {})
    ready = isinstance(backbone, Backbone)
    network = create_backbone(backbone, pretrained=True, **({} if ready else given))
    if device is not None or not ready:
        network.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    preprocessing = network.preprocessing(size)
    called = name or (type(network).__name__ if ready else str(backbone))
    return OpenedBackbone(network, called, given, preprocessing, _grid(network, preprocessing.size))


def backbone_fingerprint(backbone: Backbone) -> str:
    """A name for exactly these weights."""
    return state_fingerprint(backbone.state_dict())


@dataclass(frozen=True)
class _Batch:
    """The rows that have features ``(len(rows), cells, channels)``, and the others with the reason."""

    rows: list[int]
    features: NDArray[np.float16]
    bad: dict[int, str]
    clipped: int


def _fill(
    writer: FeatureWriter,
    images: Items,
    model: Backbone,
    preprocessing: ImagePreprocessing,
    batch_size: int,
    progress: ProgressReporter,
) -> FeaturesReport:
    """Compute and commit the rows that are to do, batch by batch."""
    header = writer.header
    before = f", {writer.kept} images were done before" if writer.kept else ""
    progress.note(f"{header.count} images, {header.nbytes / 1e9:.2f} GB of features in {writer.folder}{before}")
    progress.start(len(writer.todo), "features")
    began, computed, clipped = time.perf_counter(), 0, 0

    def read(position: int) -> NDArray[np.float32] | VSEError:
        return read_pixels(images[int(writer.todo[position])], preprocessing)

    for start, loaded in read_ahead(read, len(writer.todo), batch_size):
        rows = writer.todo[start : start + len(loaded)].tolist()
        batch = _compute(model, dict(zip(rows, loaded, strict=True)), header.shape[1:])
        writer.commit(batch.rows, batch.features, batch.bad)
        computed += len(batch.rows)
        clipped += batch.clipped
        rate = (start + len(loaded)) / (time.perf_counter() - began)
        progress.advance(len(loaded), f"features, {rate:.1f} images/s")
    seconds = time.perf_counter() - began
    writer.finish()
    progress.finish()
    return FeaturesReport(
        folder=writer.folder,
        backbone=header.backbone,
        grid=header.grid,
        channels=header.channels,
        images=header.count,
        computed=computed,
        kept=writer.kept,
        clipped=clipped,
        seconds=seconds,
        bad=writer.bad,
    )


def _compute(model: Backbone, loaded: Mapping[int, NDArray[Any] | VSEError], shape: tuple[int, ...]) -> _Batch:
    """One batch through the backbone: pixels ``(3, H, W)`` by row, or the error that stands in their place."""
    bad = {row: getattr(item, "reason", str(item)) for row, item in loaded.items() if isinstance(item, VSEError)}
    rows = [row for row in loaded if row not in bad]
    if not rows:
        return _Batch([], np.empty((0, *shape), np.float16), bad, 0)
    cells = see_cells(model, np.stack([cast(Any, loaded[row]) for row in rows]))  # (B, h·w, C)
    unusable = cells.isnan().flatten(1).any(1)
    bad |= {row: NAN for row, broken in zip(rows, unusable.tolist(), strict=True) if broken}
    features, clipped = as_float16(cells[~unusable])
    return _Batch([row for row in rows if row not in bad], features, bad, clipped)


def _grid(model: Backbone, size: tuple[int, int]) -> tuple[int, int]:
    try:
        return model.grid(*size)
    except RuntimeError as error:  # what torch says when a map shrinks to nothing
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"size {size[0]}: the backbone cannot take such pictures ({reason}): try a larger one"
        ) from None
