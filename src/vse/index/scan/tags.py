"""What metadata says in words: IPTC records and XMP packets, from strangers.

Lengths and counts are bounded, XML has no document type and so no entities, and nothing here raises: what is malformed
is left out, and what came before it counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any
from xml.parsers import expat

MAX_TITLE, MAX_DESCRIPTION, MAX_KEYWORD, MAX_NAME = 500, 5000, 100, 200
"""Characters that are kept."""
MAX_KEYWORDS = 200
MAX_XMP = 4_000_000
"""Bytes; a larger packet is ignored."""
_MAX_ELEMENTS, _MAX_DEPTH, _MAX_DATASETS = 100_000, 64, 10_000
# What cameras write where nobody has written a description.
_NO_DESCRIPTION = frozenset(
    (
        "olympus digital camera", "minolta digital camera", "konica minolta digital camera", "digital camera",
        "sony dsc", "dcim", "dcfc", "samsung", "maker:0x4c", "exif_jpeg_picture", "untitled", "default",
        "image description",
    )
)  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]+")


@dataclass(frozen=True)
class Tags:
    """Metadata of a file from one source or several; the fields are those of ``MediaFile``."""

    taken: float | None = None
    latitude: float | None = None
    longitude: float | None = None
    camera: str | None = None
    place: str | None = None
    title: str | None = None
    description: str | None = None
    keywords: tuple[str, ...] = ()


def merged(sources: Iterable[Tags]) -> Tags:
    """Return one record: the first source that has a field decides, coordinates together; keywords are united."""
    known = [source for source in sources if source != Tags()]
    located = next((source for source in known if source.latitude is not None), Tags())
    values: dict[str, Any] = {}
    for field in fields(Tags):
        found = (getattr(source, field.name) for source in known)
        values[field.name] = next((value for value in found if value is not None), None)
    values["latitude"], values["longitude"] = located.latitude, located.longitude
    values["keywords"] = unique(word for source in known for word in source.keywords)
    return Tags(**values)


def clean(value: object, limit: int) -> str | None:
    """Return a text on one line, without control characters, cut to ``limit`` characters; None if nothing is left."""
    if not isinstance(value, str):
        return None
    text = value[: 4 * limit].encode("utf-8", "replace").decode()
    return " ".join(_CONTROL.sub(" ", text).split())[:limit].rstrip() or None


def description_of(value: object) -> str | None:
    """Return a description; None for what cameras write by themselves."""
    text = clean(value, MAX_DESCRIPTION)
    return None if text is None or text.lower() in _NO_DESCRIPTION else text


def unique(words: Iterable[object]) -> tuple[str, ...]:
    """Return the distinct keywords, cleaned, up to :data:`MAX_KEYWORDS`."""
    found: dict[str, str] = {}
    for word in words:
        text = clean(word, MAX_KEYWORD)
        if text is not None:
            found.setdefault(text.casefold(), text)
            if len(found) == MAX_KEYWORDS:
                break
    return tuple(found.values())


def place_of_parts(*parts: str | None) -> str | None:
    """Return "Location, City, State, Country" of those that are known."""
    known = (clean(part, MAX_NAME) for part in parts)
    return ", ".join(dict.fromkeys(part for part in known if part)) or None


def camera_of(make: object, model: object) -> str | None:
    """Return make and model, the make only once and without what a company is: "NIKON D90", "SONY ILCE-7M3"."""
    maker, name = clean(make, MAX_NAME) or "", clean(model, MAX_NAME) or ""
    words = maker.split()
    while len(words) > 1 and words[-1].lower().strip(".,") in _COMPANY:
        words.pop()
    if not name or not words or name.lower().startswith(words[0].lower()):
        return name or " ".join(words) or None
    return f"{' '.join(words)} {name}"


_COMPANY = frozenset(
    ("co", "co.,ltd", "company", "corp", "corporation", "electronics", "gmbh", "imaging", "inc", "limited", "ltd",
     "optical", "photo", "technologies")
)  # fmt: skip


def local_time(value: object) -> float | None:
    """Parse ISO 8601 into seconds since 1970 as if in UTC; the time zone is dropped, as in ``MediaFile.taken``."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.strip()[:40]).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


_UTF8 = b"\x1b%G"
_TITLE, _HEADLINE, _CAPTION, _KEYWORD, _SPOT, _CITY, _STATE, _COUNTRY = 5, 105, 120, 25, 92, 90, 95, 101


def iptc_tags(record: bytes) -> Tags:
    """Read the application record of IPTC-IIM; text is UTF-8 where it says so or is valid as such, else Latin-1."""
    found: dict[int, list[bytes]] = {}
    marked = False
    for kind, dataset, value in _datasets(record):
        if (kind, dataset) == (1, 90):
            marked = value == _UTF8
        elif kind == 2 and len(values := found.setdefault(dataset, [])) < MAX_KEYWORDS:
            values.append(value)

    def texts(dataset: int) -> list[str]:
        return [_decoded(value, marked) for value in found.get(dataset, ())]

    def first(*datasets: int) -> str | None:
        return next((text for each in datasets for text in texts(each) if text.strip()), None)

    return Tags(
        place=place_of_parts(*(first(part) for part in (_SPOT, _CITY, _STATE, _COUNTRY))),
        title=clean(first(_TITLE, _HEADLINE), MAX_TITLE),
        description=description_of(first(_CAPTION)),
        keywords=unique(texts(_KEYWORD)),
    )


def _datasets(record: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield record, dataset and value, up to the first that is truncated or malformed."""
    at = 0
    for _ in range(_MAX_DATASETS):
        if at + 5 > len(record) or record[at] != 0x1C:
            return
        kind, dataset, length = record[at + 1], record[at + 2], int.from_bytes(record[at + 3 : at + 5])
        at += 5
        if length & 0x8000:  # the length follows, in so many bytes
            width = length & 0x7FFF
            if width > 4:
                return
            length = int.from_bytes(record[at : at + width])
            at += width
        if at + length > len(record):
            return
        yield kind, dataset, record[at : at + length]
        at += length


def _decoded(value: bytes, marked: bool) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("utf-8", "replace") if marked else value.decode("latin-1")


def iptc_record(resources: bytes) -> bytes:
    """Return the IPTC record among Photoshop's image resources, as TIFF stores them; empty if there is none."""
    at = 0
    for _ in range(_MAX_DATASETS):
        if resources[at : at + 4] != b"8BIM" or at + 12 > len(resources):
            return b""
        code = int.from_bytes(resources[at + 4 : at + 6])
        name = 1 + resources[at + 6]
        at += 6 + name + name % 2
        length = int.from_bytes(resources[at : at + 4])
        at += 4
        if code == 0x0404:
            return resources[at : at + length]
        at += length + length % 2
    return b""


_RDF, _XML = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://www.w3.org/XML/1998/namespace"
_DC, _EXIF, _TIFF = "http://purl.org/dc/elements/1.1/", "http://ns.adobe.com/exif/1.0/", "http://ns.adobe.com/tiff/1.0/"
_PHOTOSHOP, _IPTC = "http://ns.adobe.com/photoshop/1.0/", "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/"
_PROPERTIES = {
    f"{_DC} title": "title",
    f"{_PHOTOSHOP} Headline": "headline",
    f"{_DC} description": "description",
    f"{_DC} subject": "keyword",
    "http://ns.adobe.com/lightroom/1.0/ hierarchicalSubject": "hierarchy",
    "http://www.digikam.org/ns/1.0/ TagsList": "tags",
    "http://iptc.org/std/Iptc4xmpExt/2008-02-29/ PersonInImage": "keyword",
    "http://www.metadataworkinggroup.com/schemas/regions/ Name": "keyword",
    f"{_IPTC} Location": "spot",
    f"{_PHOTOSHOP} City": "city",
    f"{_PHOTOSHOP} State": "state",
    f"{_PHOTOSHOP} Country": "country",
    f"{_EXIF} DateTimeOriginal": "taken",
    f"{_PHOTOSHOP} DateCreated": "created",
    f"{_EXIF} GPSLatitude": "latitude",
    f"{_EXIF} GPSLongitude": "longitude",
    f"{_TIFF} Make": "make",
    f"{_TIFF} Model": "model",
}
_NUMBER = r"(\d{1,2}(?:\.\d{1,12})?)"
_COORDINATE = re.compile(rf"(\d{{1,3}}),{_NUMBER}(?:,{_NUMBER})?([NSEW])")


def xmp_tags(packet: bytes) -> Tags:
    """Read an XMP packet or file; the properties of Dublin Core, IPTC, Photoshop, Lightroom, digiKam and EXIF."""
    if len(packet) > MAX_XMP:
        return Tags()
    found = _Properties(packet).found

    def first(*names: str) -> str | None:
        return next((text for name in names for text in found.get(name, ())), None)

    separators = {"hierarchy": "|", "tags": "/"}
    levels = [part for name, mark in separators.items() for path in found.get(name, ()) for part in path.split(mark)]
    latitude = _coordinate(first("latitude"), "NS", 90)
    longitude = _coordinate(first("longitude"), "EW", 180)
    located = latitude is not None and longitude is not None and (latitude, longitude) != (0, 0)
    return Tags(
        taken=local_time(first("taken", "created")),
        latitude=latitude if located else None,
        longitude=longitude if located else None,
        camera=camera_of(first("make"), first("model")),
        place=place_of_parts(first("spot"), first("city"), first("state"), first("country")),
        title=clean(first("title", "headline"), MAX_TITLE),
        description=description_of(first("description")),
        keywords=unique([*found.get("keyword", ()), *levels]),
    )


class _Properties:
    """The texts of the properties in a packet, by our names for them; the default language comes first."""

    def __init__(self, packet: bytes) -> None:
        self.found: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._text, self._length, self._elements, self._default = [""], 0, 0, False
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._refuse
        try:
            parser.Parse(packet.strip(b"\0 \t\r\n"), True)
        except (expat.ExpatError, _RefusedError, ValueError, LookupError):  # an unknown encoding is a LookupError
            return

    def _refuse(self, *_: object) -> None:
        self.found.clear()
        raise _RefusedError

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > _MAX_ELEMENTS or len(self._open) == _MAX_DEPTH:
            raise _RefusedError
        self._open.append(name)
        self._text, self._length = [], 0
        self._default = attributes.get(f"{_XML} lang") == "x-default"
        for each, value in attributes.items():
            self._add(each, value)

    def _characters(self, text: str) -> None:
        if self._length < MAX_DESCRIPTION:
            self._text.append(text)
            self._length += len(text)

    def _end(self, name: str) -> None:
        self._open.pop()
        text = "".join(self._text).strip()
        self._text, self._length = [], 0
        if name == f"{_RDF} li":  # in a list, in the property
            name = next((each for each in reversed(self._open) if not each.startswith(_RDF)), "")
        self._add(name, text)

    def _add(self, name: str, text: str) -> None:
        values = self.found.setdefault(_PROPERTIES[name], []) if name in _PROPERTIES and text else None
        if values is not None and len(values) < MAX_KEYWORDS:
            values.insert(0 if self._default else len(values), text)


class _RefusedError(Exception):
    """Raised inside the parser to end it."""


def _coordinate(text: str | None, signs: str, largest: int) -> float | None:
    """Parse the coordinates of XMP: ``48,8.2250N``, or ``48,8,13N``."""
    match = _COORDINATE.fullmatch((text or "").strip())
    if match is None or match[4] not in signs:
        return None
    total = float(match[1]) + float(match[2]) / 60 + float(match[3] or 0) / 3600
    if total > largest:
        return None
    return -total if match[4] == signs[1] and total else total
