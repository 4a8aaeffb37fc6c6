"""Helpers for the scan tests: folders and EXIF."""

from __future__ import annotations

from PIL import Image

MAKE, EXIF, GPS = 0x010F, 0x8769, 0x8825


def make(root, *paths, content=b"x"):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


def paths_of(scan):
    return [found.path for found in scan]


def problems_of(scan):
    return {problem.path: problem.reason for problem in scan.problems}


def exif_of(first=None, camera=None, gps=None):
    exif = Image.Exif()
    exif.update({MAKE: "vse"} | (first or {}))  # Pillow drops EXIF with an empty first directory
    exif.get_ifd(EXIF).update(camera or {})
    exif.get_ifd(GPS).update(gps or {})
    return exif


def gps_of(latitude, longitude, references=("N", "E")):
    return {1: references[0], 2: latitude, 3: references[1], 4: longitude}
