"""One folder into a collection."""

from __future__ import annotations

import os
from pathlib import Path

from vse.encoding import check_batch_size
from vse.errors import InputError
from vse.index.collection import Collection
from vse.index.indexing.captions import folder_captions
from vse.index.indexing.commits import Commits
from vse.index.indexing.contents import Move, as_found, match_contents
from vse.index.indexing.moments import IndexModel
from vse.index.indexing.plan import Settled, make_plan
from vse.index.indexing.reading import read_files
from vse.index.indexing.report import IndexReport
from vse.index.scan import Problem, ScanLimits, walk, why_absent
from vse.progress import ProgressReporter, SilentProgress

COMMIT_FILES = 256
COMMIT_SECONDS = 10.0


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
) -> IndexReport:
    """Bring ``collection``, which is open for writing, up to date with the folder ``root``.

    A file whose size and time are known is not read. One that was touched or moved keeps its vectors and ids; one that
    has changed is encoded anew, and so is one with captions that are new. Files that are gone are removed, unless the
    folder is not there (a disk that is not mounted), or the place could not be read. A picture has one vector; a
    clip has one for each window of some seconds, the mean of its frames' vectors brought to length 1.

    Changes are committed every ``commit_files`` files or ``commit_seconds``: a process that is killed loses what came
    after the last commit, an interrupt nothing that was encoded, and the next call goes on from there. A known file
    that can no longer be read keeps what is known of it, and is among the problems.

    ``settled`` tells files that are no longer being written; others wait, and nothing is removed as long as some do,
    since they may be the missing ones at a new place.
    """
    check_batch_size(batch_size)
    folder, report, limits = root_of(root), progress or SilentProgress(), limits or ScanLimits()
    check_model(collection, model)
    check_overlap(collection, folder)
    absent = _why_absent(collection, folder)
    if absent is not None:
        known = sum(1 for _ in collection.files(folder))
        if not known:
            raise InputError(f"{folder}: {absent}: expected a folder of pictures and clips")
        return IndexReport(folder, kept=known, notes=(f"{folder}: {absent}; its {known:,} files stay in the index",))

    captions = folder_captions(folder, limits)
    scan = walk(folder, limits=limits)
    plan = make_plan(scan, collection.files(folder), captions, settled)
    touched = 0

    def on_touched(moves: list[Move]) -> None:
        nonlocal touched
        if moves:
            collection.move(moves)
            touched += len(moves)

    on_touched([as_found(each.known, each) for each in plan.recaptioned if each.known is not None])
    contents = match_contents(folder, plan.candidates, plan.gone, on_touched, report)
    if contents.moves:  # all at once, so that files may change places
        collection.move(contents.moves)
    removed, waiting = 0, plan.waiting
    if plan.waiting:
        waiting += len(contents.gone)
    elif contents.gone:
        removed = collection.remove([(folder, file.path) for file in contents.gone])
    report.note(f"{folder}: {len(contents.to_read):,} files to read, {plan.skipped:,} as they were")
    commits = Commits(collection, model, files=commit_files, seconds=commit_seconds)
    reading = read_files(
        folder, contents.to_read, model, commits, batch_size=batch_size, limits=limits, progress=report
    )
    problems: tuple[Problem, ...] = (*captions.problems, *scan.problems, *contents.problems, *reading.problems)
    notes = tuple(reading.notes)
    if plan.kept:
        notes = (f"{plan.kept:,} files could not be looked for and stay in the index", *notes)
    return IndexReport(
        folder,
        new=reading.new,
        changed=reading.changed,
        touched=touched,
        moved=len(contents.moves),
        removed=removed,
        kept=plan.kept,
        waiting=waiting,
        skipped=plan.skipped,
        images=reading.images,
        seconds=reading.seconds,
        problems=tuple(sorted(problems, key=lambda problem: problem.path)),
        notes=notes,
    )


def root_of(root: str | os.PathLike[str]) -> str:
    """The folder as a collection knows it: absolute, so that it means the same from everywhere; links stay."""
    return os.path.abspath(Path(root).expanduser())  # noqa: PTH100 - Path.absolute keeps "..", resolve follows links


def check_model(collection: Collection, model: IndexModel) -> None:
    """The model reads pictures, and the collection's vectors are its own."""
    if model.preprocessing is None:
        raise InputError(
            f"the model takes sets of features (N, {model.feature_size}), not pictures: use one that reads pictures "
            "('vse inspect MODEL' tells)"
        )
    info, fingerprint = collection.info(), model.fingerprint()
    if info.model != fingerprint:
        raise InputError(
            f"{info.where} holds vectors of model {info.model} ({info.model_source}), not of {fingerprint}: use that "
            "model, or index anew with 'vse index FOLDER --into ANOTHER.vse --model MODEL'"
        )


def check_overlap(collection: Collection, root: str) -> None:
    """A folder within another one that is indexed would have its files found twice."""
    for other in collection.info().roots:
        if other != root and (Path(root).is_relative_to(other) or Path(other).is_relative_to(root)):
            raise InputError(
                f"{root}: {other} is in the index already, and what they share would be found twice: "
                f"index {other} again, or use another index"
            )


def _why_absent(collection: Collection, root: str) -> str | None:
    """Why the folder is not there; files are counted only where an empty folder has to be judged."""
    if why_absent(root, known=1) is None:
        return None
    return why_absent(root, known=sum(1 for _ in collection.files(root)))
