"""Spreading ranges over threads: all of them, once each, on either kind of thread, and errors come back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from vse.pooling.kernels import threads

KINDS = ["torch's threads", "thread pool"]


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch):
    """Both ways to run: the pool is what a forked child gets."""
    if request.param == "thread pool":
        monkeypatch.setattr(threads, "_forked", True)
    elif threads._openmp_parallel() is None:
        pytest.skip("this torch has no OpenMP threads to borrow")
    return request.param


@pytest.fixture(params=[1, 2, 5])
def torch_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def covered(count: int, **options: bool) -> list[int]:
    """Every index that some range held, in order."""
    seen: list[int] = []
    lock = threading.Lock()

    def task(first: int, last: int) -> None:
        with lock:
            seen.extend(range(first, last))

    threads.run_in_ranges(task, count, **options)
    return sorted(seen)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 128])
def test_thread_ranges_cover_every_index_once(kind, torch_threads, count):
    """The ranges cover 0..count without gap or overlap, whatever the number of threads."""
    assert covered(count) == list(range(count))


def test_small_work_stays_in_the_calling_thread():
    """What is not worth splitting runs where it was called, in one range."""
    calls = []
    threads.run_in_ranges(lambda a, b: calls.append((a, b, threading.get_ident())), 9, worth_splitting=False)
    assert calls == [(0, 9, threading.get_ident())]


def test_large_work_uses_more_than_one_thread(kind):
    """Two ranges that wait for each other both get a thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        both = threading.Barrier(2)
        threads.run_in_ranges(lambda first, last: both.wait(timeout=20), 2)
    finally:
        torch.set_num_threads(before)


def test_thread_errors_reach_the_caller(kind, torch_threads):
    """An exception in any range is raised by the call, and the next call works."""

    def task(first: int, last: int) -> None:
        if first <= 5 < last:
            raise KeyError("range of 5")

    with pytest.raises(KeyError, match="range of 5"):
        threads.run_in_ranges(task, 8)
    assert covered(8) == list(range(8))


def test_threads_serve_many_callers_at_once(kind):
    """Callers in several Python threads do not mix up their ranges."""
    with ThreadPoolExecutor(6) as pool:
        assert all(result == list(range(50)) for result in pool.map(covered, [50] * 60))
