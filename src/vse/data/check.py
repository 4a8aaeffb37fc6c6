"""Look at a whole data set before hours are spent on it."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vse.data.dataset import CaptionedImages, FeatureRows, ImageFiles
from vse.data.open import AUTO, LAYOUTS, file_size, find_layout
from vse.data.reading import ALL, ReadOptions
from vse.data.report import DataReport, FeatureSummary, FileSummary, Findings, SplitReport, file_contents, shared
from vse.data.video_check import check_videos
from vse.errors import InputError
from vse.progress import ProgressReporter, SilentProgress

BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class FeatureFacts:
    """``not_finite``: images with NaN or infinity; ``zero_regions``: regions without any value; a digest an image."""

    not_finite: tuple[int, ...]
    zero_regions: int
    digests: tuple[bytes, ...]


def inspect_features(images: FeatureRows, progress: ProgressReporter) -> FeatureFacts:
    """Read each image once, at most :data:`BLOCK_BYTES` at a time; ``progress`` advances by images."""
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


_SILENT = SilentProgress()


def check_data(
    path: str | os.PathLike[str],
    *,
    layout: str = AUTO,
    features: str | os.PathLike[str] | None = None,
    progress: ProgressReporter = _SILENT,
) -> DataReport:
    """Read every split and every image once, and say what is there and what is wrong.

    A split that cannot be read becomes an error in the report, and the others are still checked. Image files are not
    decoded: they are missing, empty or there. Videos are checked by :func:`vse.data.video_check.check_videos`, with
    their frames in ``features``.
    """
    where = Path(path)
    name = find_layout(where, layout)
    known = LAYOUTS[name]
    if known.videos:
        return check_videos(where, features=features, layout=name, progress=progress)
    if features is not None:
        raise InputError(
            f"--features {str(features)!r} (features= in Python) is for videos, and {where} holds images: leave it out"
        )
    findings = Findings()
    try:
        splits = known.splits(where)
    except InputError as error:
        findings.error("unreadable data", str(error))
        splits = ()
    else:
        if not splits:
            findings.error("no splits", f"{where}: zero images in any split")
            with suppress(InputError):  # the flaws on the way say why there are none
                known.read(where, ALL, ReadOptions(on_problem=findings.error))
    data: dict[str, CaptionedImages] = {}
    reports: list[SplitReport] = []
    contents: dict[str, tuple[bytes, ...]] = {}
    for split in splits:
        try:
            data[split] = known.read(where, split, ReadOptions(on_problem=findings.error))
        except InputError as error:
            findings.error("unreadable split", f"{split}: {error}")
            continue
        reports.append(_check_split(data[split], findings, contents, progress))
    with suppress(InputError):  # the same file has already made a split unreadable, and that is in the report
        for remark in known.remarks(where):
            findings.warning("data that is not used", remark)
    _check_overlaps(data, contents, findings, progress)
    progress.finish()
    return DataReport(str(where), name, tuple(reports), findings.of("error"), findings.of("warning"))


def _check_split(
    data: CaptionedImages, findings: Findings, contents: dict[str, tuple[bytes, ...]], progress: ProgressReporter
) -> SplitReport:
    """The figures of a split; features leave their digests in ``contents``."""
    repeated = len(data.images) - len(set(data.images.ids))
    if repeated:
        findings.warning("ids used twice", f"{data.split}: {repeated} images have the id of another one", repeated)
    each = data.captions_per_image
    without = int((each == 0).sum())
    if without and data.captions:  # a folder of images without any captions is meant to be one
        findings.warning("images without captions", f"{data.split}: {without} of {len(each)}", without)
    features, files = None, None
    if isinstance(data.images, FeatureRows):
        features, contents[data.split] = _check_features(data.split, data.images, findings, progress)
    elif isinstance(data.images, ImageFiles):
        files = _check_files(data.split, data.images, findings, progress)
    words = [len(caption.split()) for caption in data.captions]
    return SplitReport(
        split=data.split,
        images=len(data.images),
        captions=len(data.captions),
        captions_per_image=(int(each.min()), float(each.mean()), int(each.max())),
        mean_words=sum(words) / len(words) if words else None,
        features=features,
        files=files,
    )


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


def _check_overlaps(
    data: dict[str, CaptionedImages],
    contents: dict[str, tuple[bytes, ...]],
    findings: Findings,
    progress: ProgressReporter,
) -> None:
    for first, second, count in shared({split: one.images.ids for split, one in data.items()}):
        findings.warning("image ids in two splits", f"{count} in {first} and {second}", count)
    files = {split: one.images.paths for split, one in data.items() if isinstance(one.images, ImageFiles)}
    for first, second, count in shared({**file_contents(files, progress), **contents}):
        findings.warning("identical images in two splits", f"{count} in {first} and {second}", count)
    for first, second, count in shared({split: filter(None, one.captions) for split, one in data.items()}):
        findings.warning("identical captions in two splits", f"{count} in {first} and {second}", count)
