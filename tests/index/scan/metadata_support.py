"""Write metadata into real files: IPTC records, XMP packets, Takeout sidecars."""

from __future__ import annotations

import json
import struct

from PIL import Image

RDF = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
NAMES = " ".join(
    f'xmlns:{name}="{uri}"'
    for name, uri in {
        "dc": "http://purl.org/dc/elements/1.1/",
        "lr": "http://ns.adobe.com/lightroom/1.0/",
        "photoshop": "http://ns.adobe.com/photoshop/1.0/",
        "Iptc4xmpCore": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
        "exif": "http://ns.adobe.com/exif/1.0/",
        "tiff": "http://ns.adobe.com/tiff/1.0/",
        "digiKam": "http://www.digikam.org/ns/1.0/",
    }.items()
)


def xmp(body: str = "", attributes: str = "", before: str = "") -> bytes:
    """Return a packet with these properties, as elements and as attributes."""
    packet = (
        f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF {RDF}><rdf:Description {NAMES} {attributes}>{body}'
        "</rdf:Description></rdf:RDF></x:xmpmeta>"
    )
    return f'{before}<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>{packet}<?xpacket end="w"?>'.encode()


def alt(name: str, text: str) -> str:
    return f'<{name}><rdf:Alt><rdf:li xml:lang="x-default">{text}</rdf:li></rdf:Alt></{name}>'


def bag(name: str, *texts: str) -> str:
    return f"<{name}><rdf:Bag>{''.join(f'<rdf:li>{text}</rdf:li>' for text in texts)}</rdf:Bag></{name}>"


def titled(title: str, *keywords: str) -> bytes:
    """Return a packet with a title and keywords."""
    return xmp(alt("dc:title", title) + bag("dc:subject", *keywords))


def dataset(record: int, number: int, value: bytes) -> bytes:
    return struct.pack(">BBBH", 0x1C, record, number, len(value)) + value


def iptc(*fields: tuple[int, bytes], utf8: bool = False) -> bytes:
    """Return an IPTC record with these datasets of record 2."""
    marker = dataset(1, 90, b"\x1b%G") if utf8 else b""
    return marker + b"".join(dataset(2, number, value) for number, value in fields)


def photoshop(record: bytes) -> bytes:
    """Return the record as an image resource of Photoshop."""
    padded = record + b"\0" * (len(record) % 2)
    return b"8BIM\x04\x04\0\0" + struct.pack(">I", len(record)) + padded


def with_app13(jpeg: bytes, record: bytes) -> bytes:
    """Return a JPEG file with an IPTC record in its segment APP13."""
    body = b"Photoshop 3.0\0" + photoshop(record)
    return jpeg[:2] + b"\xff\xed" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]


def camera_exif(**tags: object) -> Image.Exif:
    exif = Image.Exif()
    names = {"make": 0x010F, "model": 0x0110, "description": 0x010E, "title": 0x9C9B, "keywords": 0x9C9E}
    exif.update({names[name]: value for name, value in tags.items()})
    return exif


def takeout(**values: object) -> str:
    return json.dumps(values)
