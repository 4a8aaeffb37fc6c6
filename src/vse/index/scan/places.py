"""Names of places from coordinates, offline: the nearest of 155,000 cities of GeoNames.

``cities.xz`` is made by ``tools/places.py`` from data of `GeoNames <https://www.geonames.org>`_, licensed under CC BY
4.0. It is read when the first coordinates are looked up, which takes about half a second.
"""

from __future__ import annotations

import lzma
import math
import threading
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

EARTH = 6371.0
"""Radius in km."""
IN_CITY = 25.0
"""Up to this distance in km from the nearest city, a place is named after a city."""
IN_REGION = 100.0
"""Up to this distance, it is named after the region of the nearest city; beyond, it has no name."""
_RADIUS = 0.008
"""Radius of a city in km, as a multiple of the square root of its population."""
_LARGEST_RADIUS = 12.0
_lock = threading.Lock()
_loaded: list[_Cities] = []


@dataclass(frozen=True)
class _Cities:
    names: list[str]
    regions: NDArray[np.int32]  # (N,), index into region_names
    region_names: list[tuple[str, str]]  # division, which may be empty, and country
    radii: NDArray[np.float64]  # (N,), km
    latitudes: NDArray[np.float64]  # (N,), ascending degrees
    points: NDArray[np.float64]  # (N, 3), unit vectors


@lru_cache(maxsize=65536)
def place_name(latitude: float, longitude: float) -> str | None:
    """Return the name of a place, like "Munich, Bavaria, Germany".

    The place belongs to the region of the nearest city. Within it, the largest city that extends to the place names it,
    so that a suburb has the name of its city; otherwise the nearest one does.

    Args:
        latitude: Degrees, north positive.
        longitude: Degrees, east positive.

    Returns:
        City, region and country; region and country alone beyond :data:`IN_CITY`; None beyond :data:`IN_REGION`.
    """
    cities = _cities()
    reach = math.degrees(IN_REGION / EARTH)
    band = slice(*np.searchsorted(cities.latitudes, (latitude - reach, latitude + reach)))
    here = _unit(np.array([latitude]), np.array([longitude]))
    chords = np.linalg.norm(cities.points[band] - here, axis=1)
    distances = 2 * EARTH * np.arcsin(np.minimum(chords / 2, 1))
    nearest = int(distances.argmin()) if len(distances) else -1
    if nearest < 0 or distances[nearest] > IN_REGION:
        return None
    regions = cities.regions[band]
    division, country = cities.region_names[regions[nearest]]
    if distances[nearest] > IN_CITY:
        return ", ".join(part for part in (division, country) if part)
    radii = cities.radii[band]
    around = np.flatnonzero((regions == regions[nearest]) & (distances <= radii))
    city = cities.names[band.start + max(around, key=lambda each: radii[each], default=nearest)]
    return ", ".join(dict.fromkeys(part for part in (city, division, country) if part))


def _cities() -> _Cities:
    with _lock:  # several threads describe files
        if not _loaded:
            _loaded.append(_load())
        return _loaded[0]


def _load() -> _Cities:
    text = lzma.decompress(files("vse.index.scan").joinpath("cities.xz").read_bytes()).decode()
    names: list[str] = []
    regions: list[int] = []
    region_names: list[tuple[str, str]] = []
    numbers: list[str] = []
    country = ""
    for line in text.split("\n"):
        if line[0] == "=":
            country = line[1:]
        elif line[0] == "-":
            region_names.append((line[1:], country))
        else:
            name, *rest = line.split("\t")
            names.append(name)
            numbers += rest
            regions.append(len(region_names) - 1)
    table = np.array(numbers, np.float64).reshape(-1, 3) / 100  # degrees, and ten thousands of people
    order = np.argsort(table[:, 0], kind="stable")
    table = table[order]
    return _Cities(
        [names[each] for each in order],
        np.array(regions, np.int32)[order],
        region_names,
        np.minimum(_RADIUS * np.sqrt(table[:, 2] * 10_000), _LARGEST_RADIUS),
        table[:, 0],
        _unit(table[:, 0], table[:, 1]),
    )


def _unit(latitude: NDArray[np.float64], longitude: NDArray[np.float64]) -> NDArray[np.float64]:
    phi, theta = np.radians(latitude), np.radians(longitude)
    return np.stack((np.cos(phi) * np.cos(theta), np.cos(phi) * np.sin(theta), np.sin(phi)), axis=1)
