"""Run kernels on several threads.

A kernel releases the GIL and processes a range of sets; :func:`run_in_ranges` distributes the ranges.

It borrows torch's OpenMP threads where possible. After each of its own operations torch keeps those threads spinning
for some milliseconds; separate threads would compete with them for cores and ran at half speed. If torch's OpenMP
runtime is not found, and in a forked child, where it would hang, an ordinary thread pool is the fallback. numba's
threading layer is unusable: it aborts the process when two Python threads enter it at once.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

Task = Callable[[int, int], None]
RANGES_PER_THREAD = 4
"""Several, since sets differ in size: a thread that finishes early takes another range."""

_executor: ThreadPoolExecutor | None = None
_forked = False


def run_in_ranges(task: Task, count: int, *, worth_splitting: bool = True) -> None:
    """Call ``task(first, last)`` over ranges that cover ``0..count``, on as many threads as torch uses, and wait.

    Do not use it for small tasks: on a busy machine, waiting for a second thread can take a whole time slice.
    """
    workers = min(torch.get_num_threads(), count) if worth_splitting else 1
    if workers <= 1:
        task(0, count)
        return
    pieces = min(count, RANGES_PER_THREAD * workers)
    ranges = iter([(count * i // pieces, count * (i + 1) // pieces) for i in range(pieces)])
    errors: list[BaseException] = []

    def work(_: int | None = None) -> None:
        try:
            for first, last in ranges:  # a list iterator yields each range to one thread only
                task(first, last)
        except BaseException as error:  # noqa: BLE001 (carried over to the calling thread)
            errors.append(error)

    parallel = None if _forked else _openmp_parallel()
    if parallel is not None:
        # Use the whole team even for fewer ranges: a smaller one would make OpenMP drop torch's surplus threads.
        parallel(_CALLBACK(work), None, torch.get_num_threads(), 0)
    else:
        others = [_pool().submit(work) for _ in range(workers - 1)]
        work()
        for other in others:
            other.result()
    if errors:
        raise errors[0]
    work()  # an interrupt can stop a thread before it starts: process the rest here
    if errors:
        raise errors[0]


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@functools.cache
def _openmp_parallel() -> Callable[..., None] | None:
    """Return ``GOMP_parallel`` of torch's OpenMP runtime, which runs a function on every thread of its team."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        loaded = {Path(parts[5]) for line in lines if len(parts := line.split(maxsplit=5)) == 6}
        home = Path(torch.__file__).parent.resolve()
        names = ("libgomp", "libiomp5", "libomp")
        runtimes = [path for path in loaded if path.name.startswith(names) and home in path.parents]
        if len(runtimes) != 1 or "OpenMP" not in torch.__config__.parallel_info():
            return None
        parallel = ctypes.CDLL(str(runtimes[0])).GOMP_parallel
    except (OSError, AttributeError):
        return None
    parallel.argtypes = [_CALLBACK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel


def _pool() -> ThreadPoolExecutor:
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="vse-pooling")
    return _executor


def _after_fork() -> None:
    """Reset the state: a forked child has neither the pool's nor OpenMP's threads, and waiting for them would hang."""
    global _executor, _forked
    _executor, _forked = None, True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
