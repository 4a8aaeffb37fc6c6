"""Open ``.npy`` files that somebody else may have written: nothing is unpickled, and malformed headers are one line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from vse.errors import InputError

LARGEST_SIDE = 2**40
_DTYPES = (np.dtype(np.float32), np.dtype(np.float16))


def open_features(path: Path) -> np.memmap[Any, Any]:
    """Map the features ``(R, N, C)`` or ``(R, C)``, float32 or float16, of a ``.npy`` file.

    The header is read first: an object array is refused before anything could unpickle it, and a truncated file is
    recognized by its size.
    """
    try:
        with path.open("rb") as file:
            shape, dtype = npy_header(file)
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


def npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type from the header of a ``.npy`` file; the file is then at the start of the data.

    Raises:
        ValueError: The header is malformed, however numpy reports that.
    """
    version = npy_format.read_magic(file)
    if version not in {(1, 0), (2, 0)}:  # others are used only for arrays of records with non-Latin names
        raise ValueError(f"version {version} of the format, which arrays of numbers do not use")
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    try:
        shape, _, dtype = read(file)
    except (MemoryError, RecursionError, SyntaxError, TypeError, KeyError):  # brackets nested thousands deep
        raise ValueError("its header cannot be parsed") from None
    if any(side < 0 or side > LARGEST_SIDE for side in shape):
        raise ValueError(f"its header has shape {str(shape)[:60]}")
    return shape, dtype


def map_array(path: Path) -> np.memmap[Any, Any]:
    """Map a ``.npy`` file of numbers.

    Raises:
        ValueError: It is malformed, truncated, or holds objects.
    """
    with path.open("rb") as file:
        shape, dtype = npy_header(file)
        if dtype.hasobject:
            raise ValueError("it holds objects")
        expected = file.tell() + math.prod(shape) * dtype.itemsize
    if path.stat().st_size < expected:
        raise ValueError(f"it is truncated, its header promises {expected} bytes")
    mapped: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped
