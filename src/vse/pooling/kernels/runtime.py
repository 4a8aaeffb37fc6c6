"""Decide whether the compiled kernels can run."""

from __future__ import annotations

import logging

import torch

logger = logging.getLogger(__name__)

PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
"""Subclasses (fake, sharded, quantised tensors) have no memory that a kernel can read."""


_available: bool | None = None


@torch.compiler.assume_constant_result  # Dynamo calls it; it would trace into numba otherwise, and numba would fail
def kernels_available() -> bool:
    """Return whether the kernels load; checked once, on first use.

    A failure while torch compiles is not remembered: outside of it they may load.
    """
    global _available
    if _available is None:
        compiling = torch.compiler.is_compiling()
        found = _try_kernels(quiet=compiling)
        if compiling and not found:
            return False
        _available = found
    return _available


def _try_kernels(*, quiet: bool = False) -> bool:
    try:
        import numba
        import numpy as np

        from vse.pooling.kernels import bigru_scan, sorted_sum  # noqa: F401 (checks that they load)

        if numba.config.DISABLE_JIT:
            return False
        one = np.ones((1, 2, 16), np.float32)  # checks that the vector instructions compile
        sorted_sum.sum_sorted(
            one, np.ones((1, 2), np.bool_), one[..., 0].copy(), np.empty((1, 16), np.float32), 16, 0, 1
        )
    except ModuleNotFoundError as error:
        if error.name not in {"numba", "numpy"}:
            raise
        logger.debug("%s is not installed: vse.pooling uses its plain torch path", error.name)
        return False
    except Exception as error:  # noqa: BLE001 (an incompatible numba may raise anything)
        logger.log(
            logging.DEBUG if quiet else logging.WARNING,
            "the compiled kernels do not load (%s): vse.pooling uses its plain torch path",
            error,
        )
        return False
    return True


def traced() -> bool:
    """Return whether torch records a graph that must run without this package (export, ONNX, ``torch.jit.trace``)."""
    return (
        torch.compiler.is_exporting()
        or torch.onnx.is_in_onnx_export()
        or (not torch.compiler.is_dynamo_compiling() and torch._C._is_tracing())  # Dynamo cannot follow the latter
    )


def compiled() -> bool:
    """Return whether torch is tracing, so that checks on values must be skipped."""
    return torch.compiler.is_compiling() or traced()


def usable_on(*tensors: torch.Tensor) -> bool:
    """Return whether the kernels can process these tensors in the current mode."""
    dtype = tensors[0].dtype
    return (
        dtype in (torch.float32, torch.float64)
        and all(tensor.is_cpu and tensor.dtype == dtype and type(tensor) in PLAIN_TENSORS for tensor in tensors)
        and not traced()
        and kernels_available()
    )
