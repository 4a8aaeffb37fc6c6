"""Keep a collection up to date while its folders change."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from vse.errors import InputError
from vse.index.pipeline import IndexReport, index_folder
from vse.index.pipeline.commits import IndexModel
from vse.index.pipeline.folder import root_of
from vse.index.scan import Found, ScanRules, walk, why_absent
from vse.index.scan.captions import CAPTION_FILES
from vse.index.scan.exclude import rules_of
from vse.index.types import Collection
from vse.progress import ProgressReporter, SilentProgress

Snapshot = dict[str, tuple[int, ...]]
"""Size, modification time and sidecars by path, of images, videos, caption files and ``.vseignore`` files."""
EVERY = 2.0
PATIENCE = 30.0
"""Seconds after which stable files no longer wait for others that keep changing."""
REST = 4.0
"""Seconds of rest per second of scanning, so large folders are polled less often."""


def watch(
    collection: Collection,
    model: IndexModel,
    roots: Sequence[str | os.PathLike[str]],
    *,
    every: float = EVERY,
    patience: float = PATIENCE,
    progress: ProgressReporter | None = None,
    stop: threading.Event | None = None,
    batch_size: int = 32,
) -> Iterator[IndexReport]:
    """Poll folders and index what has changed, until ``stop`` is set.

    A file is indexed once two polls found it with the same size and time. Missing files are removed once nothing
    changes any more, so that moves are recognised. If changes continue for ``patience`` seconds, stable files are
    indexed anyway. An absent folder is waited for.

    Args:
        collection: Open for writing.
        model: The collection's model.
        roots: The folders.
        every: Seconds between polls, at least.
        patience: Seconds to wait for changes to end.
        progress: Receives progress and notes.
        stop: Ends the loop when set.
        batch_size: Images in the model at once.

    Yields:
        A report each time a folder was indexed.

    Raises:
        InputError: ``every`` is not above 0.
    """
    reporter, ending = progress or SilentProgress(), stop or threading.Event()
    if not every > 0:
        raise InputError(f"every must be above 0 seconds, got {every!r}")
    settings = collection.settings()
    folders = [
        _Watched(folder, rules_of(settings, folder), patience, reporter) for folder in (root_of(root) for root in roots)
    ]
    while not ending.is_set():
        began = time.monotonic()
        for folder in folders:
            stable = folder.look()
            if stable is not None:
                report = index_folder(
                    collection,
                    model,
                    folder.root,
                    progress=reporter,
                    batch_size=batch_size,
                    settled=partial(_is_stable, stable),
                )
                folder.indexed(report)
                yield report
        ending.wait(max(every, REST * (time.monotonic() - began)))


def snapshot(root: str, rules: ScanRules | None = None) -> Snapshot | None:
    """Return the current state of a folder, None if it is absent."""
    try:
        scan = walk(root, rules=rules)
    except InputError:
        return None
    found = {each.path: _state(each) for each in scan}
    found.update(scan.exclusion.files)
    for name in CAPTION_FILES:
        with suppress(OSError):
            status = (Path(root) / name).stat()
            found[name] = status.st_size, status.st_mtime_ns
    return found


class _Watched:
    """The last state seen of one folder, and the last one indexed."""

    def __init__(self, root: str, rules: ScanRules, patience: float, progress: ProgressReporter) -> None:
        self.root, self._rules = root, rules
        self._patience, self._progress = patience, progress
        self._seen: Snapshot | None = None
        self._done: Snapshot | None = None
        self._since = 0.0
        self._absent = False

    def look(self) -> Snapshot | None:
        """Return the stable files if there is something to index, else None."""
        before, now = self._seen, snapshot(self.root, self._rules)
        self._say_absent(now is None)
        if now is None:
            return None
        self._seen = now
        if now == self._done:
            return None
        if before is None or before == self._done:
            self._since = time.monotonic()  # a change begins
        if before is None or (now != before and time.monotonic() - self._since < self._patience):
            return None
        self._since = time.monotonic()
        return {path: state for path, state in now.items() if before.get(path) == state}

    def indexed(self, report: IndexReport) -> None:
        """Remember the indexed state; if files are still waiting, the next poll indexes again."""
        self._done = None if report.waiting else self._seen

    def _say_absent(self, absent: bool) -> None:
        if absent and not self._absent:
            self._progress.note(f"{self.root}: {why_absent(self.root) or 'not there'}; waiting for it")
        self._absent = absent


def _is_stable(stable: Snapshot, found: Found) -> bool:
    return stable.get(found.path) == _state(found)


def _state(found: Found) -> tuple[int, ...]:
    return found.size, found.modified_ns, found.sidecar_state
