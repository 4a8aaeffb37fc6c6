"""A collection over to another model: every file re-encoded beside the vectors that serve, then one switch."""

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
    """``info`` is the collection with its new generation, which serves by now.

    ``encoded`` files went through the new model this time, ``resumed`` ones in an attempt that was cut short;
    ``left_out`` were not there, and ``problems`` are files that can no longer be used: both are forgotten.
    ``images`` counts the images and frames that went through the model, in ``seconds`` of reading and computing.
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
    """Encode every file that ``collection``, which is open for writing, knows with ``model``, and switch to the result.

    ``model_source`` is where the model is found again. The old vectors serve until the switch, which is one step;
    afterwards ``collection`` is superseded, and has to be opened again. A file that is as it was keeps the ids of its
    items; one that has changed is taken as it is now. Captions are those that the collection has. New files are not
    looked for: index the folders again for them.

    A file that is not there would be lost. Such files are an error before anything is encoded, unless
    ``drop_missing`` leaves them out. A file that is there and can no longer be used, as one that is corrupt or being
    written, is left out in any case and is among the problems: its old vector cannot be compared with new ones.

    What was encoded is committed every ``commit_files`` files or ``commit_seconds``. An upgrade that is killed, is
    interrupted or fails leaves it there, and the next one to the same model resumes it; files that have changed or left
    the collection meanwhile are seen to. One to another model starts over.
    """
    check_batch_size(batch_size)
    check_reads_pictures(model)
    info, fingerprint, reporter = collection.info(), model.fingerprint(), progress or SilentProgress()
    if info.model == fingerprint:
        raise InputError(f"{info.where} holds vectors of that model already ({fingerprint}): choose another one")
    missing = find_missing(collection, reporter)
    if missing.count and not drop_missing:
        raise missing.refusal()
    left_out = Missing(info.where, absent=missing.absent)  # single files are counted again when it is their turn
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
    """Discard what an unfinished upgrade of ``collection``, which is open for writing, has left; return what it was.

    It is an error when there is none.
    """
    left = collection.unfinished()
    if left is None:
        raise InputError(f"{collection.info().where} has no unfinished upgrade: nothing was discarded")
    # What is left for another model goes unread, however large or corrupt it is; and no model is called this.
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
            f"none of the {before:,} files of {info.where} could be encoded{first}: the old vectors still serve"
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
