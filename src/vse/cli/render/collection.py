"""Reports about a collection as lines: indexing, contents, verification, duplicates, upgrade, calibration."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from vse.index.types import full_path
from vse.inputs.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vse.cli.calibrate import Calibrated
    from vse.cli.serve import Listening
    from vse.demo.photos import PhotosResult
    from vse.index.build import Indexed
    from vse.index.calibration import CalibrationReport
    from vse.index.duplicates import Duplicates
    from vse.index.open import Overview
    from vse.index.pipeline.folder import IndexReport
    from vse.index.scan import Problem
    from vse.index.store.verify import VerifyReport
    from vse.index.transfer import EmbeddingExport, EmbeddingImport
    from vse.index.upgrade.run import UpgradeReport

MOST_SHOWN = 5
"""Cameras and places of a collection that are listed."""
MAX_NAMED = 20
"""Corrupt files that are named in the command that repairs a collection."""


def indexed_lines(indexed: Indexed) -> list[str]:
    """Return the lines of each folder and the totals; for a new index also how to search it."""
    info = indexed.info
    lines = [line for report in indexed.reports for line in index_lines(report)]
    lines.append(f"{info.where}: {info.files:,} files, {info.items:,} embeddings")
    if indexed.new and info.files:
        place = shlex.quote(info.where)
        lines += [f'search it: vse search {place} "a dog in the snow"', f"on a page: vse serve {place}"]
    return lines


def index_lines(report: IndexReport) -> list[str]:
    """Return the counts of one folder in one line, then notes and problems."""
    from vse.index.pipeline.folder import COUNTS

    words = {"live_videos": "videos of live photos", "ocr": "read for text"}
    counts = [f"{getattr(report, name):,} {words.get(name, name)}" for name in COUNTS if getattr(report, name)]
    rate = f" ({report.images_per_second:.1f} images/s)" if report.images else ""
    lines = [f"{report.root}: {', '.join(counts) or 'no images or videos'}{rate}", *report.notes]
    lines += _problem_lines("files could not be used:", report.problems)
    return [printable(line) for line in lines]


def _problem_lines(heading: str, problems: Sequence[Problem]) -> list[str]:
    return [f"{len(problems):,} {heading}", *(f"  {problem}" for problem in problems)] if problems else []


def photos_lines(result: PhotosResult) -> list[str]:
    """Return the lines of the folder, and where its index is."""
    where = result.info.where
    serve = f"vse serve {shlex.quote(where)}"
    return [*index_lines(result.report), f"index: {where}, {result.info.files:,} files   ({serve})"]


def listening_lines(listening: Listening) -> list[str]:
    """Return the address of a service."""
    verb = "is" if len(listening.indexes) == 1 else "are"
    return [f"{', '.join(listening.indexes)} {verb} at {listening.address}   (Ctrl-C stops it)"]


def overview_lines(overview: Overview) -> list[str]:
    """Return what was done, counts, model, an unfinished upgrade, and a line for each folder."""
    info, left = overview.info, overview.unfinished
    size = "" if overview.bytes is None else f", {_size(overview.bytes)} on disk"
    lines = [] if overview.note is None else [overview.note]
    lines += [
        f"{info.where}: {info.files:,} files, {info.items:,} items, {info.captions:,} captions{size}",
        f"model {info.model} ({info.model_source}), {info.dimensions} dimensions, stored as {info.storage}",
        f"backend {info.backend}, generation {info.generation}",
    ]
    if left is not None:
        command = f"vse collection upgrade {shlex.quote(info.where)}"
        source = f" ({left.model_source})" if left.model_source else ""
        lines.append(
            f"an upgrade to model {left.model}{source} is unfinished, with {left.files:,} files encoded: "
            f"'{command} --model {shlex.quote(left.model_source or 'MODEL')}' resumes it, "
            f"'{command} --discard' discards it"
        )
    lines += [f"folder {root}: {count:,} files" for root, count in overview.folders()]
    for name, counts in (("cameras", overview.cameras), ("places", overview.places)):
        if counts:
            shown = "; ".join(f"{each.name} ({each.files:,})" for each in counts[:MOST_SHOWN])
            lines.append(f"{name}: {shown}{'; …' if len(counts) > MOST_SHOWN else ''}")
    return [printable(line) for line in lines]


def _size(count: int) -> str:
    """With about three digits: 1.2 MB is 1,200,000 bytes."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count:,} bytes" if unit == "bytes" else f"{size:.3g} {unit}" if size < 999.5 else f"{size:,.0f} {unit}"


def verify_lines(report: VerifyReport) -> list[str]:
    """Return a line for each problem, and what to do about them."""
    lines = [f"{report.where}: {report.files} files, {report.items} items, {report.captions} captions"]
    lines += [f"corrupt: {problem}" for problem in report.problems]
    lines += [f"cache: {problem}" for problem in report.cache_problems]
    if report.lost_changes:
        index = shlex.quote(report.where)
        lines.append(
            f"index all folders of it again, and repeat imports (vse index FOLDER --into {index}), then accept what is "
            f"not found again: vse collection verify {index} --accept-loss"
        )
    if len(report.problems) > bool(report.lost_changes):
        lines.append(f"restore the collection from a backup, or {_repair(report)}")
    elif report.cache_problems:
        lines.append("the embeddings are intact: 'vse collection rebuild' rebuilds the cache")
    elif not report.problems:
        lines.append("no problems")
    return [printable(line) for line in lines]


def _repair(report: VerifyReport) -> str:
    """The commands that index corrupt files again: 'vse index' alone skips a file that it knows."""
    if not report.damaged_files:
        return f"index its folders into a new one: use 'vse index' with another name than {shlex.quote(report.where)}"
    first = report.damaged_files[:MAX_NAMED]
    files = " ".join(shlex.quote("/".join(place)) for place in first)
    roots = " ".join(shlex.quote(root) for root in dict.fromkeys(root for root, _ in first))
    index, all_files = shlex.quote(report.where), len(report.damaged_files)
    more = f", and so on for all {all_files:,}" if all_files > MAX_NAMED else ""
    return (
        f"remove these files and index them again: vse collection remove {index} {files}; "
        f"vse index {roots} --into {index}{more}"
    )


def duplicates_lines(duplicates: Duplicates) -> list[str]:
    """Return a paragraph for each group of files."""
    groups, files = duplicates.groups, sum(map(len, duplicates.groups))
    threshold = f"cosine at least {duplicates.threshold:g}"
    lines = [f"{len(groups)} groups with {files} files, {threshold}, of {duplicates.items} items"]
    for number, group in enumerate(groups, 1):
        lines.append(f"group {number}")
        for item in group:
            file = item.file
            size = f"{file.width} × {file.height}, {file.size:,} bytes"
            lines.append(f"  {item.id}  {printable(full_path(file))}  {size}")
    return lines


def upgrade_lines(report: UpgradeReport) -> list[str]:
    """Return the counts in one line, the new generation, then notes and problems."""
    info = report.info
    counts = [f"{report.encoded:,} files re-encoded"]
    counts += [f"{report.resumed:,} encoded before an interruption"] if report.resumed else []
    counts += [f"{report.left_out:,} left out"] if report.left_out else []
    rate = f" ({report.images_per_second:.1f} images/s)" if report.images else ""
    lines = [
        f"{info.where}: {', '.join(counts)}{rate}",
        f"generation {info.generation} is active: {info.files:,} files, {info.items:,} embeddings "
        f"of model {info.model}",
        f"'vse index' and 'vse search' now use {info.model_source}",
        *report.notes,
    ]
    lines += _problem_lines("files could not be used and were removed:", report.problems)
    return [printable(line) for line in lines]


def calibrated_lines(report: Calibrated) -> list[str]:
    """Return the lines of confidence, then those of relevance."""
    fits = report.relevance
    lines = [
        f"{fits.categories:,} categories and {fits.queries - fits.categories:,} captions, judged by captions on the "
        f"half of the images not fitted on: {fits.pairs:,} pairs",
        f"relevance: calibration error of results shown {fits.quality.shown_error:.1%}, "
        f"{fits.cosine.shown_error:.1%} with a sigmoid of the cosine; area under the ROC curve "
        f"{fits.quality.area:.3f}, {fits.cosine.area:.3f}",
        f"the default cut-off: precision {fits.precision:.0%}, recall {fits.recall:.0%} of categories",
    ]
    if fits.written is not None:
        lines.append(f"written: {fits.written}")
    return calibration_lines(report.confidence) + [printable(line) for line in lines]


def embedding_import_lines(report: EmbeddingImport) -> list[str]:
    """Return the counts, then notes, ignored columns and rows that were left out."""
    info, names = report.info, ("added", "replaced", "unchanged")
    counts = [f"{getattr(report, name):,} {name}" for name in names if getattr(report, name)]
    lines = [
        f"{report.rows:,} rows: {', '.join(counts) or 'no files'}",
        f"{info.where}: {info.files:,} files, {info.items:,} embeddings of model {info.model}",
        *report.notes,
    ]
    if report.ignored:
        lines.append(f"ignored columns: {', '.join(report.ignored)}")
    if report.problems:
        lines.append(f"{len(report.problems):,} rows were left out:")
        lines += [f"  {problem}" for problem in report.problems[:MAX_NAMED]]
    if len(report.problems) > MAX_NAMED:
        lines.append(f"  … and {len(report.problems) - MAX_NAMED:,} more, see --json")
    return [printable(line) for line in lines]


def embedding_export_lines(report: EmbeddingExport) -> list[str]:
    """Return what was written."""
    counts = f"{report.items:,} embeddings of {report.files:,} files, {report.dimensions} dimensions"
    return [printable(f"{report.out}: {counts}, {_size(report.bytes)}")]


def calibration_lines(report: CalibrationReport) -> list[str]:
    """Return what was searched for and found, the calibration errors, and where the coefficients are."""
    lines = [
        f"{report.pictures:,} images, {report.captions:,} captions, {report.results:,} results",
        *(f"  found first among {size:>5,}: {share:>4.0%}" for size, share in report.found.items()),
        f"mean calibration error {report.error:.1%}, {report.shipped_error:.1%} with the default coefficients; "
        f"a correct result has more confidence than a wrong one in {report.area:.1%} of pairs",
    ]
    if report.written is not None:
        lines.append(f"written: {report.written}")
    return [printable(line) for line in lines]
