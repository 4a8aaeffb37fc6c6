"""FAISS, loaded when it is needed; its type hints know less than it can."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def library() -> Any:
    """The module ``faiss``."""
    import faiss

    return faiss


def selector(allowed: NDArray[np.bool_] | None) -> Any:
    """What restricts a search to the rows that are True; None allows all."""
    return None if allowed is None else library().IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
