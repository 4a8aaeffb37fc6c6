"""Time and place from EXIF: correct if valid, absent if not, never an error."""

from __future__ import annotations

import calendar
import io
from datetime import datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from PIL.TiffImagePlugin import IFDRational
from tests.index.scan.support import exif_of, gps_of
from tests.inputs.pictures import encoded, gradient

from vse.index.scan.metadata import notes, picture_facts
from vse.index.scan.walk import ScanLimits

DATE, SUBSEC = 0x0132, 0x9290
ORIGINAL, SUBSEC_ORIGINAL = 0x9003, 0x9291
DIGITIZED, SUBSEC_DIGITIZED = 0x9004, 0x9292


def facts_of(**directories):
    """Read the metadata through a real file."""
    return picture_facts(encoded(gradient(), "JPEG", exif=exif_of(**directories)), "a.jpg", ScanLimits().image)


@given(st.datetimes(datetime(1000, 1, 1)), st.integers(0, 999))
def test_exif_dates(moment, milliseconds):
    """Any calendar date, including subseconds, as if in UTC."""
    text = moment.strftime("%Y:%m:%d %H:%M:%S")
    taken, _ = notes(exif_of(camera={ORIGINAL: text, SUBSEC_ORIGINAL: f"{milliseconds:03}"}))
    assert taken == pytest.approx(calendar.timegm(moment.timetuple()) + milliseconds / 1000, abs=1e-4)


def test_the_order_of_dates():
    """Original before digitized before modified, each with its subseconds; invalid dates are skipped."""
    first = {DATE: "2003:01:01 00:00:00"}
    camera = {SUBSEC: "75", DIGITIZED: "2002:01:01 00:00:00", SUBSEC_DIGITIZED: "5  "}
    original = {ORIGINAL: "2001:01:01 00:00:00", SUBSEC_ORIGINAL: "25"}

    def start(year):
        return calendar.timegm((year, 1, 1, 0, 0, 0))

    assert facts_of(first=first, camera=camera | original).taken == start(2001) + 0.25
    assert facts_of(first=first, camera=camera).taken == start(2002) + 0.5
    assert facts_of(first=first, camera={SUBSEC: "75"}).taken == start(2003) + 0.75
    assert facts_of(first=first, camera=camera | {ORIGINAL: "0000:00:00 00:00:00"}).taken == start(2002) + 0.5
    assert facts_of().taken is None


@pytest.mark.parametrize(
    "text",
    [
        "0000:00:00 00:00:00",
        "    :  :     :  :  ",
        "",
        "2020:13:01 00:00:00",
        "2021:02:29 10:00:00",
        "2020:01:01 25:00:00",
        "2020:01:01 00:61:00",
        "020:01:01 00:00:00",
        "2020:01:01",
        "yesterday",
        "\0\0\0",
        "9" * 50,
    ],
)
def test_invalid_exif_dates(text):
    assert notes(exif_of(camera={ORIGINAL: text})) == (None, None)


@pytest.mark.parametrize(
    "text", ["2020:05:06 07:08:09", "2020-05-06T07:08:09", "2020/05/06 07:08:09", "2020:05:06 07:08:09\0"]
)
def test_exif_date_separators(text):
    """Other separators are accepted."""
    assert notes(exif_of(camera={ORIGINAL: text}))[0] == calendar.timegm((2020, 5, 6, 7, 8, 9))


@given(
    st.integers(-90 * 3600 * 100, 90 * 3600 * 100),
    st.integers(-180 * 3600 * 100, 180 * 3600 * 100),
)
def test_exif_places(latitude, longitude):
    """Degrees, minutes and hundredths of seconds with their hemispheres, through a real file."""
    assume((latitude, longitude) != (0, 0))

    def parts(hundredths):
        degrees, rest = divmod(abs(hundredths), 360_000)
        minutes, seconds = divmod(rest, 6000)
        return (IFDRational(degrees, 1), IFDRational(minutes, 1), IFDRational(seconds, 100))

    references = ("S" if latitude < 0 else "N", "W" if longitude < 0 else "E")
    found = facts_of(gps=gps_of(parts(latitude), parts(longitude), references))
    assert found.latitude == pytest.approx(float(Fraction(latitude, 360_000)))
    assert found.longitude == pytest.approx(float(Fraction(longitude, 360_000)))


RATIONALS = st.builds(IFDRational, st.integers(-(2**31), 2**31), st.integers(-(2**31), 2**31))
ANYTHING = st.one_of(
    st.none(),
    st.text(max_size=30),
    st.binary(max_size=30),
    st.integers(),
    st.floats(),
    RATIONALS,
    st.lists(st.one_of(RATIONALS, st.floats(), st.text(max_size=3), st.none()), max_size=5).map(tuple),
)


@given(ANYTHING, ANYTHING, ANYTHING, ANYTHING, ANYTHING, ANYTHING)
def test_exif_of_any_values(reference_a, latitude, reference_b, longitude, date, fraction):
    """Any values give a valid result or none."""
    gps = {1: reference_a, 2: latitude, 3: reference_b, 4: longitude}
    taken, place = notes(exif_of({DATE: date}, {ORIGINAL: date, SUBSEC_ORIGINAL: fraction}, gps))
    assert taken is None or abs(taken) < 1e12
    assert place is None or (abs(place[0]) <= 90 and abs(place[1]) <= 180)


@given(ANYTHING, ANYTHING)
def test_exif_of_any_coordinates(latitude, longitude):
    """The same with valid hemispheres."""
    place = notes(exif_of(gps=gps_of(latitude, longitude)))[1]
    assert place is None or (0 <= place[0] <= 90 and 0 <= place[1] <= 180)


@pytest.mark.parametrize(
    "gps",
    [
        gps_of((IFDRational(91), 0, 0), (IFDRational(0), 0, 0)),
        gps_of((IFDRational(0), 0, 0), (IFDRational(181), 0, 0)),
        gps_of((IFDRational(0, 0), 0, 0), (IFDRational(5), 0, 0)),
        gps_of((0, 0, 0), (0, 0, 0)),
        gps_of((45, 0, 0), (9, 0, 0), ("", "E")),
        {2: (45, 0, 0), 4: (9, 0, 0)},
        {1: "N", 2: (45, 0, 0)},
    ],
)
def test_invalid_exif_places(gps):
    """Off the globe, 0/0, exactly (0, 0), without a hemisphere, or incomplete: no place."""
    assert notes(exif_of(gps=gps))[1] is None


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@given(st.binary(max_size=300))
def test_broken_exif_leaves_image_readable(content):
    """Noise in place of EXIF does not affect the image."""
    stream = io.BytesIO()
    Image.fromarray(gradient()).save(stream, "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0" + content)
    found = picture_facts(stream.getvalue(), "a.jpg", ScanLimits().image)
    assert {found.width, found.height} == {20, 12}


def test_time_does_not_depend_on_the_zone_of_the_machine(monkeypatch):
    """Local time is kept as it is."""
    import time

    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        taken, _ = notes(exif_of(camera={ORIGINAL: "2020:07:01 12:00:00"}))
        assert timedelta(seconds=taken) + datetime(1970, 1, 1) == datetime(2020, 7, 1, 12)
    monkeypatch.undo()
    time.tzset()
