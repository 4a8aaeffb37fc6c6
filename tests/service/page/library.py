"""A library in which the words for a match, folders, missing files and file actions can be tested."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from tests.index.scan.support import exif_of, gps_of
from tests.service.page.colour_model import write_colour_model
from tests.service.page.support import Served, serving, vse, write_video

from vse.data.scenes.scene import PALETTE

SHARES = {"strong": 0.6, "good": 0.53, "weak": 0.47, "unlikely": 0.4}
"""How much of an image is red, the rest being green, for each relevance to "red"."""
ALBUMS = [f"albums/{number:02d} {name}" for number, name in enumerate(("beach", "city", "garden", "snow") * 4)]
PLACES = [gps_of((0, 13, 0), (78, 30, 0), ("S", "W"))] * 4 + [gps_of((40, 42, 46), (74, 0, 22), ("N", "W"))] * 2
"""Coordinates of the first albums: Quito and New York."""
CAMERAS = [("Canon", "EOS R6"), ("Google", "Pixel 9")]
TITLED, TITLE, KEYWORDS = "strong-03.jpg", "Aunt Mathilda", ("holiday", "first snow")
XMP = f"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:title><rdf:Alt><rdf:li xml:lang="x-default">{TITLE}</rdf:li></rdf:Alt></dc:title>
<dc:subject><rdf:Bag>{"".join(f"<rdf:li>{word}</rdf:li>" for word in KEYWORDS)}</rdf:Bag></dc:subject>
</rdf:Description></rdf:RDF></x:xmpmeta>"""
GONE = "gone.png"
CLIP = "signal.mp4"
FILE_MANAGER = """#!/bin/sh
echo "$1" > "$SHOWN"
"""


@dataclass(frozen=True)
class Library:
    """The folder of the images, its service, and the file that names what the file manager has shown."""

    photos: Path
    index: Path
    served: Served
    shown: Path


@contextmanager
def make_library(folder: Path) -> Iterator[Library]:
    """Sixteen albums with four images each, of which only "red" and "green" are known; a video; a file that is gone."""
    photos, shown, index = folder / "photos", folder / "shown", folder / "library.vse"
    for number, album in enumerate(ALBUMS):
        (photos / album).mkdir(parents=True)
        for name, share in SHARES.items():
            image = split(share + 0.0005 * number, (240, 160))
            path = photos / album / f"{name}-{number:02d}.jpg"
            xmp = {"xmp": XMP.encode()} if path.name == TITLED else {}
            image.save(path, quality=95, exif=notes(number), **xmp)
    split(0.9, (2000, 1500)).save(photos / "large.png")
    Image.new("RGB", (240, 160), PALETTE["red"]).save(photos / GONE)
    write_video(photos / CLIP, ("red", "blue", "red"))
    model = write_colour_model(folder / "model", graded=True)
    report = vse("index", photos, "--into", index, "--model", model)
    assert report["folders"][0]["problems"] == []
    (photos / GONE).unlink()
    program = folder / "bin" / "xdg-open"
    program.parent.mkdir()
    program.write_text(FILE_MANAGER)
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    with serving(index, PATH=path, DISPLAY=":9", SHOWN=str(shown)) as served:
        yield Library(photos, index, served, shown)


def notes(number: int) -> Image.Exif:
    """EXIF data of the images of an album: camera, date, and for some a place."""
    make, model = CAMERAS[number % 2]
    date = f"{2022 + number % 3}:0{1 + number % 2}:{1 + number:02d} 12:00:00"
    return exif_of({0x010F: make, 0x0110: model}, {0x9003: date}, PLACES[number] if number < len(PLACES) else None)


def split(share: float, size: tuple[int, int]) -> Image.Image:
    """An image whose left part is red and whose right part is green."""
    image = Image.new("RGB", size, PALETTE["green"])
    image.paste(PALETTE["red"], (0, 0, round(share * size[0]), size[1]))
    return image
