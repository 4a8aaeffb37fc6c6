"""Extract the features of images or the frame features of videos once and store them, for training to read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from vse.data.feature_folder import Extracted, FeaturePlan, FeatureWriter
from vse.data.feature_writer import open_writer
from vse.data.media import VideoFiles, find_images, find_videos
from vse.encoders.backbones import Backbone, create_backbone
from vse.encoders.functional import evaluation_mode, state_fingerprint
from vse.encoders.video import NAN, as_float16, see_cells, see_frames
from vse.errors import InputError, VSEError, unknown_choice
from vse.inputs.files import BadMediaError, os_reason
from vse.inputs.preprocessing import ImagePreprocessing
from vse.inputs.regions import Boxes, BoxMethod, check_count, check_method, propose_boxes, region_weights
from vse.inputs.video.windows import FRAMES, check_frame_count
from vse.models.devices import set_torch_threads, slow_bf16, torch_device
from vse.models.encode import check_batch_size, read_ahead, read_pixels
from vse.models.encode_videos import read_video
from vse.models.protocols import Items
from vse.progress import ProgressReporter, SilentProgress

__all__ = [
    "ClipFeaturesReport",
    "FeaturesReport",
    "NamedImages",
    "VideoFiles",
    "backbone_fingerprint",
    "extract_clip_features",
    "extract_features",
    "find_images",
    "find_videos",
]


Precision = Literal["fp32", "bf16"]


class NamedImages(Items, Protocol):
    """Images with an id each, such as :class:`~vse.data.ImageFiles`."""

    @property
    def ids(self) -> Sequence[str]:
        """One id for each image, no two alike."""


@dataclass(frozen=True)
class FeaturesReport:
    """What a run did.

    ``count`` is the number of images or videos, of which this run ``computed`` some and found others ``kept``.
    ``clipped`` counts the values of this run that exceed float16. ``problems`` are the reasons, by id, of those
    without features; ``notes`` are what of a video could not be read. Images have a ``grid`` of cells, or that many
    ``regions`` with ``boxes`` by one of :data:`~vse.inputs.regions.BOX_METHODS`; of videos at most ``frames_each``
    were used, and this run computed ``frames``.
    """

    kind: Literal["image", "video"]
    folder: Path
    backbone: str
    channels: int
    count: int
    computed: int
    kept: int
    clipped: int
    seconds: float
    problems: Mapping[str, str]
    notes: Mapping[str, str]
    grid: tuple[int, int] | None = None
    frames_each: int | None = None
    frames: int = 0
    regions: int | None = None
    boxes: BoxMethod | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report with the keys of ``vse features --json``, which differ for images and videos."""
        counted: dict[str, Any] = {"computed": self.computed, "kept": self.kept, "clipped": self.clipped}
        counted["seconds"] = round(self.seconds, 3)
        problems = [{"id": name, "reason": reason} for name, reason in self.problems.items()]
        about = {"folder": str(self.folder), "backbone": self.backbone}
        if self.kind == "image":
            seen: dict[str, Any] = {"grid": list(self.grid or ()), "channels": self.channels, "images": self.count}
            if self.regions is not None:
                seen |= {"regions": self.regions, "boxes": self.boxes}
            return {**about, **seen, **counted, "bad": problems}
        seen = {"frames_per_clip": self.frames_each, "channels": self.channels, "clips": self.count}
        notes = [{"id": name, "note": note} for name, note in self.notes.items()]
        return {**about, **seen, "frames": self.frames, **counted, "problems": problems, "notes": notes}


ClipFeaturesReport = FeaturesReport


def extract_features(
    images: NamedImages | VideoFiles,
    backbone: str | Backbone,
    into: str | os.PathLike[str],
    *,
    frames: int = FRAMES,
    regions: int | None = None,
    boxes: BoxMethod = "windows",
    size: int | None = None,
    precision: Precision = "fp32",
    batch_size: int = 16,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
    threads: int | None = None,
    progress: ProgressReporter | None = None,
) -> FeaturesReport:
    """Write the features of all images or videos into the folder ``into``, or resume an interrupted run.

    Of an image the ``(cells, channels)`` of the backbone's feature map are stored, in the formats of
    :mod:`vse.data.features`; of a video ``(frames, channels)``, each frame the mean over its cells. Values are clipped
    to ±65504 and rounded to float16. A file that cannot be read is recorded in the folder and in the report, and tried
    again by a later run. An interrupted run loses the batch or video in progress. A video is computed again when its
    modification time changes; images are identified by their ids alone.

    Args:
        images: Images, such as :func:`find_images` returns, or videos, such as :func:`find_videos` returns.
        backbone: A name for :func:`~vse.encoders.create_backbone`, which is built with ``options`` and its published
            weights, or a backbone that ``name`` and ``options`` then describe in the folder.
        into: A new or empty folder, or that of an earlier run with the same arguments.
        frames: At most this many frames of a video, evenly spaced.
        regions: Store that many regions of each image instead of its cells, each the mean of the cells inside a box.
        boxes: Where the boxes come from, see :mod:`vse.inputs.regions`. They are stored beside the features.
        size: The side to which images are resized; the backbone's own by default.
        precision: Of the backbone's arithmetic, for images: ``"bf16"`` is faster on processors that have it and rounds
            to three digits. The store records it.
        batch_size: Images or frames that are computed at once.
        name: How the folder names a backbone that is given as an object.
        options: The options of the backbone.
        device: Where to compute, as for :func:`vse.load`; a named backbone uses a CUDA GPU by default if there is one.
        threads: Threads on the CPU; all cores by default. They count for the whole process.
        progress: Receives the number of images or videos.

    Returns:
        Counts, problems and notes.

    Raises:
        InputError: If an argument is invalid, or the folder holds something else.
        VSEError: If another process writes the folder, or it cannot be written.
    """
    check_batch_size(batch_size)
    check_frame_count("frames", frames)
    set_torch_threads(threads)
    videos = images if isinstance(images, VideoFiles) else None
    if precision not in get_args(Precision):
        raise InputError(unknown_choice("precision", precision, get_args(Precision)))
    if precision != "fp32" and videos is not None:
        raise InputError(f"precision {precision!r} is for images: leave it out for videos")
    if regions is not None:
        if videos is not None:
            raise InputError("regions are parts of images: leave them out for videos")
        check_count(regions)
        check_method(boxes)
    opened = _open_backbone(backbone, size, name, options, device)
    place = next(opened.network.parameters()).device
    if precision == "bf16" and progress is not None and (note := slow_bf16(place)) is not None:
        progress.note(note)
    plan = FeaturePlan(
        backbone=opened.name,
        options=opened.options,
        preprocessing=opened.preprocessing.to_json(),
        channels=opened.network.channels,
        fingerprint=backbone_fingerprint(opened.network),
        ids=tuple(images.ids),
        grid=opened.grid if videos is None else None,
        frames=frames,
        modified=() if videos is None else tuple(map(_modified, videos.paths)),
        regions=None if regions is None else (regions, boxes),
        precision=None if precision == "fp32" else precision,
    )
    source = _Images(images, opened, plan) if videos is None else _Videos(videos, opened, frames, batch_size)
    with evaluation_mode(opened.network), open_writer(into, plan) as writer:
        report = _fill(writer, source, batch_size if videos is None else 1, progress or SilentProgress())
    if videos is None:
        return report
    return replace(report, problems={one.path: one.reason for one in videos.problems} | dict(report.problems))


extract_clip_features: Callable[..., FeaturesReport] = extract_features


def backbone_fingerprint(backbone: Backbone) -> str:
    """Return a name for exactly these weights."""
    return state_fingerprint(backbone.state_dict())


def _fill(
    writer: FeatureWriter[Any], source: _Images | _Videos, at_once: int, progress: ProgressReporter
) -> FeaturesReport:
    """Compute and commit what is to do, ``at_once`` images or videos at a time."""
    plan, noun = writer.plan, source.noun
    before = f", {writer.kept} {noun} were done before" if writer.kept else ""
    progress.note(f"{len(plan.ids)} {noun}, {source.amount(len(plan.ids))} in {writer.folder}{before}")
    progress.start(len(writer.todo), "features")
    began, computed, frames, clipped = time.perf_counter(), 0, 0, 0

    def read(number: int) -> _Read:
        position = writer.todo[number]
        reason = writer.unsupported(position)
        return _Read(reason=reason) if reason is not None else source.read(position)

    for start, loaded in read_ahead(read, len(writer.todo), at_once):
        batch, beyond = source.compute(loaded)
        writer.commit(dict(zip(writer.todo[start : start + len(loaded)], batch, strict=True)))
        clipped += beyond
        for one in batch:
            computed += one.features is not None
            frames += 0 if one.features is None else len(one.features)
        rate = (start + len(loaded)) / (time.perf_counter() - began)
        progress.advance(len(loaded), f"features, {rate:.1f} {noun}/s")
    seconds = time.perf_counter() - began
    writer.finish()
    progress.finish()
    return FeaturesReport(
        kind="video" if plan.grid is None else "image",
        folder=writer.folder,
        backbone=plan.backbone,
        channels=plan.channels,
        count=len(plan.ids),
        computed=computed,
        kept=writer.kept,
        clipped=clipped,
        seconds=seconds,
        problems=writer.problems,
        notes=writer.notes,
        grid=plan.grid,
        frames_each=plan.frames if plan.grid is None else None,
        frames=frames if plan.grid is None else 0,
        regions=None if plan.regions is None else plan.regions[0],
        boxes=None if plan.regions is None else plan.regions[1],
    )


@dataclass(frozen=True)
class _Read:
    """Pixels as the backbone takes them, or the ``reason`` why there are none."""

    pixels: NDArray[np.float32] | None = None
    reason: str = ""
    modified: int = 0
    note: str | None = None
    boxes: Boxes | None = None


class _Images:
    """Images: ``(3, H, W)`` each, computed together; cells, or regions averaged over them."""

    noun = "images"

    def __init__(self, images: Items, opened: _OpenedBackbone, plan: FeaturePlan) -> None:
        self._images, self._opened, self._regions = images, opened, plan.regions
        self._autocast = torch.bfloat16 if plan.precision == "bf16" else None

    def amount(self, count: int) -> str:
        rows, columns = self._opened.grid
        elements = rows * columns if self._regions is None else self._regions[0]
        return f"{count * elements * self._opened.network.channels * 2 / 1e9:.2f} GB of features"

    def read(self, position: int) -> _Read:
        found = read_pixels(self._images[position], self._opened.preprocessing)
        if isinstance(found, VSEError):
            return _Read(reason=getattr(found, "reason", str(found)))
        if self._regions is None:
            return _Read(found)
        return _Read(found, boxes=propose_boxes(found, self._opened.preprocessing, *self._regions))

    def compute(self, loaded: Sequence[_Read]) -> tuple[list[Extracted], int]:
        results = [Extracted(None, one.reason) for one in loaded]
        usable = {k: one.pixels for k, one in enumerate(loaded) if one.pixels is not None}
        if not usable:
            return results, 0
        cells = see_cells(self._opened.network, np.stack(list(usable.values())), self._autocast)  # (B, h·w, C)
        found = [loaded[k].boxes for k in usable]
        if self._regions is not None:
            weights = region_weights(np.stack([each for each in found if each is not None]), self._opened.grid)
            cells = torch.from_numpy(weights).to(cells.device) @ cells  # (B, regions, C)
        broken = cells.isnan().flatten(1).any(1)
        features, clipped = as_float16(cells[~broken])
        rows = iter(features)
        for k, is_broken, boxes in zip(usable, broken.tolist(), found, strict=True):
            results[k] = Extracted(None, NAN) if is_broken else Extracted(next(rows), boxes=boxes)
        return results, clipped


class _Videos:
    """Videos: ``(n, 3, H, W)`` each, computed one by one. While one is computed the next is decoded."""

    noun = "videos"

    def __init__(self, videos: VideoFiles, opened: _OpenedBackbone, frames: int, batch_size: int) -> None:
        self._videos, self._opened, self._frames, self._batch_size = videos, opened, frames, batch_size

    def amount(self, count: int) -> str:
        return f"up to {self._frames} frames of each"

    def read(self, position: int) -> _Read:
        path = self._videos[position]
        try:
            modified = path.stat().st_mtime_ns  # before it is read: a change meanwhile has it read again
            found = read_video(path, self._opened.preprocessing, self._frames)
        except BadMediaError as error:
            return _Read(reason=error.reason)
        except OSError as error:
            return _Read(reason=os_reason(error))
        return _Read(found.pixels, modified=modified, note=found.remark)

    def compute(self, loaded: Sequence[_Read]) -> tuple[list[Extracted], int]:
        results, clipped = [], 0
        for one in loaded:
            seen = None if one.pixels is None else see_frames(self._opened.network, one.pixels, self._batch_size)
            if seen is None:
                results.append(Extracted(None, NAN if one.pixels is not None else one.reason))
            else:
                results.append(Extracted(seen.rows, modified=one.modified, note=one.note))
                clipped += seen.clipped
        return results, clipped


@dataclass(frozen=True)
class _OpenedBackbone:
    """A network for images of one size, and how it is described beside its features."""

    network: Backbone
    name: str
    options: dict[str, Any]
    preprocessing: ImagePreprocessing
    grid: tuple[int, int]


def _open_backbone(
    backbone: str | Backbone,
    size: int | None,
    name: str | None,
    options: Mapping[str, Any] | None,
    device: str | torch.device | None,
) -> _OpenedBackbone:
    if size is not None and size < 1:
        raise InputError(f"size must be a whole number from 1 up, got {size!r}")
    place = torch_device(device) if isinstance(device, str) else device
    given = dict(options or {})
    ready = isinstance(backbone, Backbone)
    network = create_backbone(backbone, pretrained=True, **({} if ready else given))
    if place is not None or not ready:
        network.to(place or ("cuda" if torch.cuda.is_available() else "cpu"))
    preprocessing = network.preprocessing(size)
    called = name or (type(network).__name__ if ready else str(backbone))
    return _OpenedBackbone(network, called, given, preprocessing, _grid(network, preprocessing.size))


def _grid(model: Backbone, size: tuple[int, int]) -> tuple[int, int]:
    try:
        return model.grid(*size)
    except RuntimeError as error:  # what torch raises when a feature map shrinks to nothing
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"size {size[0]}: the backbone cannot take such images ({reason}): try a larger size"
        ) from None


def _modified(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
