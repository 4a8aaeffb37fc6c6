"""Check a whole dataset before training on it: read every split and every image or video once."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from vse.data.dataset import CaptionedImages, CaptionedVideos, FeatureRows, ImageFiles
from vse.data.files import file_digest, file_size
from vse.data.frames import VideoFrames, expect_type, packed_type
from vse.data.open import AUTO, LAYOUTS, Layout, MediaKind, Split, expect_videos_for, find_layout, read_split
from vse.data.packed import PackedImages
from vse.data.reading import ALL, ReadOptions, StrPath
from vse.data.report import DataReport, FeatureSummary, FileSummary, Findings, FrameSummary, SplitReport
from vse.data.vocabulary import WORD_LIMIT
from vse.errors import InputError
from vse.progress import ProgressReporter, SilentProgress

BLOCK_BYTES = 32 << 20
_SILENT = SilentProgress()
_Digests = dict[str, Iterable[bytes]]
"""A digest for each image or video of a split that was read."""


@dataclass(frozen=True)
class _Texts:
    """The findings that are worded differently for images and videos."""

    no_splits: str
    shared_ids: str
    shared_contents: str


_TEXTS: dict[MediaKind, _Texts] = {
    "image": _Texts("zero images in any split", "image ids in two splits", "identical images in two splits"),
    "video": _Texts(
        "captions, but no list of the videos of any split", "videos in two splits", "identical frames in two splits"
    ),
}


def check_data(
    path: StrPath,
    *,
    layout: str = AUTO,
    features: StrPath | None = None,
    progress: ProgressReporter = _SILENT,
) -> DataReport:
    """Read every split and every image or video once, and report what is there and what is wrong.

    A split that cannot be read is an error; a video without frames is a warning, because it is left out. Splits are
    checked for overlaps unless they belong to different protocols, which share videos on purpose.

    Args:
        path: The folder or file of the dataset.
        layout: A name in :data:`~vse.data.open.LAYOUTS`, or ``auto`` to detect it.
        features: The frame features of videos. Without them only the captions are checked, unless the layout has its
            own.
        progress: Receives the number of images and files read.

    Returns:
        Counts for each split, errors and warnings.

    Raises:
        InputError: If there is no dataset at ``path``.
    """
    where = Path(path)
    name = find_layout(where, layout)
    known = LAYOUTS[name]
    expect_videos_for(features, name, where)
    findings = Findings()
    options = ReadOptions(features=features, on_problem=findings.error)
    captions_only = known.kind == "video" and features is None and not known.has_frames
    data: dict[str, Split] = {}
    digests: _Digests = {}
    reports: list[SplitReport] = []
    for split in _find_splits(known, where, options, findings):
        try:
            data[split] = (
                known.read(where, split, options) if captions_only else read_split(name, where, split, options)
            )
            reports.append(_check_split(known.kind, data[split], findings, digests, progress))
        except InputError as error:
            findings.error("unreadable split", f"{split}: {error}")
    _check_frame_sizes(data, findings)
    known.check(where, data, findings)
    files = {split: one.images.paths for split, one in _opened(data).items() if isinstance(one.images, ImageFiles)}
    digests |= _file_digests(files, progress)
    for protocol in known.protocols or (tuple(data),):
        _check_overlaps(
            {split: data[split] for split in protocol if split in data}, digests, _TEXTS[known.kind], findings
        )
    progress.finish()
    return DataReport(
        path=str(where),
        layout=name,
        splits=tuple(reports),
        errors=findings.of("error"),
        warnings=findings.of("warning"),
        shown="videos" if known.kind == "video" else "images",
    )


def _find_splits(known: Layout, where: Path, options: ReadOptions, findings: Findings) -> tuple[str, ...]:
    try:
        splits = known.splits(where)
    except InputError as error:
        findings.error("unreadable data", str(error))
        return ()
    if not splits:
        findings.error("no splits", f"{where}: {_TEXTS[known.kind].no_splits}")
        if known.kind == "image":
            with suppress(InputError):  # the flaws reported on the way explain why there are none
                known.read(where, ALL, options)
    return splits


def _opened(data: Mapping[str, Split]) -> dict[str, CaptionedImages]:
    return {split: one for split, one in data.items() if isinstance(one, CaptionedImages)}


def _check_split(
    kind: MediaKind, data: Split, findings: Findings, digests: _Digests, progress: ProgressReporter
) -> SplitReport:
    """Return the figures of a split; the digests of features go into ``digests``."""
    split, count = data.split, len(data.ids)
    repeated = count - len(set(data.ids))
    if repeated:
        findings.warning("ids used twice", f"{split}: {repeated} {kind}s have the id of another one", repeated)
    each = data.captions_per_image
    without = int((each == 0).sum())
    if without and data.captions:  # a folder of images without any captions is intended
        findings.warning(f"{kind}s without captions", f"{split}: {without} of {count}", without)
    words = [len(caption.split()) for caption in data.captions]
    if kind == "video":
        _check_video_captions(data, words, findings)
    features: FeatureSummary | None = None
    files = None
    if isinstance(data, CaptionedImages):
        if isinstance(data.images, FeatureRows):
            features, digests[split] = _check_features(split, data.images, findings, progress)
        elif isinstance(data.images, VideoFrames):
            features, digests[split] = _check_frames(split, data.images, findings, progress)
        elif isinstance(data.images, PackedImages):
            files, digests[split] = _check_packed(split, data.images, findings, progress)
        else:
            files = _check_files(split, data.images, findings, progress)
    return SplitReport(
        split=split,
        images=count,
        captions=len(data.captions),
        captions_per_image=(int(each.min()), float(each.mean()), int(each.max())),
        mean_words=sum(words) / len(words) if words else None,
        features=features,
        files=files,
    )


def _check_video_captions(data: Split, words: list[int], findings: Findings) -> None:
    if not data.captions:
        findings.error("splits without captions", f"{data.split}: {len(data.ids)} videos, expected a sentence of each")
    long = sum(count > WORD_LIMIT for count in words)
    if long:
        findings.warning(f"captions cut after {WORD_LIMIT} words", f"{data.split}: {long} of {len(words)}", long)
    for remark in getattr(data, "remarks", ()):
        findings.warning("remarks on splits", f"{data.split}: {remark}")
    if isinstance(data, CaptionedVideos):
        for video in data.dropped:
            findings.warning("videos without frames, left out", f"{data.split}: {video}")


@dataclass(frozen=True)
class FeatureFacts:
    """``not_finite``: images with NaN or infinity; ``zero_regions``: regions without any value; a digest an image."""

    not_finite: tuple[int, ...]
    zero_regions: int
    digests: tuple[bytes, ...]


def inspect_features(images: FeatureRows, progress: ProgressReporter) -> FeatureFacts:
    """Read each image once, at most :data:`BLOCK_BYTES` at a time."""
    row_bytes = images.regions * images.dim * images.array.dtype.itemsize
    block = max(1, BLOCK_BYTES // row_bytes)
    not_finite: list[int] = []
    zero_regions = 0
    digests: list[bytes] = []
    for start in range(0, len(images), block):
        rows = images.rows[start : start + block]
        features = np.ascontiguousarray(images.array[rows]).reshape(len(rows), images.regions, images.dim)  # (B, N, C)
        not_finite += (start + np.flatnonzero(~np.isfinite(features).all(axis=(1, 2)))).tolist()
        zero_regions += int((~features.any(axis=2)).sum())
        digests += [hashlib.blake2b(row.data, digest_size=16).digest() for row in features]
        progress.advance(len(rows))
    return FeatureFacts(tuple(not_finite), zero_regions, tuple(digests))


def _check_features(
    split: str, images: FeatureRows, findings: Findings, progress: ProgressReporter
) -> tuple[FeatureSummary, tuple[bytes, ...]]:
    progress.start(len(images), f"reading features of {split}")
    facts = inspect_features(images, progress)
    for i in facts.not_finite:
        findings.error("features with NaN or infinity", f"{split}: row {images.rows[i]} (id {images.ids[i]})")
    if facts.zero_regions:
        total = len(images) * images.regions
        findings.warning("regions that are all zero", f"{split}: {facts.zero_regions} of {total}", facts.zero_regions)
    summary = FeatureSummary(
        shape=tuple(map(int, images.array.shape)),
        dtype=str(images.array.dtype),
        rows_per_image=len(images.array) / len(images),
        not_finite=len(facts.not_finite),
        zero_regions=facts.zero_regions,
    )
    return summary, facts.digests


def _check_frames(
    split: str, videos: VideoFrames, findings: Findings, progress: ProgressReporter
) -> tuple[FrameSummary, tuple[bytes, ...]]:
    progress.start(len(videos), f"reading frames of {split}")
    digests, broken, zero = [], 0, 0
    dtype = videos.stored(0).dtype
    packed = packed_type(dtype)
    for i, video in enumerate(videos.ids):
        stored = videos.stored(i)
        with np.errstate(over="ignore"):  # values are used as float32: a larger float64 is infinite
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


def _check_frame_sizes(data: Mapping[str, Split], findings: Findings) -> None:
    sizes = {split: one.images.dim for split, one in data.items() if isinstance(one, CaptionedVideos)}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{split} {size}" for split, size in sizes.items())
        findings.error("frames of several sizes", f"values of a frame: {listed}: extract them with one network")


def _check_files(split: str, images: ImageFiles, findings: Findings, progress: ProgressReporter) -> FileSummary:
    progress.start(len(images), f"looking for the files of {split}")
    missing = unreadable = 0
    for path in images.paths:
        size = file_size(path)
        if size is None:
            missing += 1
            findings.error("missing image file", f"{split}: {path}")
        elif size == 0 or not os.access(path, os.R_OK):
            unreadable += 1
            findings.error("empty or unreadable image file", f"{split}: {path}")
        progress.advance()
    return FileSummary(missing, unreadable)


def _check_packed(
    split: str, images: PackedImages, findings: Findings, progress: ProgressReporter
) -> tuple[FileSummary, tuple[bytes, ...]]:
    progress.start(len(images), f"reading the images of {split}")
    missing, digests = 0, []
    for index in range(len(images)):
        try:
            digests.append(hashlib.blake2b(images[index], digest_size=16).digest())
        except InputError as error:
            missing += 1
            findings.error("sample without an image", f"{split}: {error}")
        progress.advance()
    return FileSummary(missing, 0), tuple(digests)


def _check_overlaps(data: Mapping[str, Split], digests: _Digests, texts: _Texts, findings: Findings) -> None:
    """Warn about ids, contents and captions that several of these splits share."""
    for kind, items in (
        (texts.shared_ids, {split: one.ids for split, one in data.items()}),
        (texts.shared_contents, {split: digests[split] for split in data if split in digests}),
        ("identical captions in two splits", {split: filter(None, one.captions) for split, one in data.items()}),
    ):
        for first, second, count in _shared(items):
            findings.warning(kind, f"{count} in {first} and {second}", count)


def _shared(items: Mapping[str, Iterable[Hashable]]) -> Iterator[tuple[str, str, int]]:
    """Each pair of splits that have items in common, with the number of distinct ones."""
    where: defaultdict[Hashable, set[str]] = defaultdict(set)
    for split, values in items.items():
        for value in values:
            where[value].add(split)
    order = {split: i for i, split in enumerate(items)}
    pairs: Counter[tuple[str, str]] = Counter()
    for splits in where.values():
        pairs.update(combinations(sorted(splits, key=order.__getitem__), 2))
    for first, second in combinations(items, 2):
        if pairs[first, second]:
            yield first, second, pairs[first, second]


def _file_digests(files: Mapping[str, Sequence[Path]], progress: ProgressReporter) -> dict[str, set[bytes]]:
    """Digests of the files that may be in several splits: only files of the same size can be equal, so the others are
    not read."""
    by_size: defaultdict[int, list[tuple[str, Path]]] = defaultdict(list)
    for split, paths in files.items():
        for path in paths:
            size = file_size(path)
            if size:
                by_size[size].append((split, path))
    candidates = [pair for group in by_size.values() if len({split for split, _ in group}) > 1 for pair in group]
    digests: dict[str, set[bytes]] = {split: set() for split in files}
    if candidates:
        progress.start(len(candidates), "comparing files of equal size")
    for split, path in candidates:
        digest = file_digest(path)
        if digest is not None:
            digests[split].add(digest)
        progress.advance()
    return digests
