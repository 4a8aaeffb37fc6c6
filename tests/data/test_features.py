"""Contracts of the feature store: what is acknowledged is there, whatever happens, and nothing else is believed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vse.data import CaptionedImages, ImageFiles
from vse.data.feature_folder import Extracted, FeaturePlan
from vse.data.feature_writer import open_writer
from vse.data.features import FeatureStore, attach
from vse.errors import InputError, VSEError

GRID, CHANNELS = (2, 3), 4

# Fills a store of ten rows, two at a time, and kills itself at the n-th flush to the disk.
KILLED_RUN = """
import os, signal, sys
import numpy as np
folder, fatal = sys.argv[1], int(sys.argv[2])
from vse.data.feature_folder import Extracted, FeaturePlan
from vse.data.feature_writer import open_writer
flush, count = os.fsync, 0
def fsync(descriptor):
    global count
    count += 1
    if count == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    flush(descriptor)
os.fsync = fsync
ids = tuple(f"{i}.jpg" for i in range(10))
plan = FeaturePlan("tiny", {}, {"size": [8, 8]}, channels=4, fingerprint="f" * 16, ids=ids, grid=(2, 3))
with open_writer(folder, plan) as writer:
    for i in range(0, len(writer.todo), 2):
        rows = writer.todo[i:i + 2]
        good = {row: Extracted(np.full((6, 4), row + 1, np.float16)) for row in rows if row != 5}
        writer.commit(good | {row: Extracted(None, "broken") for row in rows if row == 5})
    writer.finish()
"""


def plan(count: int = 4, **changes) -> FeaturePlan:
    values = {
        "backbone": "tiny",
        "options": {"blocks": (1, 2)},
        "preprocessing": {"size": [8, 8], "resize": "bicubic"},
        "grid": GRID,
        "channels": CHANNELS,
        "fingerprint": "f" * 16,
        "ids": tuple(f"{i}.jpg" for i in range(count)),
    }
    return FeaturePlan(**{**values, **changes})


def rows_of(rows, seed: int = 0) -> np.ndarray:
    """Features that tell their row."""
    return np.array([np.random.default_rng([seed, row]).normal(size=(6, 4)) for row in rows], np.float16).reshape(
        -1, 6, 4
    )


def batch(good, bad=None, seed: int = 0) -> dict[int, Extracted]:
    """Rows with the features of :func:`rows_of`, and rows with a reason."""
    extracted = {row: Extracted(features) for row, features in zip(good, rows_of(good, seed), strict=True)}
    return extracted | {row: Extracted(None, reason) for row, reason in (bad or {}).items()}


def fill(folder: Path, the_plan: FeaturePlan, bad=()) -> Path:
    with open_writer(folder, the_plan) as writer:
        good = [row for row in writer.todo if row not in bad]
        writer.commit(batch(good, {row: f"reason {row}" for row in bad}))
        writer.finish()
    return folder


@pytest.fixture
def store(tmp_path) -> Path:
    """A complete store of four images."""
    return fill(tmp_path / "store", plan())


@given(st.data())
@settings(max_examples=25)
def test_store_holds_what_was_committed_last(data):
    """However the rows are batched, failed, fixed and interrupted, the store holds what was committed last."""
    count = data.draw(st.integers(1, 9))
    kept: dict[int, int] = {}
    broken: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "store"
        run = 0
        while len(kept) + len(broken) < count or run == 0:
            run += 1
            with open_writer(folder, plan(count)) as writer:
                assert writer.todo == [row for row in range(count) if row not in kept]
                assert writer.kept == len(kept)
                assert dict(writer.problems) == {f"{row}.jpg": reason for row, reason in sorted(broken.items())}
                todo = writer.todo
                stop = len(todo) if run > 3 else data.draw(st.integers(0, len(todo)))
                for start in range(0, stop, 2):
                    rows = todo[start : min(start + 2, stop)]
                    bad = {row: f"run {run}" for row in rows if data.draw(st.booleans())}
                    good = [row for row in rows if row not in bad]
                    writer.commit(batch(good, bad, run))
                    broken = {row: reason for row, reason in (broken | bad).items() if row not in good}
                    kept |= dict.fromkeys(good, run)
                if len(kept) + len(broken) == count:
                    writer.finish()
        found = FeatureStore.open(folder)
        assert found.bad == {f"{row}.jpg": reason for row, reason in broken.items()}
        assert (found.folder / "problems.jsonl").read_text().count("\n") == len(broken)
        for row, made_by in kept.items():
            np.testing.assert_array_equal(found.array[row], rows_of([row], made_by)[0])


def test_store_files_are_npy_and_json(store):
    """Anybody can read the features with numpy and the rest as JSON."""
    array = np.load(store / "features.npy", mmap_mode="r")
    assert (array.shape, array.dtype) == ((4, 6, 4), np.float16)
    assert np.load(store / "done.npy").tolist() == [1, 1, 1, 1]
    assert json.loads((store / "ids.json").read_text()) == ["0.jpg", "1.jpg", "2.jpg", "3.jpg"]
    header = json.loads((store / "store.json").read_text())
    assert header == {
        "format": 1,
        "backbone": "tiny",
        "options": {"blocks": [1, 2]},
        "preprocessing": {"size": [8, 8], "resize": "bicubic"},
        "grid": [2, 3],
        "channels": 4,
        "dtype": "float16",
        "count": 4,
        "fingerprint": "f" * 16,
        "complete": True,
    }


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("fatal", range(1, 16))
def test_store_resumes_after_kill_at_any_sync(tmp_path, fatal):
    """Wherever kill −9 strikes, marked rows hold their features, unmarked ones are at most one batch behind, and the
    same call finishes the store."""
    folder = tmp_path / "store"
    command = [sys.executable, "-c", KILLED_RUN, str(folder)]
    killed = subprocess.run([*command, str(fatal)], check=False)
    assert killed.returncode == -signal.SIGKILL
    marks = np.load(folder / "done.npy") if (folder / "done.npy").exists() else np.zeros(10)
    written = np.load(folder / "features.npy") if marks.any() else np.zeros((10, 6, 4))
    for row in np.flatnonzero(marks == 1):
        assert (written[row] == row + 1).all()
    with pytest.raises(InputError, match=r"not complete|not a feature store"):
        FeatureStore.open(folder)
    assert (marks[written.any((1, 2))] == 0).sum() <= 2
    subprocess.run([*command, "0"], check=True)
    found = FeatureStore.open(folder)
    assert found.bad == {"5.jpg": "broken"}
    for row in set(range(10)) - {5}:
        assert (found.array[row] == row + 1).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"backbone": "large"}, "backbone 'tiny', now it is 'large'"),
        ({"options": {"blocks": (1, 3)}}, r"options.blocks \[1, 2\], now it is \[1, 3\]"),
        ({"options": {}}, r"options.blocks \[1, 2\], now it is None"),
        ({"preprocessing": {"size": [9, 8], "resize": "bicubic"}}, r"preprocessing.size \[8, 8\], now it is \[9, 8\]"),
        ({"grid": (3, 2)}, r"grid \[2, 3\], now it is \[3, 2\]"),
        ({"channels": 5}, "channels 4, now it is 5"),
        ({"fingerprint": "e" * 16}, f"fingerprint '{'f' * 16}', now it is '{'e' * 16}'"),
        ({"ids": ("0.jpg",)}, "count 4, now it is 1"),
        ({"ids": ("0.jpg", "1.jpg", "x.jpg", "3.jpg")}, r"ids\[2\] '2.jpg', now it is 'x.jpg'"),
    ],
)
def test_store_refuses_another_plan(store, changes, said):
    """A folder holds the features of one plan; the line names the first difference and both values."""
    with pytest.raises(InputError, match=said):
        open_writer(store, plan(**changes))
    np.testing.assert_array_equal(FeatureStore.open(store).array, rows_of(range(4)))


def test_store_allows_one_writer(tmp_path):
    """A second run is turned away with the number of the first, and let in after it."""
    with (
        open_writer(tmp_path / "store", plan()),
        pytest.raises(VSEError, match=f"is being written by process {os.getpid()}"),
    ):
        open_writer(tmp_path / "store", plan())
    open_writer(tmp_path / "store", plan()).close()


def test_refused_plan_releases_the_lock(store):
    """After an error the folder is free again."""
    with pytest.raises(InputError):
        open_writer(store, plan(channels=9))
    open_writer(store, plan()).close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("file", ["features.npy", "done.npy"])
def test_feature_store_survives_full_disk(tmp_path, file):
    """A disk that fills up is one line, acknowledged rows stay, and the run can go on later."""
    folder = tmp_path / "store"
    with open_writer(folder, plan()) as writer:
        writer.commit(batch([0]))
        (descriptor,) = (
            int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink() and names(entry, file)
        )
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, descriptor)
        os.close(full)
        with pytest.raises(
            VSEError, match=r"the disk is full; finished features are kept: free some space and run the command again"
        ):
            writer.commit(batch([1]))
    with open_writer(folder, plan()) as writer:
        assert writer.todo == [1, 2, 3]
        writer.commit(batch([1, 2, 3]))
        writer.finish()
    np.testing.assert_array_equal(FeatureStore.open(folder).array, rows_of(range(4)))


def names(entry: Path, file: str) -> bool:
    try:
        return entry.readlink().name == file
    except OSError:
        return False


def test_store_refuses_to_start_without_space(tmp_path, monkeypatch):
    """What the disk cannot hold is not begun."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12 - 5_000_000, 5_000_000))
    with pytest.raises(VSEError, match=r"the features need 0\.02 GB more, the disk has 0\.01 GB free"):
        open_writer(tmp_path / "store", plan(channels=1_000_000 // 2, count=4))


@pytest.mark.parametrize("content", ["holiday.jpg", "features.npy"])
def test_store_refuses_foreign_folder(tmp_path, content):
    """Only an empty folder or a store is written to: nobody's files are overwritten."""
    (tmp_path / content).write_text("mine")
    with pytest.raises(InputError, match=f"not a feature store and not empty, it holds '{content}'"):
        open_writer(tmp_path, plan())
    with pytest.raises(InputError, match="is a file: expected a folder"):
        open_writer(tmp_path / content, plan())
    assert [path.name for path in tmp_path.iterdir()] == [content]
    assert (tmp_path / content).read_text() == "mine"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_store_reports_folder_without_permission(tmp_path):
    """No permission is one line."""
    tmp_path.chmod(0o500)
    with pytest.raises(VSEError, match="cannot be written: Permission denied"):
        open_writer(tmp_path / "store", plan())


def test_store_reports_path_through_file(tmp_path):
    """A folder that cannot be made is one line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(VSEError, match="cannot be written: Not a directory"):
        open_writer(tmp_path / "file" / "store", plan())


@pytest.mark.parametrize(
    ("ids", "said"), [((), "zero images"), (("a", "b", "a"), "id 'a' is given to 2 images")], ids=["none", "twice"]
)
def test_feature_plan_needs_unique_ids(ids, said):
    """A plan has images, and each has an id of its own."""
    with pytest.raises(InputError, match=said):
        plan(ids=ids)


@pytest.mark.parametrize(
    "features", [np.zeros((6, 4), np.float32), np.zeros((6, 5), np.float16), np.zeros((5, 4), np.float16)]
)
def test_store_refuses_features_of_other_shape(tmp_path, features):
    """A row is written whole or not at all."""
    with open_writer(tmp_path / "store", plan()) as writer:
        with pytest.raises(InputError, match=r"expected float16 \(6, 4\)"):
            writer.commit({0: Extracted(features)})
        with pytest.raises(InputError, match="4 rows are still to do"):
            writer.finish()


@pytest.mark.parametrize("first", [{}, {0: "first"}])
def test_store_ignores_truncated_problem_line(tmp_path, first):
    """A reason that a kill cut in two neither breaks the store nor swallows the next reason."""
    folder = tmp_path / "store"
    with open_writer(folder, plan()) as writer:
        writer.commit(batch([], first))
    with (folder / "problems.jsonl").open("a") as file:
        file.write('{"id": "1.jp')
    with open_writer(folder, plan()) as writer:
        writer.commit(batch([2, 3], {1: "second"}))
        writer.commit(batch([0]))
        writer.finish()
    assert FeatureStore.open(folder).bad == {"1.jpg": "second"}


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda s: cut(s / "features.npy", 300), "features.npy is truncated: its header promises 320 bytes"),
        (lambda s: cut(s / "features.npy", 5), "features.npy is not a .npy file"),
        (lambda s: (s / "features.npy").unlink(), "features.npy does not exist"),
        (lambda s: np.save(s / "features.npy", np.zeros((4, 6, 5), np.float16)), r"promises float16 \(4, 6, 4\)"),
        (lambda s: np.save(s / "features.npy", np.zeros((4, 6, 4), np.float32)), "holds float32"),
        (lambda s: cut(s / "done.npy", 130), "done.npy cannot be read"),
        (lambda s: cut(s / "done.npy", 0), "done.npy cannot be read"),
        (lambda s: np.save(s / "done.npy", np.ones(3, np.uint8)), r"expected uint8 \(4,\)"),
        (lambda s: np.save(s / "done.npy", np.full(4, 3, np.uint8)), "0 to 2"),
        (lambda s: np.save(s / "done.npy", np.array([{}] * 4), allow_pickle=True), "done.npy cannot be read"),
        (lambda s: np.save(s / "done.npy", np.array([1, 1, 0, 1], np.uint8)), "not complete, 3 of 4 images are done"),
        (lambda s: (s / "done.npy").unlink(), "not complete, 0 of 4 images"),
        (lambda s: (s / "ids.json").unlink(), "ids.json cannot be read"),
        (lambda s: (s / "ids.json").write_text("[1]"), "expected a list of texts"),
        (lambda s: (s / "ids.json").write_text('["a"'), "ids.json cannot be read"),
        (lambda s: (s / "ids.json").write_text('["a", "b", "c", "a"]'), "3 distinct ids for 4 images"),
        (lambda s: (s / "store.json").unlink(), "is not a feature store"),
        (lambda s: (s / "store.json").write_text("{}"), "'backbone' is missing"),
        (lambda s: (s / "store.json").write_text("{"), "not JSON"),
    ],
)
def test_corrupt_store_is_reported(store, damage, said):
    """Whatever is cut off, missing or of another size is one line that names the file."""
    damage(store)
    with pytest.raises(InputError, match=said) as caught:
        FeatureStore.open(store)
    assert "\n" not in str(caught.value)
    assert str(store) in str(caught.value)


def test_complete_store_without_marks_is_not_overwritten(store):
    """When the marks of a complete store are gone its features are not overwritten silently."""
    (store / "done.npy").unlink()
    with pytest.raises(InputError, match=r"done.npy is missing: the store is corrupt"):
        open_writer(store, plan())


def captioned(ids, owners, paths=None) -> CaptionedImages:
    images = ImageFiles(tuple(map(Path, paths or ids)), tuple(ids))
    captions = tuple(f"caption {j}" for j in range(len(owners)))
    return CaptionedImages("x", "test", "folder", images, captions, np.array(owners, dtype=np.int64))


@given(st.data())
@settings(max_examples=25)
def test_attach_matches_by_id(tmp_path_factory, data):
    """Every image gets the row of its id, and dropping bad ones keeps each caption with its image."""
    count = data.draw(st.integers(1, 6))
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    order = data.draw(st.permutations(range(count)))
    if bad.issuperset(order):
        return
    owners = data.draw(st.lists(st.integers(0, count - 1), max_size=8))
    store = FeatureStore.open(fill(tmp_path_factory.mktemp("attach") / "store", plan(count), bad))
    given_data = captioned([f"{row}.jpg" for row in order], owners)
    if bad:
        with pytest.raises(InputError, match=f"no features for {len(bad)} of {count} images"):
            attach(given_data, store)
    attached = attach(given_data, store, on_bad="drop")
    good = [row for row in order if row not in bad]
    assert attached.images.ids == tuple(f"{row}.jpg" for row in good)
    for position, row in enumerate(good):
        np.testing.assert_array_equal(attached.images[position], rows_of([row])[0].astype(np.float32))
        assert attached.captions_of(position) == given_data.captions_of(order.index(row))
    assert len(attached.captions) == sum(order[owner] not in bad for owner in owners)


def test_attach_refuses_other_images(store):
    """Images the store does not know are counted and the first is named; one id for two files cannot be matched."""
    found = FeatureStore.open(store)
    with pytest.raises(InputError, match=r"lacks 2 of 3 images, 'a.jpg' is the first"):
        attach(captioned(["0.jpg", "a.jpg", "b.jpg"], [0]), found)
    with pytest.raises(InputError, match=r"id '0.jpg' names two images, p/0.jpg and q/0.jpg"):
        attach(captioned(["0.jpg", "0.jpg"], [0], ["p/0.jpg", "q/0.jpg"]), found)
    with pytest.raises(InputError, match="unknown on_bad 'dropp'"):
        attach(captioned(["0.jpg"], [0]), found, on_bad="dropp")


def test_store_rows_pickle_without_data(store):
    """Rows of a store that are sent to a worker process are mapped again there and not copied."""
    rows = FeatureStore.open(store).rows_for(["2.jpg"])
    received = pickle.loads(pickle.dumps(rows))
    assert isinstance(received.array, np.memmap)
    np.testing.assert_array_equal(received[0], rows_of([2])[0])


def test_store_needs_no_torch():
    """Reading and writing a store loads neither torch nor an image library."""
    code = "import sys, vse.data.feature_writer; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "PIL"} & set(done.stdout.split())
