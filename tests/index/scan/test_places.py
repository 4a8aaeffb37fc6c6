"""Names of places from coordinates, without a network."""

from __future__ import annotations

import pytest

from vse.index.scan.places import place_name


@pytest.mark.parametrize(
    ("latitude", "longitude", "name"),
    [
        (48.137, 11.575, "Munich, Bavaria, Germany"),
        (48.17, 11.585, "Munich, Bavaria, Germany"),  # a suburb
        (-0.22, -78.51, "Quito, Pichincha, Ecuador"),
        (40.72, -74.05, "Jersey City, New Jersey, United States"),  # not New York, which is in another state
        (47.974, 11.18, "Andechs, Bavaria, Germany"),
        (37.57, 126.98, "Seoul, South Korea"),
        (1.29, 103.85, "Singapore"),
        (40.0, -40.0, None),
        (-89.0, 0.0, None),
        (90.0, 180.0, None),
    ],
)
def test_place_name(latitude, longitude, name):
    assert place_name(latitude, longitude) == name


def test_far_from_cities_only_region_and_country():
    """68 km into the desert: the region of the nearest city, not the city."""
    assert place_name(26.5, 13.9) == "Murzuq District, Libya"


def test_both_sides_of_the_date_line_are_close():
    east, west = place_name(-16.8, 179.99), place_name(-16.8, -179.99)
    assert east == west
    assert east is not None
    assert east.endswith("Fiji")
