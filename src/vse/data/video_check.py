"""Look at a whole data set of videos before hours are spent on it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vse.data.dataset import CaptionedVideos, VideoCaptions
from vse.data.frames import VideoFrames, expect_type, packed_type
from vse.data.layouts import hgr as video_hgr
from vse.data.open import AUTO, VIDEO_LAYOUTS, StrPath, find_features, find_video_layout
from vse.data.report import DataReport, FeatureSummary, Findings, SplitReport, shared
from vse.data.roles.graphs import GRAPH_FILES, role_graphs
from vse.data.video_sources import open_frames
from vse.data.vocabulary import WORD_LIMIT
from vse.errors import InputError
from vse.progress import ProgressReporter, SilentProgress

_SILENT = SilentProgress()


@dataclass(frozen=True)
class FrameSummary(FeatureSummary):
    """Frames of videos: ``frames`` is the least, the mean and the most that a video has, before any are left out."""

    frames: tuple[int, float, int]

    def __str__(self) -> str:
        least, mean, most = self.frames
        each = str(least) if least == most else f"{least} to {most}, mean {mean:.1f}"
        return f"{self.shape[0]} × {each} frames × {self.shape[-1]} {self.dtype}"


def check_videos(
    path: str | os.PathLike[str],
    *,
    features: StrPath | None = None,
    layout: str = AUTO,
    progress: ProgressReporter = _SILENT,
) -> DataReport:
    """Read every split and every video once, and say what is there and what is wrong.

    As :func:`vse.data.check_data` does for images. A split that cannot be read is an error, a video without frames a
    warning: it is left out. Without features the captions alone are checked. Overlaps are looked for between splits
    that belong together: those of another protocol share videos on purpose.
    """
    where = Path(path)
    name = find_video_layout(where, layout)
    findings = Findings()
    data: dict[str, VideoCaptions | CaptionedVideos] = {}
    contents: dict[str, tuple[bytes, ...]] = {}
    reports = []
    try:
        splits = VIDEO_LAYOUTS[name].splits(where)
    except InputError as error:
        findings.error("unreadable data", str(error))
        splits = ()
    else:
        if not splits:
            findings.error("no splits", f"{where}: captions, and no list of the videos of any split")
    for split in splits:
        try:
            captions = VIDEO_LAYOUTS[name].read(where, split, findings.error)
            if features is None and name != video_hgr.NAME:
                data[split] = captions
            else:
                data[split] = captions.with_frames(open_frames(find_features(where, captions, features)))
            reports.append(_check_split(data[split], findings, contents, progress))
        except InputError as error:
            findings.error("unreadable split", f"{split}: {error}")
    widths = {split: one.images.dim for split, one in data.items() if isinstance(one, CaptionedVideos)}
    if len(set(widths.values())) > 1:
        told = ", ".join(f"{split} {width}" for split, width in widths.items())
        findings.error("frames of several sizes", f"values of a frame: {told}: extract them with one network")
    if name == video_hgr.NAME:
        _check_graphs(where, data, findings)
        _check_words(where, data, findings)
    _check_overlaps(VIDEO_LAYOUTS[name].protocols, data, contents, findings)
    progress.finish()
    return DataReport(str(where), name, tuple(reports), findings.of("error"), findings.of("warning"), "videos")


def _check_split(
    data: VideoCaptions | CaptionedVideos,
    findings: Findings,
    contents: dict[str, tuple[bytes, ...]],
    progress: ProgressReporter,
) -> SplitReport:
    """The figures of a split; features leave their digests in ``contents``."""
    ids, owners = _ids(data), data.caption_to_image if isinstance(data, CaptionedVideos) else data.owners
    each = np.bincount(owners, minlength=len(ids))
    without = int((each == 0).sum())
    if not data.captions:
        findings.error("splits without captions", f"{data.split}: {len(ids)} videos, expected a sentence of each")
    elif without:
        findings.warning("videos without captions", f"{data.split}: {without} of {len(ids)}", without)
    words = [len(caption.split()) for caption in data.captions]
    long = sum(count > WORD_LIMIT for count in words)
    if long:
        findings.warning(f"captions cut after {WORD_LIMIT} words", f"{data.split}: {long} of {len(words)}", long)
    for remark in data.remarks:
        findings.warning("remarks on splits", f"{data.split}: {remark}")
    summary = None
    if isinstance(data, CaptionedVideos):
        for video in data.dropped:
            findings.warning("videos without frames, left out", f"{data.split}: {video}")
        summary, contents[data.split] = _check_frames(data.split, data.images, findings, progress)
    return SplitReport(
        split=data.split,
        images=len(ids),
        captions=len(data.captions),
        captions_per_image=(int(each.min()), float(each.mean()), int(each.max())),
        mean_words=sum(words) / len(words) if words else None,
        features=summary,
        files=None,
    )


def _check_frames(
    split: str, videos: VideoFrames, findings: Findings, progress: ProgressReporter
) -> tuple[FrameSummary, tuple[bytes, ...]]:
    progress.start(len(videos), f"reading frames of {split}")
    digests, broken, zero = [], 0, 0
    dtype = videos.stored(0).dtype
    packed = packed_type(dtype)
    for i, video in enumerate(videos.ids):
        stored = videos.stored(i)
        with np.errstate(over="ignore"):  # as they are used: float64 beyond float32 is infinite
            frames = np.ascontiguousarray(stored, dtype=np.float32)
        if not np.isfinite(frames).all():
            broken += 1
            findings.error("frames with NaN or infinity", f"{split}: {video}")
        try:
            expect_type(videos, i, stored.dtype, packed)
        except InputError as error:
            findings.error("frames of several types", f"{split}: {error}")
        zero += int((~frames.any(axis=1)).sum())
        digests.append(hashlib.blake2b(frames.data, digest_size=16).digest())
        progress.advance()
    if zero:
        findings.warning("frames that are all zero", f"{split}: {zero} of {int(videos.sizes.sum())}", zero)
    counts = videos.counts
    spread = (int(counts.min()), float(counts.mean()), int(counts.max()))
    shape = (len(videos), int(videos.sizes.max()), videos.dim)
    return FrameSummary(shape, str(dtype), 1.0, broken, zero, spread), tuple(digests)


def _check_graphs(where: Path, data: dict[str, VideoCaptions | CaptionedVideos], findings: Findings) -> None:
    """Sentences that a file of role graphs does not have; without a file they are all parsed, as is meant."""
    folder = video_hgr.annotation_folder(where)
    if not any((folder / name).is_file() for name in GRAPH_FILES):
        return
    try:
        found = role_graphs((caption for one in data.values() for caption in one.captions), folder)
    except InputError as error:
        findings.error("unreadable role graphs", str(error))
        return
    for sentence in found.missing:
        findings.warning("sentences without a role graph, parsed by rules", sentence)
    for sentence in found.astray:
        findings.warning("role graphs with nodes outside of their sentence, left out", sentence)


def _check_words(where: Path, data: dict[str, VideoCaptions | CaptionedVideos], findings: Findings) -> None:
    """The file of numbered words, which training takes where it is."""
    from vse.data.vocabulary import WORD_FILE, VideoVocabulary  # which loads tokenizers

    file = video_hgr.annotation_folder(where) / WORD_FILE
    try:
        if file.is_file():
            words = VideoVocabulary.load(file)
            lacking = words.lacking(data["train"].captions) if "train" in data else None
            if lacking is not None:
                findings.warning("words that the file of words lacks", lacking)
    except InputError as error:
        findings.error("unreadable words", str(error))


def _check_overlaps(
    protocols: tuple[tuple[str, ...], ...],
    data: dict[str, VideoCaptions | CaptionedVideos],
    contents: dict[str, tuple[bytes, ...]],
    findings: Findings,
) -> None:
    for protocol in protocols:
        here = {split: data[split] for split in protocol if split in data}
        for first, second, count in shared({split: _ids(one) for split, one in here.items()}):
            findings.warning("videos in two splits", f"{count} in {first} and {second}", count)
        for first, second, count in shared({split: contents[split] for split in here if split in contents}):
            findings.warning("identical frames in two splits", f"{count} in {first} and {second}", count)
        for first, second, count in shared({split: _captions(one) for split, one in here.items()}):
            findings.warning("identical captions in two splits", f"{count} in {first} and {second}", count)


def _ids(data: VideoCaptions | CaptionedVideos) -> tuple[str, ...]:
    return data.images.ids if isinstance(data, CaptionedVideos) else data.ids


def _captions(data: VideoCaptions | CaptionedVideos) -> Iterator[str]:
    return filter(None, data.captions)
