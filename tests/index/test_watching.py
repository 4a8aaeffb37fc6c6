"""Watching: changes are indexed soon, but not before they are complete."""

from __future__ import annotations

import queue
import threading
import time
from functools import partial

import pytest
from tests.index.pipeline.support import counts, ids_of, model, new_collection, save_picture
from tests.index.scan.metadata_support import titled

from vse.errors import InputError
from vse.index.watching import watch
from vse.progress import SilentProgress

EVERY = 0.05
SECONDS = 20.0  # timeout for a report on a slow machine


class Watcher:
    """A watch in its own thread, and its reports."""

    def __init__(self, collection, root, **options):
        self.reports: queue.Queue = queue.Queue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(collection, root, options))
        self._thread.start()

    def _run(self, collection, root, options):
        try:
            for report in watch(collection, model(), [root], every=EVERY, stop=self._stop, **options):
                self.reports.put(report)
        except BaseException as error:  # noqa: BLE001 - passed to the test that waits for a report
            self.reports.put(error)

    def next(self):
        found = self.reports.get(timeout=SECONDS)
        if isinstance(found, BaseException):
            raise found
        return found

    def end(self):
        self._stop.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


@pytest.fixture
def root(tmp_path):
    for seed, path in enumerate(("a.png", "trip/b.png")):
        save_picture(tmp_path / "photos", path, seed)
    return tmp_path / "photos"


@pytest.fixture
def collection(tmp_path):
    with new_collection(tmp_path / "index.vse") as made:
        yield made


@pytest.fixture
def start(collection, root):
    """Return a function that starts a watch, stopped when the test ends."""
    running = []

    def begin(**options):
        running.append(Watcher(collection, root, **options))
        return running[-1]

    yield begin
    for watcher in running:
        watcher.end()


def test_watch_indexes_changes(start, collection, root):
    """New, moved and deleted files in turn; an unchanged folder gives no reports."""
    watcher = start()
    assert counts(watcher.next()) == {"new": 2}
    before = ids_of(collection)
    save_picture(root, "c.png", 5)
    assert counts(watcher.next()) == {"new": 1, "unchanged": 2}
    (root / "trip").rename(root / "journey")
    assert counts(watcher.next()) == {"moved": 1, "unchanged": 2}
    assert ids_of(collection)["journey/b.png"] == before["trip/b.png"]
    (root / "a.png").unlink()
    assert counts(watcher.next()) == {"removed": 1, "unchanged": 2}
    time.sleep(10 * EVERY)
    assert watcher.reports.empty()


def test_captions_are_watched_too(start, collection, root):
    """A changed caption file triggers indexing."""
    watcher = start()
    watcher.next()
    (root / "captions.csv").write_text("path,caption\na.png,snow\n")
    assert counts(watcher.next()) == {"touched": 1, "unchanged": 1}
    assert collection.info().captions == 1


def test_sidecars_are_watched_too(start, collection, root):
    """A new sidecar updates the words of its image."""
    watcher = start()
    watcher.next()
    (root / "a.xmp").write_bytes(titled("Quito"))
    assert counts(watcher.next()) == {"touched": 1, "unchanged": 1}
    assert {file.path: file.title for file in collection.files()}["a.png"] == "Quito"


class Between(threading.Event):
    """Replaces the pause between polls: runs one action after each, then ends the watch."""

    def __init__(self, things):
        super().__init__()
        self._things = iter(things)

    def wait(self, timeout=None):
        thing = next(self._things, self.set)
        thing()
        return self.is_set()


def test_a_file_that_grows_is_left_until_it_rests(collection, root):
    """An image that arrives in pieces, one per poll, is never read half-written."""
    whole = save_picture(root.parent, "outside.png", 9).read_bytes()
    piece = len(whole) // 8 + 1

    def grow(begin):
        with (root / "slow.png").open("ab") as file:
            file.write(whole[begin : begin + piece])

    def rest():
        pass

    pieces = [partial(grow, begin) for begin in range(0, len(whole), piece)]
    ending = Between([rest, rest, *pieces, rest, rest, rest])
    reports = list(watch(collection, model(), [root], stop=ending, patience=60.0))
    assert [counts(report) for report in reports] == [{"new": 2}, {"new": 1, "unchanged": 2}]
    assert "slow.png" in ids_of(collection)


def test_files_do_not_wait_for_ever(start, collection, root):
    """While one file keeps changing, others are indexed after ``patience``, and nothing is removed."""
    watcher = start(patience=0.3)
    watcher.next()
    save_picture(root, "ready.png", 7)
    (root / "a.png").unlink()
    ended = threading.Event()

    def grow():
        while not ended.is_set():
            with (root / "log.mp4").open("ab") as file:
                file.write(b"more")
            time.sleep(EVERY / 10)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        report = watcher.next()
        while not report.new:
            report = watcher.next()
        assert report.waiting == 2, "the growing file, and the missing one"
        assert {"a.png", "ready.png"} <= set(ids_of(collection))
    finally:
        ended.set()
        writer.join()
    while not watcher.next().removed:
        pass
    assert "a.png" not in ids_of(collection)


def test_a_folder_that_goes_away_and_comes_back(start, collection, root, tmp_path):
    """The watch waits for it, keeps its files, and notes it once."""
    said: list[str] = []

    class Notes(SilentProgress):
        def note(self, message):
            said.append(message)

    watcher = start(progress=Notes())
    watcher.next()
    root.rename(tmp_path / "away")
    until = time.monotonic() + SECONDS
    while not any("waiting for it" in line for line in said):
        assert time.monotonic() < until
        time.sleep(EVERY)
    time.sleep(5 * EVERY)
    assert sum("waiting for it" in line for line in said) == 1
    assert len(ids_of(collection)) == 2
    save_picture(tmp_path / "away", "c.png", 3)
    (tmp_path / "away").rename(root)
    assert counts(watcher.next()) == {"new": 1, "unchanged": 2}


def test_watch_refuses_zero_interval(collection, root):
    with pytest.raises(InputError, match="every must be above 0"):
        next(watch(collection, model(), [root], every=0))
