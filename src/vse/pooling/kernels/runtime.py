"""Whether the compiled kernels can run here and now."""

from __future__ import annotations

import logging

import torch

logger = logging.getLogger(__name__)

PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
"""Subclasses (fake, sharded, quantised tensors) have no memory a kernel could read."""


_available: bool | None = None


def kernels_available() -> bool:
    """True where the kernels load; found out once, at the first call that could use them."""
    global _available
    if _available is None:
        _available = _try_kernels()
    return _available


def _try_kernels() -> bool:
    try:
        import numba
        import numpy as np

        from vse.pooling.kernels import bigru_scan, sorted_sum  # noqa: F401 (that they load is what is tried)

        if numba.config.DISABLE_JIT:
            return False
        one = np.ones((1, 2, 16), np.float32)  # and that the vector instructions can be compiled
        sorted_sum.sum_sorted(
            one, np.ones((1, 2), np.bool_), one[..., 0].copy(), np.empty((1, 16), np.float32), 16, 0, 1
        )
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        logger.debug("numba is not installed: vse.pooling uses its plain torch path")
        return False
    except Exception as error:  # noqa: BLE001 (a numba that fits neither numpy nor the disk raises whatever it likes)
        logger.warning("the compiled kernels do not load (%s): vse.pooling uses its plain torch path", error)
        return False
    return True


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
