"""Feature files: ``.npy`` arrays of tens of gigabytes, mapped and never loaded."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from vse.errors import InputError

_DTYPES = (np.dtype(np.float32), np.dtype(np.float16))


def open_features(path: Path) -> np.memmap[Any, Any]:
    """Map the features ``(R, N, C)`` or ``(R, C)``, float32 or float16, of a ``.npy`` file.

    The header is read first: an object array is refused before anything could unpickle it, and a file that was cut off
    while copying is recognised by its size.
    """
    try:
        with path.open("rb") as file:
            shape, dtype = _read_header(file)
            start = file.tell()
        size = path.stat().st_size
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a .npy file ({reason}): save it with numpy.save") from error
    if dtype not in _DTYPES:
        raise InputError(f"{path} holds {dtype} values: expected float32 or float16, convert with array.astype")
    if len(shape) not in {2, 3}:
        raise InputError(f"{path} has shape {shape}: expected (images, regions, size) or (images, size)")
    if shape[0] == 0:
        raise InputError(f"{path} has shape {shape}: zero images, expected at least one")
    if 0 in shape:
        raise InputError(f"{path} has shape {shape}: expected at least one region and one value in each image")
    expected = start + math.prod(shape) * dtype.itemsize
    if size < expected:
        raise InputError(
            f"{path} is truncated: its header promises {expected} bytes, the file has {size}: copy or extract it again"
        )
    mapped: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _read_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy_format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = npy_format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = npy_format.read_array_header_2_0(file)
    else:  # written for arrays of records with non-Latin names alone
        raise ValueError(f"version {version} of the format, which arrays of numbers do not use")
    return shape, dtype
