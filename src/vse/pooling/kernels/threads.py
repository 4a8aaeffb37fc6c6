"""The threads the kernels run on.

A kernel releases the GIL and works on a range of sets; :func:`run_in_ranges` spreads the ranges.

It borrows the OpenMP threads of torch where it can. After each of its own operations torch keeps those threads
spinning for some milliseconds, in case another follows; threads of ours would have to share the cores with them, and
ran at half speed. Where torch's runtime is not found, and in a forked child, where it would hang, an ordinary thread
pool serves. numba's own threading layer is no choice: it aborts the process when two Python threads enter it at once.
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
"""Sets differ in size: whoever is done first takes the next range."""

_executor: ThreadPoolExecutor | None = None
_forked = False


def run_in_ranges(task: Task, count: int, *, worth_splitting: bool = True) -> None:
    """Call ``task(first, last)`` over ranges that cover ``0..count``, on as many threads as torch uses, and wait.

    Small tasks are not worth it: on a busy machine the wait for a second thread can be a whole time slice.
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
            for first, last in ranges:  # a list's iterator gives each range to one thread
                task(first, last)
        except BaseException as error:  # noqa: BLE001 (carried over to the calling thread)
            errors.append(error)

    parallel = None if _forked else _openmp_parallel()
    if parallel is not None:
        # The whole team, also when there are fewer ranges: a smaller one would cost torch its surplus threads.
        parallel(_CALLBACK(work), None, torch.get_num_threads(), 0)
    else:
        others = [_pool().submit(work) for _ in range(workers - 1)]
        work()
        for other in others:
            other.result()
    if errors:
        raise errors[0]
    work()  # an interrupt can stop a thread before it began: whatever is left is done here
    if errors:
        raise errors[0]


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@functools.cache
def _openmp_parallel() -> Callable[..., None] | None:
    """``GOMP_parallel`` of the OpenMP runtime that torch has loaded: run a function on every thread of its team."""
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
    """A forked child has neither the pool's threads nor OpenMP's; waiting for them would hang."""
    global _executor, _forked
    _executor, _forked = None, True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
