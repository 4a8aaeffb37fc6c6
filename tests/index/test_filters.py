"""Boxes around places contain every near enough place, and are no larger than necessary."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.index.filters import EARTH_RADIUS, Box, Filter, box_around

latitudes, longitudes = st.floats(-90, 90), st.floats(-180, 180)
distances = st.floats(1e-3, 25_000)


def distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the distance in kilometres on the sphere, from the chord."""

    def point(place):
        north, east = map(math.radians, place)
        return math.cos(north) * math.cos(east), math.cos(north) * math.sin(east), math.sin(north)

    return 2 * EARTH_RADIUS * math.asin(min(1.0, math.dist(point(one), point(other)) / 2))


def inside(box: Box, latitude: float, longitude: float) -> bool:
    """Test membership as a collection does."""
    if box.west <= box.east:
        around = box.west <= longitude <= box.east
    else:
        around = longitude >= box.west or longitude <= box.east
    return box.south <= latitude <= box.north and around


@given(latitudes, longitudes, distances, latitudes, longitudes)
def test_place_filter_contains_the_circle(latitude, longitude, kilometres, north, east):
    """Every place within the distance, anywhere on the sphere, across the date line and at the poles."""
    assume(distance((latitude, longitude), (north, east)) < kilometres * 0.999 - 1e-4)
    assert inside(box_around(latitude, longitude, kilometres), north, east)


@given(latitudes, longitudes, distances, st.floats(0, 1), st.floats(0, 2 * math.pi))
def test_place_filter_contains_the_rim(latitude, longitude, kilometres, part, bearing):
    """The same for places generated from distance and bearing, which reach the rim of the circle."""
    reach = part * 0.999 * kilometres / EARTH_RADIUS
    north, east = math.radians(latitude), math.radians(longitude)
    there = math.asin(
        max(-1.0, min(1.0, math.sin(north) * math.cos(reach) + math.cos(north) * math.sin(reach) * math.cos(bearing)))
    )
    aside = math.atan2(
        math.sin(bearing) * math.sin(reach) * math.cos(north), math.cos(reach) - math.sin(north) * math.sin(there)
    )
    place = math.degrees(there), (math.degrees(east + aside) + 540) % 360 - 180
    assume(distance((latitude, longitude), place) < kilometres * 0.9995 - 1e-4)
    assert inside(box_around(latitude, longitude, kilometres), *place)


@given(st.floats(-80, 80), st.floats(-170, 170), st.floats(1, 500))
def test_no_more_room_than_needed(latitude, longitude, kilometres):
    """North and south end at the distance, and so do east and west where the box is tightest."""
    box = box_around(latitude, longitude, kilometres)
    assert distance((latitude, longitude), (box.north, longitude)) == pytest.approx(kilometres, rel=1e-6)
    assert distance((latitude, longitude), (box.south, longitude)) == pytest.approx(kilometres, rel=1e-6)
    meridian = [box.south + (box.north - box.south) * step / 2000 for step in range(2001)]
    for side in (box.west, box.east):
        nearest = min(distance((latitude, longitude), (north, side)) for north in meridian)
        assert nearest == pytest.approx(kilometres, rel=1e-3)


def test_place_filter_around_munich():
    """Ten kilometres around Munich are a box of 0.18 by 0.27 degrees."""
    box = box_around(48.137, 11.575, 10)
    assert (box.north - box.south, box.east - box.west) == (
        pytest.approx(0.1799, abs=1e-4),
        pytest.approx(0.2696, abs=1e-4),
    )


@pytest.mark.parametrize(
    ("place", "kilometres", "words"),
    [
        ((91.0, 0.0), 1.0, r"place 91\.0,0\.0"),
        ((0.0, -181.0), 1.0, r"place 0\.0,-181\.0"),
        ((math.nan, 0.0), 1.0, "place nan"),
        ((0.0, 0.0), 0.0, r"0\.0 km"),
        ((0.0, 0.0), math.nan, "nan km"),
    ],
)
def test_place_filter_names_invalid_place(place, kilometres, words):
    """The error quotes the value."""
    with pytest.raises(InputError, match=words):
        box_around(*place, kilometres)


@pytest.mark.parametrize(
    ("folder", "short"),
    [("", None), (".", None), ("/", None), ("a/..", None), ("a", "a"), ("./a//b/", "a/b"), ("/a", "a"), ("..a", "..a")],
)
def test_folder_filters_are_normalised(folder, short):
    """Equivalent folders give equal filters; the root itself is no filter."""
    assert Filter(folder=folder) == Filter(folder=short)
    assert Filter(folder=folder).folder == short
    assert Filter(folder=folder).empty == (short is None)
    assert not Filter(folder=folder, root="/photos").empty


@pytest.mark.parametrize("folder", ["..", "../a", "a/../../b", "/.."])
def test_a_folder_above_is_one_line(folder):
    """A folder outside the root is an error that quotes the value."""
    with pytest.raises(InputError, match=re.escape(repr(folder))):
        Filter(folder=folder)


def test_place_filter_beyond_the_earth():
    """A distance larger than the earth excludes nothing, and an empty filter is empty."""
    assert box_around(10.0, 20.0, math.inf) == Box(-90.0, -180.0, 90.0, 180.0)
    assert Filter().empty
    assert not Filter(within=box_around(0.0, 0.0, 1.0)).empty
