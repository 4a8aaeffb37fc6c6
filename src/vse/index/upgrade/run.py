"""Upgrade a collection: re-encode every file beside the embeddings being served, then switch atomically."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vse.errors import InputError, VSEError
from vse.index.pipeline.commits import Commits, IndexModel
from vse.index.pipeline.folder import COMMIT_FILES, COMMIT_SECONDS, check_reads_pictures
from vse.index.scan import Problem, ScanLimits
from vse.index.types import Collection, CollectionInfo, NextGeneration
from vse.index.upgrade.encode import Encoded, Encoder, Missing, clear_outdated, find_missing
from vse.models.encode import check_batch_size
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.index.types import CollectionInfo


@dataclass(frozen=True)
class UpgradeReport:
    """Outcome of an upgrade.

    Attributes:
        info: The collection with its new generation, which is served now.
        encoded: Files encoded this time.
        resumed: Files encoded by an earlier, interrupted attempt.
        left_out: Missing files; they are no longer in the collection.
        images: Images and frames encoded.
        seconds: Time spent reading and encoding.
        problems: Files that can no longer be used; they are no longer in the collection.
        notes: Remarks for the user.
    """

    info: CollectionInfo
    encoded: int = 0
    resumed: int = 0
    left_out: int = 0
    images: int = 0
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds if self.images else 0.0

    def to_json(self) -> dict[str, Any]:
        info = self.info
        return {
            "index": info.where,
            "generation": info.generation,
            "model": info.model,
            "model_source": info.model_source,
            "dimensions": info.dimensions,
            "files": info.files,
            "items": info.items,
            "captions": info.captions,
            "encoded": self.encoded,
            "resumed": self.resumed,
            "left_out": self.left_out,
            "images": self.images,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.images_per_second, 2),
            "problems": [{"path": problem.path, "reason": problem.reason} for problem in self.problems],
            "notes": list(self.notes),
        }


def upgrade_collection(
    collection: Collection,
    model: IndexModel,
    model_source: str,
    *,
    progress: ProgressReporter | None = None,
    batch_size: int = 32,
    drop_missing: bool = False,
    commit_files: int = COMMIT_FILES,
    commit_seconds: float = COMMIT_SECONDS,
    limits: ScanLimits | None = None,
) -> UpgradeReport:
    """Re-encode every file of a collection with another model, then switch to the result.

    The old embeddings are served until the atomic switch; afterwards ``collection`` is superseded and must be reopened.
    Items of unchanged files keep their ids; changed files are encoded as they are now. Captions are those of the
    collection. New files are not looked for: index the folders again for them.

    A corrupt file, or one being written, is dropped and reported as a problem: its old embedding cannot be compared
    with new ones. An interrupted or failed upgrade is resumed by the next one to the same model, which also handles
    files that changed or left the collection meanwhile; an upgrade to a different model starts over.

    Args:
        collection: Open for writing.
        model: The new model.
        model_source: Folder or name where the model is found again.
        progress: Reports each stage.
        batch_size: Images in the model at once.
        drop_missing: Drop files that do not exist, instead of raising before anything is encoded.
        commit_files: Files between two commits.
        commit_seconds: Seconds between two commits.
        limits: Limits on the files that are read.

    Returns:
        What was encoded, resumed and dropped.

    Raises:
        InputError: Files are missing, or the collection holds embeddings of this model already.
        VSEError: No file could be encoded; the old embeddings are still served.
    """
    check_batch_size(batch_size)
    check_reads_pictures(model)
    info, fingerprint, reporter = collection.info(), model.fingerprint(), progress or SilentProgress()
    if info.model == fingerprint:
        raise InputError(f"{info.where} holds embeddings of that model already ({fingerprint}): choose another one")
    missing = find_missing(collection, reporter)
    if missing.count and not drop_missing:
        raise missing.refusal()
    left_out = Missing(info.where, absent=missing.absent)  # single files are counted again when they are encoded
    new = collection.new_generation(
        model=fingerprint, model_source=model_source, dimensions=model.embed_size, progress=reporter
    )
    try:
        resumed = clear_outdated(collection, new, reporter)
        if resumed:
            reporter.note(f"{info.where}: {resumed:,} files were encoded before the interruption")
        commits = Commits(new, model, files=commit_files, seconds=commit_seconds)
        encoder = Encoder(
            collection,
            new,
            model,
            left_out,
            batch_size=batch_size,
            commits=commits,
            limits=limits or ScanLimits(),
            drop_missing=drop_missing,
        )
        encoded = encoder.run(reporter, info.files - resumed - missing.count)
        return _switched(info.files, new, encoded, resumed, left_out, reporter)
    finally:
        new.close()


def discard_upgrade(collection: Collection) -> CollectionInfo:
    """Discard an unfinished upgrade of a collection open for writing, and return its info.

    Raises:
        InputError: There is none.
    """
    left = collection.unfinished()
    if left is None:
        raise InputError(f"{collection.info().where} has no unfinished upgrade: nothing was discarded")
    # An attempt for another model is discarded unread, however large or corrupt; no model has this fingerprint.
    collection.new_generation(model="none", model_source="", dimensions=1).discard()
    return left


def _switched(
    before: int,
    new: NextGeneration,
    encoded: Encoded,
    resumed: int,
    missing: Missing,
    progress: ProgressReporter,
) -> UpgradeReport:
    info = new.info()
    if before and not info.files:
        first = f", first {encoded.problems[0]}" if encoded.problems else ""
        raise VSEError(
            f"none of the {before:,} files of {info.where} could be encoded{first}: the old embeddings are still served"
        )
    new.commit(progress=progress)
    return UpgradeReport(
        info,
        encoded=encoded.files,
        resumed=resumed,
        left_out=missing.count,
        images=encoded.images,
        seconds=encoded.seconds,
        problems=tuple(encoded.problems),
        notes=(*missing.notes(), *encoded.notes),
    )
