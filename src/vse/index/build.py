"""Open or create the collection that folders are indexed into, together with its model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse.errors import InputError
from vse.index.checks import model_mismatch_error
from vse.index.confirmed import confirm_roots
from vse.index.open import (
    collection_exists,
    create_collection,
    is_external,
    open_collection,
    upgrade_hint,
)
from vse.index.pipeline.folder import IndexReport, check_overlap, root_of
from vse.index.pipeline.folder import index_folders as index_roots
from vse.index.scan import ScanRules, why_absent
from vse.index.scan.exclude import rules_of, with_rules
from vse.index.storage import check_same_storage, check_storage
from vse.index.types import Collection, CollectionInfo
from vse.models.devices import DeviceError
from vse.models.protocols import PairScorer
from vse.models.sources import DEFAULT, load, recorded_place, shipped_name
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.index.pipeline.commits import IndexModel


@dataclass(frozen=True)
class Indexed:
    """Contents of a collection after indexing, with one report per folder; ``new`` if it was just created."""

    info: CollectionInfo
    reports: tuple[IndexReport, ...]
    new: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.info.where,
            "model": self.info.model,
            "files": self.info.files,
            "items": self.info.items,
            "captions": self.info.captions,
            "folders": [report.to_json() for report in self.reports],
        }


def index_folders(
    folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    into: str | os.PathLike[str],
    *,
    model: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    exclude: Sequence[str] | None = None,
    follow_links: bool | None = None,
    ocr: bool | None = None,
    storage: str | None = None,
    progress: ProgressReporter | None = None,
) -> Indexed:
    """Index folders of images and videos into a collection, creating it on first use.

    Run it again to add new files, update changed and moved ones, and remove deleted ones. Every commit is durable: an
    interrupted call loses only the files of the last few seconds.

    Args:
        folders: One folder, or several.
        into: Address of the collection: a folder, or a URL such as ``milvus+http://…``.
        model: A model folder, a hub id or a bundled model. Default: the collection's own, ``"photo"`` for a new one.
        device: Where the model runs, as for :func:`vse.load`; the CPU by default.
        threads: Threads on the CPU; all cores by default.
        exclude: Patterns of files and folders to leave out, as in ``.gitignore``, such as ``"drafts/"``. Indexed files
            that match are removed. Default: those given last for these folders.
        follow_links: Follow symlinks that lead out of a folder. Default: as last time, at first not.
        ocr: Read the text in images, so that their words are found; needs the extra ``ocr``. Default: as last time, at
            first not.
        storage: How a new collection stores embeddings: ``"float32"`` (default), ``"float16"`` or ``"int8"``.
        progress: Receives progress and notes.

    Returns:
        The contents of the collection, with one report per folder.

    Raises:
        InputError: A folder or the device is missing, or the collection belongs to another model.

    Example:
        >>> import vse
        >>> indexed = vse.index_folders("~/Photos", "Photos.vse")  # doctest: +SKIP
        >>> indexed.info.items  # doctest: +SKIP
        1204
    """
    given = [folders] if isinstance(folders, (str, os.PathLike)) else list(folders)
    if not given:
        raise InputError("folders is empty: expected at least one folder of images and videos")
    roots = list(dict.fromkeys(root_of(folder) for folder in given))
    reporter = progress or SilentProgress()
    where = os.fspath(into)
    with open_index(
        where, roots, model=model, device=device, threads=threads, storage=storage, progress=reporter
    ) as opened:
        result = opened.index(roots, exclude=exclude, follow_links=follow_links, ocr=ocr, progress=reporter)
        opened.collection.settle(progress=reporter)
    return result


@dataclass(frozen=True)
class OpenIndex:
    """A collection open for writing, and its model."""

    collection: Collection
    model: IndexModel
    new: bool

    def index(
        self,
        roots: Sequence[str],
        *,
        exclude: Sequence[str] | None = None,
        follow_links: bool | None = None,
        ocr: bool | None = None,
        progress: ProgressReporter,
    ) -> Indexed:
        """Bring the collection up to date with ``roots``, given as absolute paths."""
        confirm_roots(self.collection.info().where, roots)
        reports = index_roots(
            self.collection, self.model, roots, exclude=exclude, follow_links=follow_links, ocr=ocr, progress=progress
        )
        return Indexed(self.collection.info(), reports, self.new)


@contextmanager
def open_index(
    where: str,
    roots: Sequence[str],
    *,
    model: str | None,
    device: str | None = None,
    threads: int | None = None,
    storage: str | None = None,
    progress: ProgressReporter,
) -> Iterator[OpenIndex]:
    """Open or create the collection at ``where`` to index ``roots`` into it.

    Raises:
        InputError: A folder or the device is missing or the model does not match; nothing has been written yet.
    """
    known = known_collection(where)
    check_folders(roots, known)
    if known is not None:
        check_same_storage(known, storage)
    elif storage is not None:
        check_storage(storage)
    encoder, source = _load(where, model, known, device, threads)
    if known is not None and known.model != encoder.fingerprint():
        raise model_mismatch_error(known.where, known.model, known.model_source, encoder.fingerprint(), source)
    if known is not None and model is None and (hint := upgrade_hint(known)) is not None:
        progress.note(hint)
    if known is not None and known.lost_changes:
        progress.note(
            f"{known.lost_changes} committed changes of {where} are missing, its write-ahead log was damaged: files "
            "that they added are indexed again. When this was done for all folders, 'vse collection verify "
            "--accept-loss' removes this note"
        )
    with closing(_open(where, encoder, source, storage, new=known is None)) as collection:
        if known is not None and source != known.model_source and _is_gone(known.model_source):
            collection.set_model_source(source)
            progress.note(f"the model is no longer at {known.model_source}: using {source} from now on")
        yield OpenIndex(collection, encoder, known is None)


def known_collection(where: str) -> CollectionInfo | None:
    """Return the info of the collection at ``where``, or None if it does not exist yet."""
    if not collection_exists(where):
        return None
    with closing(open_collection(where)) as collection:
        return collection.info()


def is_collection(folder: str) -> bool:
    """Return whether a folder is a valid collection; a stray file with a matching name is not enough."""
    from vse.index.store.layout import read_generation

    try:
        read_generation(Path(folder))
    except InputError:
        return False
    return True


def check_folders(roots: Sequence[str], known: CollectionInfo | None) -> None:
    """Reject mistyped folders before a model is loaded; an indexed one may be absent (its disk not mounted)."""
    for root in roots:
        if is_collection(root):
            raise InputError(f"{root} is an index: expected a folder of images and videos, and the index after --into")
        check_overlap(() if known is None else known.roots, root, roots)
        reason = why_absent(root)
        if reason is not None and (known is None or root not in known.roots):
            raise InputError(f"{root}: {reason}: expected a folder of images and videos")


RELOCATE_SAMPLE = 64
"""Files looked for at the new place of a folder."""


def relocate_root(
    collection: Collection, old: str | os.PathLike[str], new: str | os.PathLike[str], *, force: bool = False
) -> int:
    """Rewrite the place of an indexed folder that was moved or renamed; embeddings, ids and rules stay.

    The files move in one transaction.

    Args:
        collection: Open for writing.
        old: The folder as it was indexed.
        new: Where it is now.
        force: Do not check that files are there.

    Returns:
        The number of files.

    Raises:
        InputError: ``old`` is not indexed, ``new`` overlaps another folder, or most of a sample of files is not there.
    """
    before, after, roots = root_of(old), root_of(new), collection.info().roots
    if before not in roots:
        known = ", ".join(roots[:3]) or "none"
        raise InputError(f"{before} is not an indexed folder: expected one of the collection ({known})")
    if before == after:
        raise InputError(f"{before}: the old and the new place are the same")
    check_overlap([root for root in roots if root != before], after)
    files = list(collection.files(before))
    sample = files[:: max(1, len(files) // RELOCATE_SAMPLE)]
    lost = [file for file in sample if not os.path.exists(Path(after) / file.path)]  # noqa: PTH110 - never raises
    if 2 * len(lost) > len(sample) and not force:
        raise InputError(
            f"{after}: {len(lost)} of {len(sample)} files looked for are not there, the first is {lost[0].path}: "
            "name the folder that holds them now, or add --force"
        )
    rules = rules_of(collection.settings(), before)
    collection.set_settings(with_rules(collection.settings(), after, rules))
    collection.move([((file.root, file.path), replace(file, root=after)) for file in files])
    collection.set_settings(with_rules(collection.settings(), before, ScanRules()))
    return len(files)


def named_model(name: str, *, device: str | None = None, threads: int | None = None) -> tuple[IndexModel, str]:
    """Load a model named by the user; also return its source in a form valid from any working directory."""
    source = shipped_name(name) or (root_of(name) if Path(name).expanduser().exists() else name)
    return _loaded(source, source, device, threads), source


def recorded_model(
    source: str, fingerprint: str | None = None, *, device: str | None = None, threads: int | None = None
) -> IndexModel:
    """Load the model that a collection records as ``source``, with ``fingerprint`` if a bundled one has versions.

    Raises:
        InputError: It is not on this machine, cannot be loaded, or does not read images.
    """
    return _loaded(recorded_place(source, fingerprint), source, device, threads)


def _loaded(place: str, source: str, device: str | None, threads: int | None) -> IndexModel:
    model = load(place, device=device, threads=threads)
    if isinstance(model, PairScorer):
        raise InputError(f"{source}: {model.no_vectors}")
    if model.preprocessing is None:
        raise InputError(f"{source} reads features, not images: use a model that reads images")
    return model


def _load(
    where: str, model: str | None, known: CollectionInfo | None, device: str | None, threads: int | None
) -> tuple[IndexModel, str]:
    if model is not None:
        return named_model(model, device=device, threads=threads)
    if known is None:
        return recorded_model(DEFAULT, device=device, threads=threads), DEFAULT
    if is_external(known):
        raise InputError(
            f"{where} holds embeddings of {known.model!r}, which are computed elsewhere: 'vse collection import' adds "
            "to it, or choose another name after --into"
        )
    try:
        encoder = recorded_model(known.model_source, known.model, device=device, threads=threads)
        return encoder, known.model_source
    except DeviceError:
        raise
    except InputError as error:
        raise InputError(f"{error}; {where} was created with it: give its new location with --model") from None


def _is_gone(source: str) -> bool:
    """Return whether a model was in a local folder that no longer exists; hub ids are never looked up."""
    return Path(source).is_absolute() and not os.path.isfile(Path(source) / "config.json")  # noqa: PTH113 - never raises


def _open(where: str, model: IndexModel, source: str, storage: str | None, *, new: bool) -> Collection:
    if new:
        return create_collection(
            where, model=model.fingerprint(), model_source=source, dimensions=model.embed_size, storage=storage
        )
    return open_collection(where, write=True, model=model.fingerprint())
