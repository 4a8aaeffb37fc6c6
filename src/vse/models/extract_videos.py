"""Frame features of many clips, computed once and kept: what ``vse features`` does with a folder of clips."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vse.data.clip_files import NamedClips, find_clips
from vse.data.clip_folder import ClipFeaturesHeader, ClipFolder
from vse.encoders.backbones import Backbone
from vse.encoders.functional import evaluation_mode
from vse.encoders.video import NAN, see_frames
from vse.inputs.files import BadMediaError, os_reason
from vse.inputs.video.windows import FRAMES, check_frame_count
from vse.models.encode import check_batch_size, read_ahead
from vse.models.encode_videos import VideoPixels, read_video
from vse.models.extract import OpenedBackbone, backbone_fingerprint, open_backbone
from vse.progress import ProgressReporter, SilentProgress

__all__ = ["ClipFeaturesReport", "NamedClips", "extract_clip_features", "find_clips"]

TOO_LONG = "its path is too long to name a file of features: shorten it"


@dataclass(frozen=True)
class ClipFeaturesReport:
    """What a run did.

    ``frames`` counts the frames it computed, at most ``frames_per_clip`` of each clip, and ``clipped`` the values of
    them that float16 cannot hold. ``problems`` is id → reason for clips without features, ``notes`` id → what of a
    clip could not be read.
    """

    folder: Path
    backbone: str
    frames_per_clip: int
    channels: int
    clips: int
    frames: int
    computed: int
    kept: int
    clipped: int
    seconds: float
    problems: Mapping[str, str]
    notes: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "backbone": self.backbone,
            "frames_per_clip": self.frames_per_clip,
            "channels": self.channels,
            "clips": self.clips,
            "frames": self.frames,
            "computed": self.computed,
            "kept": self.kept,
            "clipped": self.clipped,
            "seconds": round(self.seconds, 3),
            "problems": [{"id": name, "reason": reason} for name, reason in self.problems.items()],
            "notes": [{"id": name, "note": note} for name, note in self.notes.items()],
        }


def extract_clip_features(
    clips: NamedClips,
    backbone: str | Backbone,
    into: str | os.PathLike[str],
    *,
    frames: int = FRAMES,
    size: int | None = None,
    batch_size: int = 16,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
    progress: ProgressReporter | None = None,
) -> ClipFeaturesReport:
    """Write ``into/ID.npy`` for every clip, float16 ``(n, C)``: its frames, each the mean over the backbone's cells.

    Of a clip ``frames`` are taken, evenly spaced, or fewer where it has fewer. ``backbone``, ``size``, ``name``,
    ``options`` and ``device`` are those of :func:`vse.models.extract.extract_features`. A clip that is done and has not
    changed since (by its time of change, to the nanosecond) is not computed again, so that a run which was killed goes
    on where it stopped. A clip that cannot be read is noted in the report and in ``features.json``, and tried again by
    a later run; one that can be read in part is used, with a note. While one clip is computed the next is decoded;
    memory is the prepared frames of these two.
    """
    check_batch_size(batch_size)
    check_frame_count("frames", frames)
    opened = open_backbone(backbone, size, name, options, device)
    header = ClipFeaturesHeader(
        backbone=opened.name,
        options=json.loads(json.dumps(opened.options)),  # as it will be read: lists, not tuples
        preprocessing=opened.preprocessing.to_json(),
        fingerprint=backbone_fingerprint(opened.network),
        frames=frames,
        channels=opened.network.channels,
    )
    with closing(ClipFolder(Path(into), header)) as store, evaluation_mode(opened.network):
        return _fill(store, clips, opened, header, batch_size, progress or SilentProgress())


@dataclass(frozen=True)
class _Read:
    """A clip as it was ``changed`` last, or why it cannot be used."""

    changed: int
    clip: VideoPixels | BadMediaError


def _fill(
    store: ClipFolder,
    clips: NamedClips,
    opened: OpenedBackbone,
    header: ClipFeaturesHeader,
    batch_size: int,
    progress: ProgressReporter,
) -> ClipFeaturesReport:
    """Compute and keep the clips that are to do, one by one."""
    todo = [index for index in range(len(clips)) if not store.has(clips.ids[index], _changed(clips[index]))]
    kept = len(clips) - len(todo)
    for name in set(clips.ids).difference(clips.ids[index] for index in todo):
        store.problems.pop(name, None)
    before = f", {kept} were done before" if kept else ""
    progress.note(f"{len(clips)} clips, up to {header.frames} frames of each, into {store.folder}{before}")
    progress.start(len(todo), "features")
    began, computed, frames, clipped = time.perf_counter(), 0, 0, 0

    def read(position: int) -> _Read:
        path, name = clips[todo[position]], clips.ids[todo[position]]
        try:
            if not store.fits(name):
                raise BadMediaError(str(path), TOO_LONG)
            changed = path.stat().st_mtime_ns  # before it is read: who changes it meanwhile will have it read again
            return _Read(changed, read_video(path, opened.preprocessing, header.frames))
        except BadMediaError as error:
            return _Read(0, error)
        except OSError as error:
            return _Read(0, BadMediaError(str(path), os_reason(error)))

    for position, (found,) in read_ahead(read, len(todo), 1):
        name = clips.ids[todo[position]]
        if isinstance(found.clip, VideoPixels):
            seen = see_frames(opened.network, found.clip.pixels, batch_size)
            if seen is None:
                store.refuse(name, NAN)
            else:
                store.add(name, seen.rows, found.changed, found.clip.remark)
                computed, frames, clipped = computed + 1, frames + len(seen.rows), clipped + seen.clipped
        else:
            store.refuse(name, found.clip.reason)
        rate = (position + 1) / (time.perf_counter() - began)
        progress.advance(1, f"features, {rate:.1f} clips/s")
    seconds = time.perf_counter() - began
    progress.finish()
    own = {name: store.problems[name] for name in clips.ids if name in store.problems}
    return ClipFeaturesReport(
        folder=store.folder,
        backbone=header.backbone,
        frames_per_clip=header.frames,
        channels=header.channels,
        clips=len(clips),
        frames=frames,
        computed=computed,
        kept=kept,
        clipped=clipped,
        seconds=seconds,
        problems={problem.path: problem.reason for problem in clips.problems} | own,
        notes={name: store.notes[name] for name in clips.ids if name in store.notes},
    )


def _changed(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
