"""Some seconds of a clip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Window:
    """From ``start`` to ``end`` in seconds, with frames ``(H, W, 3)`` uint8 RGB, upright, in the order of time.

    ``times`` are the seconds of the clip at which the frames are seen.
    ``remark``, on the last window of a clip that could not be read to its end or in all its parts, says so.
    """

    start: float
    end: float
    frames: tuple[NDArray[np.uint8], ...]
    times: tuple[float, ...] = ()
    remark: str | None = None
