"""EXIF, IPTC and XMP of real files in words; hostile metadata never rejects an image."""

from __future__ import annotations

import calendar
import io

import numpy as np
import pillow_heif
import pytest
from PIL import Image, TiffImagePlugin
from tests.index.scan.metadata_support import (
    alt,
    bag,
    camera_exif,
    dataset,
    iptc,
    photoshop,
    titled,
    with_app13,
    xmp,
)

from vse.index.scan import ScanLimits
from vse.index.scan.metadata import picture_facts
from vse.index.scan.tags import (
    MAX_DESCRIPTION,
    MAX_KEYWORD,
    MAX_KEYWORDS,
    MAX_TITLE,
    Tags,
    camera_of,
    iptc_tags,
    merged,
    xmp_tags,
)

PICTURE = Image.fromarray(np.full((12, 20, 3), 90, np.uint8))


def saved(file_format, **options):
    stream = io.BytesIO()
    PICTURE.save(stream, file_format, **options)
    return stream.getvalue()


def facts(content):
    return picture_facts(content, "a", ScanLimits().image)


@pytest.mark.parametrize(
    ("make", "model", "camera"),
    [
        ("Canon", "Canon EOS 80D", "Canon EOS 80D"),
        ("NIKON CORPORATION", "NIKON D90", "NIKON D90"),
        ("SONY", "ILCE-7M3", "SONY ILCE-7M3"),
        ("OLYMPUS IMAGING CORP.", "E-M10", "OLYMPUS E-M10"),
        ("Apple", "iPhone 12", "Apple iPhone 12"),
        ("samsung\0", " SM-G991B\0\0", "samsung SM-G991B"),
        ("Canon", None, "Canon"),
        (None, "X100", "X100"),
        ("", " ", None),
        (b"Canon", 5, None),
    ],
)
def test_camera_names_make_once(make, model, camera):
    assert camera_of(make, model) == camera


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_camera_comes_from_exif(file_format):
    content = saved(file_format, exif=camera_exif(make="Canon", model="Canon EOS 80D"))
    assert facts(content).camera == "Canon EOS 80D"


def test_windows_properties_are_read():
    """XPTitle and XPKeywords are UTF-16; what a camera writes as description is ignored."""
    exif = camera_exif(
        title="Café\0".encode("utf-16-le"),
        keywords="Meer; Strand;Meer\0".encode("utf-16-le"),
        description="OLYMPUS DIGITAL CAMERA",
    )
    found = facts(saved("JPEG", exif=exif))
    assert (found.title, found.keywords, found.description) == ("Café", ("Meer", "Strand"), None)


XMP = xmp(
    alt("dc:title", "Aunt Mathilda")
    + "<dc:description><rdf:Alt><rdf:li xml:lang='de'>auf dem Markt</rdf:li>"
    + "<rdf:li xml:lang='x-default'>at the market</rdf:li></rdf:Alt></dc:description>"
    + bag("dc:subject", "family", "market")
    + bag("lr:hierarchicalSubject", "Places|Ecuador|Quito", "family")
    + bag("digiKam:TagsList", "People/Mathilda")
    + "<Iptc4xmpCore:Location>Old Town</Iptc4xmpCore:Location>",
    attributes='photoshop:City="Quito" photoshop:State="Pichincha" photoshop:Country="Ecuador"',
)


def written(file_format):
    if file_format == "HEIF":
        stream = io.BytesIO()
        pillow_heif.from_pillow(PICTURE).save(stream, xmp=XMP)
        return stream.getvalue()
    if file_format == "TIFF":
        tags = TiffImagePlugin.ImageFileDirectory_v2()
        tags[700] = XMP
        tags.tagtype[700] = 1
        return saved("TIFF", tiffinfo=tags)
    if file_format == "PNG":
        from PIL.PngImagePlugin import PngInfo

        info = PngInfo()
        info.add_itxt("XML:com.adobe.xmp", XMP.decode())
        return saved("PNG", pnginfo=info)
    return saved(file_format, xmp=XMP)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF", "HEIF", "AVIF"])
def test_xmp_of_every_format(file_format):
    """Title, description in the default language, keywords with their levels, and place names."""
    found = facts(written(file_format))
    assert (found.title, found.description) == ("Aunt Mathilda", "at the market")
    assert found.keywords == ("family", "market", "Places", "Ecuador", "Quito", "People", "Mathilda")
    assert found.place == "Old Town, Quito, Pichincha, Ecuador"


def test_xmp_date_and_coordinates_count_without_exif():
    """EXIF's own date wins over the packet inside the same file."""
    packet = xmp(attributes='exif:DateTimeOriginal="2021-05-06T07:08:09+02:00" exif:GPSLatitude="0,13.2S" '
                 'exif:GPSLongitude="78,30,36W"')  # fmt: skip
    found = facts(saved("JPEG", xmp=packet))
    assert found.taken == calendar.timegm((2021, 5, 6, 7, 8, 9))
    assert (found.latitude, found.longitude) == (pytest.approx(-0.22), pytest.approx(-78.51))
    exif = Image.Exif()
    exif[0x0132] = "2020:01:02 03:04:05"
    assert facts(saved("JPEG", xmp=packet, exif=exif)).taken == calendar.timegm((2020, 1, 2, 3, 4, 5))


RECORD = ((5, b"Besuch"), (120, "Mathilda in München".encode()), (25, b"family"), (25, b"visit"), (90, b"Quito"),
          (101, b"Ecuador"))  # fmt: skip


def test_iptc_of_jpeg():
    found = facts(with_app13(saved("JPEG"), iptc(*RECORD, utf8=True)))
    assert (found.title, found.description) == ("Besuch", "Mathilda in München")
    assert (found.keywords, found.place) == (("family", "visit"), "Quito, Ecuador")


@pytest.mark.parametrize(("tag", "kind"), [(33723, 7), (34377, 1)])
def test_iptc_of_tiff(tag, kind):
    """In its own tag, and among the image resources of Photoshop."""
    record = iptc(*RECORD)
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[tag] = photoshop(record) if tag == 34377 else record
    tags.tagtype[tag] = kind
    found = facts(saved("TIFF", tiffinfo=tags))
    assert (found.title, found.keywords) == ("Besuch", ("family", "visit"))


@pytest.mark.parametrize(
    ("value", "utf8", "text"),
    [
        ("Köln".encode(), True, "Köln"),
        ("Köln".encode(), False, "Köln"),
        ("Köln".encode("latin-1"), False, "Köln"),
        (b"K\xf6ln", True, "K�ln"),
    ],
)
def test_iptc_text_encodings(value, utf8, text):
    assert iptc_tags(iptc((5, value), utf8=utf8)).title == text


@pytest.mark.parametrize("end", [1, 4, 6, 9, 20])
def test_truncated_iptc_keeps_what_came_before(end):
    whole = iptc((5, b"title"), (25, b"dog"))
    found = iptc_tags(whole[:end])
    assert found in (Tags(), Tags(title="title"), Tags(title="title", keywords=("dog",)))
    assert facts(with_app13(saved("JPEG"), whole[:end])).width == 20


@pytest.mark.parametrize(
    "record",
    [
        b"\x1c\x02\x05\xff\xff",
        b"\x1c\x02\x05\x80\x04\xff\xff\xff\xff" + b"x" * 10,
        b"\x1c\x02\x05\x80\x08" + b"\xff" * 20,
        b"\x1c" * 50_000,
        dataset(2, 25, b"") * 20_000,
    ],
)
def test_malformed_iptc_is_ignored(record):
    assert iptc_tags(record) == Tags()


LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {new} "{f"&{old};" * 10}">' for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
LAUGHING = f"{LAUGHS}]>" + xmp(alt("dc:title", "&i;")).decode().partition("?>")[2]


@pytest.mark.parametrize(
    "packet",
    [
        LAUGHING.encode(),
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd">' + titled("a"),
        titled("x" * 10_000_000),
        b"<a>" * 100_000,
        b"",
        b"\0" * 100,
        b"not xml",
        b'<?xml version="1.0" encoding="no-such-code"?><a/>',
        b"\xff\xfe<\0a\0",
    ],
    ids=["billion laughs", "external", "10 MB", "deep", "empty", "nul", "text", "encoding", "utf-16"],
)
def test_hostile_xmp_is_ignored(packet):
    """Entities are never expanded, and an image with such a packet is described all the same."""
    assert xmp_tags(packet) == Tags()
    if packet and len(packet) < 60_000:
        assert facts(saved("JPEG", xmp=packet)).title is None
    if packet:
        assert facts(saved("WEBP", xmp=packet)).width == 20


def test_truncated_xmp_keeps_what_came_before():
    packet = titled("kept", *(f"word{number}" for number in range(50)))
    found = xmp_tags(packet[: len(packet) // 2])
    assert found.title == "kept"
    assert 0 < len(found.keywords) < 50


def test_lengths_and_counts_are_bounded():
    many = bag("dc:subject", *(f"{number:04}" * 100 for number in range(1000)))
    found = xmp_tags(xmp(alt("dc:title", "t" * 9000) + alt("dc:description", "d" * 90_000) + many))
    assert (len(found.title), len(found.description)) == (MAX_TITLE, MAX_DESCRIPTION)
    assert len(found.keywords) == MAX_KEYWORDS
    assert {len(word) for word in found.keywords} == {MAX_KEYWORD}


def test_texts_can_be_stored():
    """Control characters become blanks, and what is not Unicode is replaced."""
    found = iptc_tags(iptc((5, b"a\0b\x07\r\n c"), (120, b"\xed\xa0\x80"), (25, b" \0 ")))
    assert (found.title, found.keywords) == ("a b c", ())
    assert found.description.encode()


def test_first_source_decides_and_keywords_are_united():
    first = Tags(title="a", keywords=("x",), latitude=1.0, longitude=2.0)
    second = Tags(title="b", description="c", keywords=("X", "y"), latitude=3.0, longitude=4.0)
    assert merged((Tags(), first, second)) == Tags(
        title="a", description="c", keywords=("x", "y"), latitude=1.0, longitude=2.0
    )
