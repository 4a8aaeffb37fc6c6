"""Whether the compiled kernels can run here, and the threads they run on.

The kernels are numba functions that release the GIL and work on a range of sets. They are split over an ordinary
Python thread pool, not over numba's own threading layer: that one aborts the process when two Python threads enter
it at once, which a search service or a DataLoader will do sooner or later.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

logger = logging.getLogger(__name__)

PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
"""Subclasses (fake, sharded, quantised tensors) have no memory a kernel could read."""
_executor: ThreadPoolExecutor | None = None


@functools.cache
def kernels_available() -> bool:
    """True where the kernels load; found out once, at the first call that could use them."""
    try:
        import numba

        from vse.pooling.kernels import bigru_scan, sorted_sum  # noqa: F401 (their loading is what is tried)
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        logger.debug("numba is not installed: vse.pooling uses its plain torch path")
        return False
    except Exception as error:  # noqa: BLE001 (a numba that fits neither numpy nor the disk raises whatever it likes)
        logger.warning("the compiled kernels do not load (%s): vse.pooling uses its plain torch path", error)
        return False
    return not numba.config.DISABLE_JIT


def traced() -> bool:
    """True while torch records a graph that has to run without this package (export, ONNX, ``torch.jit.trace``)."""
    return (
        torch.compiler.is_exporting()
        or torch.onnx.is_in_onnx_export()
        or (not torch.compiler.is_dynamo_compiling() and torch._C._is_tracing())  # Dynamo cannot follow the latter
    )


def compiled() -> bool:
    """True while torch looks at the program instead of the values: checks on values are left out then."""
    return torch.compiler.is_compiling() or traced()


def usable_on(*tensors: torch.Tensor) -> bool:
    """True when the kernels can serve these tensors here and now."""
    dtype = tensors[0].dtype
    return (
        dtype in (torch.float32, torch.float64)
        and all(tensor.is_cpu and tensor.dtype == dtype and type(tensor) in PLAIN_TENSORS for tensor in tensors)
        and not traced()
        and kernels_available()
    )


def run_in_ranges(task: Callable[[int, int], None], count: int, *, worth_splitting: bool = True) -> None:
    """Call ``task(first, last)`` over ranges that cover ``0..count``, one per torch thread, and wait for all.

    Small tasks are not worth it: on a busy machine the wait for a second thread can be a whole time slice.
    """
    workers = min(torch.get_num_threads(), count) if worth_splitting else 1
    if workers <= 1:
        task(0, count)
        return
    bounds = [count * i // workers for i in range(workers + 1)]
    others = [_pool().submit(task, bounds[i], bounds[i + 1]) for i in range(1, workers)]
    try:
        task(bounds[0], bounds[1])
    finally:
        for other in others:
            other.result()


def _pool() -> ThreadPoolExecutor:
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="vse-pooling")
    return _executor


def _forget_pool() -> None:
    """A forked child has the pool object but none of its threads; waiting on it would hang."""
    global _executor
    _executor = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
