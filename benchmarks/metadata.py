"""What words and metadata cost: bytes per file, reading metadata again, and reading text in images.

    python benchmarks/metadata.py size --captions CAPTIONS.json        # a Karpathy JSON, for realistic descriptions
    python benchmarks/metadata.py update --photos DIR --count 1000     # read metadata again, against indexing
    python benchmarks/metadata.py ocr --photos DIR --count 30          # --ocr, against indexing

``size`` fills a collection with random vectors of 512 numbers. Each file has a name, a folder, a camera, a place, a
title of five words, a description (one caption) and three keywords. The same collection is then measured without its
word tables, and a second one has none of these texts. ``update`` and ``ocr`` copy the first photographs of a folder and
use the bundled model. Seed 0.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from vse.index.build import index_folders
from vse.index.store import EmbeddedCollection
from vse.index.types import Entry, MediaFile, Moment

DIMENSIONS, BLOCK = 512, 2000
CAMERAS = ("Canon EOS 80D", "Apple iPhone 12", "SONY ILCE-7M3", "NIKON D90", "Google Pixel 7")
PLACES = ("Munich, Bavaria, Germany", "Quito, Pichincha, Ecuador", "Paris, Île-de-France, France", "Tokyo, Japan")


def sizes(captions: Path, files: int) -> None:
    """Print the bytes of a collection with words, without them, and without any text."""
    images = json.loads(captions.read_text(encoding="utf-8"))["images"]
    texts = [sentence["raw"] for image in images if image["split"] == "train" for sentence in image["sentences"]]
    with tempfile.TemporaryDirectory() as folder:
        for described in (True, False):
            place = Path(folder) / f"{described}.vse"
            began = time.perf_counter()
            _fill(place, files, texts if described else [])
            took = time.perf_counter() - began
            print(f"{files:,} files, texts {described}: added in {took:.0f} s")
            (database,) = place.rglob("*.sqlite")
            with_words = _vacuumed(database)
            with sqlite3.connect(database) as connection:
                for name in ("words_added", "words_removed"):
                    connection.execute(f"DROP TRIGGER {name}")
                for name in ("word_index", "words"):
                    connection.execute(f"DROP TABLE {name}")
            connection.close()
            without = _vacuumed(database)
            _print("with words", with_words, files)
            _print("without words", without, files)
    _print("vectors alone", files * DIMENSIONS * 4, files)


def _print(name: str, size: int, files: int) -> None:
    print(f"  {name:14} {size / 1e6:8.1f} MB, {size / files:7.0f} bytes per file")


def _fill(place: Path, files: int, texts: list[str]) -> None:
    rng, chance = np.random.default_rng(0), random.Random(0)
    with EmbeddedCollection.create(place, model="none", model_source="none", dimensions=DIMENSIONS) as collection:
        for start in range(0, files, BLOCK):
            vectors = rng.standard_normal((min(BLOCK, files - start), DIMENSIONS)).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            entries = []
            for number, vector in enumerate(vectors, start):
                path = f"20{number % 25:02}/{number % 12 + 1:02}/IMG_{number:06}.jpg"
                file = MediaFile("/photos", path, "image", 4_000_000, number, f"{number:032x}", 4000, 3000)
                if texts:
                    caption = chance.choice(texts)
                    file = replace(
                        file,
                        camera=chance.choice(CAMERAS),
                        place=chance.choice(PLACES),
                        title=" ".join(chance.choice(texts).split()[:5]),
                        description=caption,
                        keywords=tuple(chance.sample(caption.split(), min(3, len(caption.split())))),
                        metadata_version=1,
                    )
                entries.append(Entry(file, (Moment(vector),)))
            collection.add(entries)


def _vacuumed(database: Path) -> int:
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return database.stat().st_size


def _copied(photos: Path, count: int, folder: str) -> Path:
    into = Path(folder) / "photos"
    into.mkdir()
    for path in sorted(photos.rglob("*.jpg"))[:count]:
        shutil.copy(path, into / path.name)
    return into


def updates(photos: Path, count: int) -> None:
    """Print the seconds per file of indexing, and of reading the metadata of indexed files again."""
    with tempfile.TemporaryDirectory() as folder:
        root, index = _copied(photos, count, folder), Path(folder) / "index.vse"
        (first,) = index_folders(root, index).reports
        with EmbeddedCollection.open(index, write=True) as collection:
            moves = [((file.root, file.path), replace(file, metadata_version=0)) for file in collection.files()]
            collection.move(moves)
        (again,) = index_folders(root, index).reports
        (nothing,) = index_folders(root, index).reports
    print(f"{first.new:,} photos indexed: {first.seconds:.1f} s, {1e3 * first.seconds / first.new:.1f} ms each")
    print(f"metadata of {again.touched:,} read again: {again.seconds:.2f} s, "
          f"{1e3 * again.seconds / again.touched:.2f} ms each")  # fmt: skip
    print(f"nothing to do: {nothing.seconds:.2f} s")


def texts_in_images(photos: Path, count: int) -> None:
    """Print the seconds per file of indexing, and of reading the text in the indexed images."""
    with tempfile.TemporaryDirectory() as folder:
        root, index = _copied(photos, count, folder), Path(folder) / "index.vse"
        (first,) = index_folders(root, index).reports
        (read,) = index_folders(root, index, ocr=True).reports
        with EmbeddedCollection.open(index) as collection:
            found = sum(bool(file.ocr) for file in collection.files())
    each, more = first.seconds / first.new, read.seconds / read.ocr
    print(f"{first.new} photos indexed: {each:.3f} s each; their text read: {more:.3f} s each, {more / each:.0f} times")
    print(f"text found in {found}")


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("size", "update", "ocr"))
    parser.add_argument("--captions", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--count", type=int, default=30)
    given = parser.parse_args()
    if given.part == "size":
        sizes(given.captions, given.files)
    elif given.part == "update":
        updates(given.photos, given.count)
    else:
        texts_in_images(given.photos, given.count)


if __name__ == "__main__":
    main()
