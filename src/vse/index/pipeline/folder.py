"""Index folders into a collection."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vse.errors import InputError, MissingDependencyError
from vse.index.checks import model_mismatch_error
from vse.index.pipeline.commits import Commits, IndexModel, folder_captions
from vse.index.pipeline.plan import (
    Contents,
    Move,
    Plan,
    Settled,
    make_plan,
    match_across,
    match_contents,
    match_moved_roots,
    split_gone,
)
from vse.index.pipeline.reading import read_files
from vse.index.pipeline.updates import Updates, keeps_details, read_texts
from vse.index.scan import Problem, ScanLimits, ScanRules, walk, why_absent
from vse.index.scan.exclude import rules_of, with_rules
from vse.index.scan.ocr import check_ocr
from vse.index.types import Collection
from vse.models.encode import check_batch_size
from vse.progress import ProgressReporter, SilentProgress

COUNTS = (
    "new", "changed", "touched", "moved", "removed", "excluded", "kept", "waiting", "unchanged", "live_videos", "ocr",
)  # fmt: skip


@dataclass(frozen=True)
class IndexReport:
    """Outcome of indexing one folder.

    Attributes:
        root: The folder.
        new: Files added.
        changed: Files re-encoded.
        touched: Files with the same content, but another time, other captions, sidecars or metadata.
        moved: Files found at a new place.
        removed: Files removed because they are gone.
        excluded: Files removed because patterns leave them out now.
        kept: Files that were not found but may still exist.
        waiting: Files being written, or missing while others are being written.
        unchanged: Files that needed nothing.
        live_videos: Videos of live photos, which have no results of their own.
        ocr: Images whose text was read.
        images: Images and frames encoded.
        seconds: Time by the clock, from looking at the folder to the last commit.
        problems: Files that could not be used; they are retried next time.
        notes: Remarks for the user.
    """

    root: str
    new: int = 0
    changed: int = 0
    touched: int = 0
    moved: int = 0
    removed: int = 0
    excluded: int = 0
    kept: int = 0
    waiting: int = 0
    unchanged: int = 0
    live_videos: int = 0
    ocr: int = 0
    images: int = 0
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def images_per_second(self) -> float:
        """Files read per second of the clock; a video counts once."""
        files = self.new + self.changed
        return files / self.seconds if files else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "root": self.root,
            **{name: getattr(self, name) for name in COUNTS},
            "images": self.images,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.images_per_second, 2),
            "problems": [{"path": problem.path, "reason": problem.reason} for problem in self.problems],
            "notes": list(self.notes),
        }


COMMIT_FILES = 256
COMMIT_SECONDS = 10.0


@dataclass(frozen=True)
class _Looked:
    """A folder compared with the collection; nothing has been encoded or removed yet."""

    root: str
    plan: Plan
    contents: Contents
    touched: int
    live_videos: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    seconds: float


def index_folder(
    collection: Collection,
    model: IndexModel,
    root: str | os.PathLike[str],
    *,
    progress: ProgressReporter | None = None,
    batch_size: int = 32,
    commit_files: int = COMMIT_FILES,
    commit_seconds: float = COMMIT_SECONDS,
    limits: ScanLimits | None = None,
    settled: Settled | None = None,
    exclude: Sequence[str] | None = None,
    follow_links: bool | None = None,
    ocr: bool | None = None,
) -> IndexReport:
    """Bring a collection up to date with one folder; see :func:`index_folders` for the arguments.

    A file with known size and time is not read. A touched or moved file keeps its embeddings and ids, and so does one
    with other captions, sidecars or metadata; one that has changed is re-encoded. Missing files are removed, unless the
    folder is absent (its disk not mounted), the subfolder they were in is empty (likewise), or their place could not be
    read. An image has one embedding; a video has one per window of a few seconds, the normalised mean of the embeddings
    of its frames.

    Changes are committed every ``commit_files`` files or ``commit_seconds``: a killed process loses what came after the
    last commit, an interrupted one only what was in the model, and the next call resumes from there. A known file that
    can no longer be read stays in the collection and is reported as a problem.

    ``settled`` returns whether a file is no longer being written. Other files wait, and nothing is removed meanwhile,
    since they may be the missing ones at a new place.
    """
    (report,) = index_folders(
        collection,
        model,
        (root,),
        progress=progress,
        batch_size=batch_size,
        commit_files=commit_files,
        commit_seconds=commit_seconds,
        limits=limits,
        settled=settled,
        exclude=exclude,
        follow_links=follow_links,
        ocr=ocr,
    )
    return report


def index_folders(
    collection: Collection,
    model: IndexModel,
    roots: Sequence[str | os.PathLike[str]],
    *,
    progress: ProgressReporter | None = None,
    batch_size: int = 32,
    commit_files: int = COMMIT_FILES,
    commit_seconds: float = COMMIT_SECONDS,
    limits: ScanLimits | None = None,
    settled: Settled | None = None,
    exclude: Sequence[str] | None = None,
    follow_links: bool | None = None,
    ocr: bool | None = None,
) -> tuple[IndexReport, ...]:
    """Bring a collection up to date with several folders; :func:`index_folder` describes what happens to a file.

    All folders are compared before anything is removed or encoded, so that a file that moved between them keeps its
    embeddings and ids; it counts as moved in its new folder. Nothing moves out of an absent or empty folder.

    Args:
        collection: Open for writing.
        model: The collection's model; any that :func:`vse.load` returns and that reads images.
        roots: The folders.
        progress: Reports each stage.
        batch_size: Images in the model at once.
        commit_files: Files between two commits.
        commit_seconds: Seconds between two commits.
        limits: Limits on the files that are read.
        settled: Returns whether a file is no longer being written; others wait for the next call.
        exclude: Patterns of files to leave out, as in ``.gitignore``; indexed ones that match are removed. They are
            remembered for these folders in place of earlier ones. Default: those remembered.
        follow_links: Follow symlinks that lead out of a folder; remembered likewise.
        ocr: Read the text in images, also in those indexed before; remembered likewise. Needs the extra ``ocr``.

    Returns:
        One report per folder, in the same order.

    Raises:
        InputError: A folder is absent, folders overlap, a pattern is invalid, or the model is not the collection's.
        MissingDependencyError: ``ocr`` without its extra.
    """
    check_batch_size(batch_size)
    report, limits = progress or SilentProgress(), limits or ScanLimits()
    folders = list(dict.fromkeys(root_of(root) for root in roots))
    check_model(collection, model)
    for folder in folders:
        check_overlap(collection.info().roots, folder, folders)
    if ocr:
        _check_ocr(collection)
    rules = remember_rules(collection, folders, exclude, follow_links, ocr)
    updates = Updates(collection, model, limits, report)
    states = [_look(updates, folder, rules[folder], settled) for folder in folders]
    looked = [state for state in states if isinstance(state, _Looked)]
    contents = {each.root: each.contents for each in looked}
    match_across(contents, report)
    gone_roots = [root for root in collection.info().roots if root not in folders and _is_gone(root)]
    moved = match_moved_roots(contents, {root: list(collection.files(root)) for root in gone_roots}, report)
    for root, count in moved.items():
        report.note(f"{root} is gone: {count:,} of its files were found by content, and keep their embeddings")
    moves = [move for each in looked for move in each.contents.moves]
    updates.apply(moves)  # all at once, so that files may swap places
    waiting = any(each.plan.waiting for each in looked)

    def bring_in(each: _Looked) -> IndexReport:
        began = time.perf_counter()
        commits = Commits(collection, model, files=commit_files, seconds=commit_seconds)
        gone, empty = split_gone(each.root, each.contents.gone, each.plan.excluded)
        excluded = 0 if waiting else sum(file.path in each.plan.excluded for file in gone)
        removed = collection.remove([(each.root, file.path) for file in gone]) if gone and not waiting else 0
        to_read = each.contents.to_read
        report.note(f"{each.root}: {len(to_read):,} files to read, {each.plan.unchanged:,} unchanged")
        reading = read_files(each.root, to_read, model, commits, batch_size=batch_size, limits=limits, progress=report)
        texts, missing = _read_texts(collection, each.root, limits, report) if rules[each.root].ocr else (0, ())
        where = collection.info().where
        return IndexReport(
            each.root,
            new=reading.new,
            changed=reading.changed,
            touched=each.touched,
            moved=len(each.contents.moves),
            removed=removed - excluded,
            excluded=excluded,
            kept=each.plan.kept + sum(empty.values()),
            waiting=each.plan.waiting + (len(gone) if waiting else 0),
            unchanged=each.plan.unchanged,
            live_videos=each.live_videos,
            ocr=texts,
            images=reading.images,
            seconds=each.seconds + time.perf_counter() - began,
            problems=tuple(sorted((*each.problems, *reading.problems), key=lambda problem: problem.path)),
            notes=(
                *(_kept(where, str(Path(each.root, place)), count) for place, count in empty.items()),
                *each.notes,
                *dict.fromkeys((*updates.notes, *reading.notes)),
                *missing,
            ),
        )

    return tuple(bring_in(state) if isinstance(state, _Looked) else state for state in states)


def remember_rules(
    collection: Collection,
    roots: Sequence[str],
    exclude: Sequence[str] | None,
    follow_links: bool | None,
    ocr: bool | None,
) -> dict[str, ScanRules]:
    """Return how each root is scanned; what is given replaces what the collection remembers, and is remembered."""
    before = settings = collection.settings()
    rules = {root: rules_of(settings, root) for root in roots}
    for root in roots:
        if exclude is not None:
            rules[root] = replace(rules[root], exclude=tuple(pattern for pattern in exclude if pattern.strip()))
        if follow_links is not None:
            rules[root] = replace(rules[root], follow_links=follow_links)
        if ocr is not None:
            rules[root] = replace(rules[root], ocr=ocr)
        settings = with_rules(settings, root, rules[root])
    if settings.get("folders") != before.get("folders", {}):
        collection.set_settings(settings)
    return rules


def _check_ocr(collection: Collection) -> None:
    check_ocr()
    if not keeps_details(collection):
        raise InputError(f"{collection.info().where}: Milvus does not search words: read text into a local index")


def _read_texts(
    collection: Collection, root: str, limits: ScanLimits, progress: ProgressReporter
) -> tuple[int, tuple[str, ...]]:
    """Read the text in images; if the extra was uninstalled since it was asked for, return a note instead."""
    try:
        return read_texts(collection, root, limits, progress), ()
    except MissingDependencyError as error:
        return 0, (f"{error}; or index with --no-ocr",)


def _look(updates: Updates, root: str, rules: ScanRules, settled: Settled | None) -> _Looked | IndexReport:
    """Compare a folder with the collection; return the final report if the folder is absent."""
    began = time.perf_counter()
    collection, limits = updates.collection, updates.limits
    absent = _why_absent(collection, root)
    if absent is not None:
        known = sum(1 for _ in collection.files(root))
        if not known:
            raise InputError(f"{root}: {absent}: expected a folder of images and videos")
        return IndexReport(root, kept=known, notes=(f"{root}: {absent}; its {known:,} files stay in the index",))
    captions = folder_captions(root, limits)
    scan = walk(root, rules=rules, limits=limits)
    touched, unread = 0, len(updates.problems)

    def on_touched(moves: list[Move]) -> None:
        nonlocal touched
        updates.apply(moves)
        touched += len(moves)

    plan = make_plan(scan, collection.files(root), captions, settled, on_updates=on_touched)
    on_touched(plan.updates)
    contents = match_contents(root, plan.candidates, plan.gone, on_touched, updates.progress)
    notes = (f"{plan.kept:,} files could not be checked and stay in the index",) if plan.kept else ()
    problems = (*captions.problems, *scan.problems, *contents.problems, *updates.problems[unread:])
    return _Looked(root, plan, contents, touched, scan.live_videos, problems, notes, time.perf_counter() - began)


def root_of(root: str | os.PathLike[str]) -> str:
    """Return the folder as a collection records it: absolute, with symlinks unresolved."""
    return os.path.abspath(Path(root).expanduser())  # noqa: PTH100 - Path.absolute keeps "..", resolve follows links


def check_model(collection: Collection, model: IndexModel) -> None:
    """Raise unless the model reads images and is the one that encoded the collection."""
    check_reads_pictures(model)
    info, fingerprint = collection.info(), model.fingerprint()
    if info.model != fingerprint:
        raise model_mismatch_error(info.where, info.model, info.model_source, fingerprint)


def check_reads_pictures(model: IndexModel) -> None:
    """Raise if the model reads features instead of images."""
    if model.preprocessing is None:
        raise InputError(
            f"the model takes sets of features (N, {model.feature_size}), not images: use one that reads images "
            "(see 'vse inspect MODEL')"
        )


def check_overlap(known: Sequence[str], root: str, given: Sequence[str] = ()) -> None:
    """Raise if a folder overlaps one that is ``known`` or ``given``: shared files would be found twice."""
    for other in (*known, *given):
        if other != root and (Path(root).is_relative_to(other) or Path(other).is_relative_to(root)):
            there, fix = "in the index already", f"index {other} again, or use another index"
            if other not in known:
                there, fix = "given too", f"leave out {max(root, other, key=len)}"
            raise InputError(f"{root}: {other} is {there}, and what they share would be found twice: {fix}")


def _is_gone(root: str) -> bool:
    """Return whether a folder does not exist; an unreadable or empty one may be an unmounted disk."""
    return why_absent(root) == "no such folder"


def _kept(where: str, folder: str, count: int) -> str:
    command = f"vse collection remove {shlex.quote(where)} {shlex.quote(folder)}"
    return (
        f"{folder}: empty, but held {count:,} files, which stay in the index: is its disk mounted? "
        f"To forget them: {command}"
    )


def _why_absent(collection: Collection, root: str) -> str | None:
    """Return why the folder is absent, or None; counts its known files only if needed."""
    if why_absent(root, known=1) is None:
        return None
    return why_absent(root, known=sum(1 for _ in collection.files(root)))
