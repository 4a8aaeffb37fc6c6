"""What a file says about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """The size is that of the upright picture; the other fields are those of ``MediaFile``."""

    width: int
    height: int
    taken: float | None = None
    latitude: float | None = None
    longitude: float | None = None
    duration: float | None = None
