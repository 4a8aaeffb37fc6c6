"""Concurrent model calls give the same results as sequential ones."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from tests.index.pipeline.support import counts, ids_of, model, new_collection, save_picture
from tests.support_models import build, draw_nothing, grid_config, picture

import vse
from vse.convert.onnx_export import export_onnx
from vse.errors import VSEError
from vse.index.pipeline import index_folder
from vse.inputs.preprocessing import prepare
from vse.models.protocols import ParallelCalls
from vse.progress import SilentProgress

PICTURES = 30


class Uneven:
    """The tiny model for three threads. The first call ends after the second, and one may fail."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at, self.calls, self.inside, self.most = fails_at, 0, 0, 0
        self._lock, self._both = threading.Lock(), threading.Barrier(2)

    def __getattr__(self, name):
        return getattr(model(), name)

    @contextmanager
    def parallel_calls(self, batch_size):
        with model().parallel_calls(batch_size):
            yield ParallelCalls(3, 2)

    def embed_images(self, batch, lengths=None):
        with self._lock:
            self.calls += 1
            number = self.calls
            self.inside += len(batch)
            self.most = max(self.most, self.inside)
        if number <= 2:
            self._both.wait(timeout=60)  # times out if calls are sequential
            time.sleep(0.2 / number)
        try:
            if number == self.fails_at:
                raise VSEError("the model has failed")
            return model().embed_images(batch, lengths)
        finally:
            with self._lock:
                self.inside -= len(batch)


@pytest.fixture
def root(tmp_path):
    for seed in range(PICTURES):
        save_picture(tmp_path / "photos", f"{seed:02}.png", seed)
    return tmp_path / "photos"


@pytest.fixture
def collection(tmp_path):
    with new_collection(tmp_path / "index.vse") as made:
        yield made


def test_every_file_has_its_own_vector(collection, root):
    """Whichever call ends first, and with unreadable files between them; ids follow the order of paths."""
    (root / "07.png").write_bytes(b"broken")
    (root / "29.png").write_bytes(b"broken")
    encoder = Uneven()
    report = index_folder(collection, encoder, root, batch_size=6)
    assert counts(report) == {"new": PICTURES - 2, "problems": 2}
    assert report.images == PICTURES - 2
    assert encoder.most <= 6, "three calls of two pictures at a time"
    ids = ids_of(collection)
    assert [path for path, _ in sorted(ids.items(), key=lambda each: each[1])] == sorted(ids)
    found = collection.vectors([number for path in sorted(ids) for number in ids[path]])
    np.testing.assert_allclose(found, model().encode_images([root / path for path in sorted(ids)]), atol=1e-5)


def test_a_call_that_fails(collection, root):
    """The error propagates, earlier calls are committed, and the next run does the rest."""
    with pytest.raises(VSEError, match="the model has failed"):
        index_folder(collection, Uneven(fails_at=9), root, batch_size=6)
    there = len(ids_of(collection))
    assert 0 < there <= 2 * (8 + 2), "the ninth call to begin may be the eleventh in order: three are under way"
    assert counts(index_folder(collection, model(), root)) == {"new": PICTURES - there, "unchanged": there}
    assert sorted(ids_of(collection)) == [f"{seed:02}.png" for seed in range(PICTURES)]


def test_unreadable_files_advance_progress(collection, tmp_path):
    """A folder full of unreadable files reports progress as it goes."""
    root = tmp_path / "broken"
    root.mkdir()
    for number in range(200):
        (root / f"{number:03}.png").write_bytes(b"broken")
    save_picture(root, "last.png", 1)
    told = []

    class Counting(SilentProgress):
        def advance(self, steps=1, description=None):
            told.append(steps)

    class Telling(Uneven):
        def embed_images(self, batch, lengths=None):
            told.append("encoding")
            return model().embed_images(batch, lengths)

    report = index_folder(collection, Telling(), root, batch_size=6, progress=Counting())
    assert counts(report) == {"new": 1, "problems": 200}
    assert told.index("encoding") > 150


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory):
    """The same weights in torch, left in training mode, and in ONNX Runtime."""
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        folder = tmp_path_factory.mktemp("models")
        made = build(grid_config())
        export_onnx(made, folder / "onnx")
    return {"torch": made.train(), "onnx": vse.load(folder / "onnx", threads=3)}


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_calls_from_several_threads(runtimes, runtime):
    """Results equal those of single calls; afterwards the model has its threads and mode back."""
    encoder = runtimes[runtime]
    pixels = np.stack([prepare(picture(seed), encoder.preprocessing) for seed in range(48)])
    before = torch.get_num_threads()
    modes = [part.training for part in encoder.modules()] if runtime == "torch" else []
    torch.set_num_threads(3)
    try:
        expected = np.concatenate([encoder.embed_images(each) for each in np.split(pixels, 12)])
        with encoder.parallel_calls(32) as calls, ThreadPoolExecutor(calls.threads) as pool:
            found = np.concatenate(list(pool.map(encoder.embed_images, np.split(pixels, 12))))
            encoder.embed_images(pixels[:1])
        assert calls == ParallelCalls(3, 4)
        with ThreadPoolExecutor(1) as pool:
            assert (torch.get_num_threads(), pool.submit(torch.get_num_threads).result()) == (3, 3)
        np.testing.assert_allclose(encoder.embed_images(pixels), expected, atol=1e-5)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    if runtime == "torch":
        assert [part.training for part in encoder.modules()] == modes
        assert any(modes)


@pytest.mark.parametrize(
    ("cores", "batch_size", "expected"),
    [(1, 32, (1, 4)), (2, 32, (2, 4)), (64, 32, (8, 4)), (2, 4, (1, 4)), (2, 3, (1, 3)), (8, 1, (1, 1))],
)
def test_how_cores_are_shared(cores, batch_size, expected):
    """A call has four images if the batch allows it, and all calls together do not exceed the batch."""
    assert ParallelCalls.sharing(cores, batch_size) == expected
