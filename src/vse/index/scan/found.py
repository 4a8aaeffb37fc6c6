"""A file as a walk sees it, before it is opened."""

from __future__ import annotations

from dataclasses import dataclass

from vse.inputs.formats import MediaKind


@dataclass(frozen=True, slots=True)
class Found:
    """``path`` is the place below the root with ``/`` between its parts; ``kind`` is what its name promises.

    ``size`` is in bytes, ``modified_ns`` the time of the last change in nanoseconds since 1970.
    """

    path: str
    size: int
    modified_ns: int
    kind: MediaKind
