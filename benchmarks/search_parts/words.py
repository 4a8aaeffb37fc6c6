"""Compare fused search (words and embeddings) with search by embedding alone, through the same collection, in turns.

The collection holds ``word_rows`` files, each with one random unit vector of 512 dimensions (an exhaustive search takes
equally long for any), one real caption of those that :mod:`caption_vectors` reads, and the name, folder, camera and
place of a photo library. Both contestants are ``search_encoded(collection, query, 20)``; the query of one has a text:

- none: words of no file;
- name: the number of one file, as in "IMG_004711";
- word: one word of a held-out caption that many files hold;
- sentence: a whole held-out caption.

The encoding of the text is not part of either. The size is that of the database after ``VACUUM``, with the tables of
words and without; embeddings are in it, and are given beside.

Options: ``into``, ``word_rows``, ``queries`` (for each kind).
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from search_parts.caption_vectors import DATA, read_captions
from search_parts.exact import alone, compared, directions, in_turns

BATCH, DIMENSIONS, K, SEED = 4096, 512, 20, 0
CAMERAS = ("Canon EOS 80D", "Apple iPhone 12", "Google Pixel 6", "SONY ILCE-7M3", "NIKON D750")
PLACES = ("Quito, Pichincha, Ecuador", "Munich, Bavaria, Germany", "Ghent, Flanders, Belgium", "Porto, Portugal", "")
TABLES = ("TRIGGER words_added", "TRIGGER words_removed", "TABLE word_index", "TABLE words")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return latencies of both for each kind of text, and the bytes of the database."""
    if not (DATA / "flickr8k").exists():
        raise SystemExit(f"{DATA} holds no captions: set VSE_DATA")
    rows = options.word_rows
    place = options.into / f"words-{rows}"
    if not place.exists():
        alone(make, place, rows)
    return {
        "rows": rows,
        "dimensions": DIMENSIONS,
        "queries": options.queries,
        "vector_bytes": rows * DIMENSIONS * 4,
        "kinds": alone(latencies, place, rows, options.queries),
        "bytes": {"with words": size(place, TABLES[:0]), "without": size(place, TABLES)},
    }


def lines(result: dict[str, Any]) -> list[str]:
    """Return a Markdown table with a row for each kind of text, then the size."""
    table = [
        f"| top-{K} of {result['rows']:,} × {result['dimensions']} | by embedding | fused | ratio | files by words |",
        "|---|---|---|---|---|",
    ]
    for kind, found in result["kinds"].items():
        low, high = found["range"]
        table.append(
            f"| {kind} | {1e3 * found['plain']:.1f} ms | {1e3 * found['fused']:.1f} ms | "
            f"{found['ratio']:.2f}× ({low:.2f}–{high:.2f}), processor {found['processor_ratio']:.2f}× | "
            f"{found['files']:,.0f} |"
        )
    sizes, vectors = result["bytes"], result["vector_bytes"]
    return [
        *table,
        "",
        f"{result['queries']} queries of each kind, in turns; medians, and the range of the middle half of the ratios. "
        f"Database: {sizes['with words'] / 1e6:,.1f} MB with words, {sizes['without'] / 1e6:,.1f} MB without "
        f"({sizes['with words'] / sizes['without']:.3f}×); {vectors / 1e6:,.1f} MB of it are embeddings.",
    ]


def texts(rows: int) -> tuple[list[str], list[str]]:
    """Return the captions of the files, and those held out for queries, in a fixed random order."""
    captions = read_captions(DATA)
    random.Random(SEED).shuffle(captions)
    return captions[:rows], captions[rows : rows + 10_000]


def make(place: Path, rows: int) -> None:
    """Create the collection; it gets its name when it is complete."""
    from vse.index.store import EmbeddedCollection
    from vse.index.types import Entry, MediaFile, Moment

    captions, _ = texts(rows)
    beside = place.with_name(place.name + "-new")
    shutil.rmtree(beside, ignore_errors=True)
    about = {"model": "random", "model_source": "none", "dimensions": DIMENSIONS}
    with EmbeddedCollection.create(beside, **about) as collection:
        for start in range(0, rows, BATCH):
            vectors = directions(min(BATCH, rows - start), DIMENSIONS, seed=1 + start)
            entries = []
            for row, vector in enumerate(vectors, start):
                path = f"{2005 + row % 20}/{row % 12 + 1:02}/IMG_{row:06}.jpg"
                file = MediaFile(
                    "/photographs", path, "image", 1, row, path, 640, 480, captions=(captions[row],),
                    camera=CAMERAS[row % 5], place=PLACES[row // 7 % 5] or None,
                )  # fmt: skip
                entries.append(Entry(file, (Moment(vector),)))
            collection.add(entries)
            print(f"{start + len(entries):,} of {rows:,} files added", file=sys.stderr)
    beside.replace(place)


def latencies(place: Path, rows: int, count: int) -> dict[str, Any]:
    """Return seconds of both for each kind of text, in turns."""
    from vse.index.fusion import search_words
    from vse.index.item_search import search_encoded
    from vse.index.query import QueryVector
    from vse.index.store import EmbeddedCollection
    from vse.index.words import content_words

    _, held = texts(rows)
    draw = random.Random(SEED)
    found = {}
    with EmbeddedCollection.open(place) as collection:
        counts = collection.word_counts(sorted({word for text in held[:2000] for word in content_words(text)}))
        frequent = sorted(word for word, files in counts.items() if rows / 200 <= files <= rows / 20)
        kinds = {
            "words of no file": [f"zyx{number} qwv{number}" for number in range(count)],
            "name of one file": [f"IMG_{draw.randrange(rows):06}" for _ in range(count)],
            "a word of many files": [draw.choice(frequent) for _ in range(count)],
            "a sentence": held[:count],
        }
        for kind, given in kinds.items():
            times, files = [], []
            for number, (text, vector) in enumerate(zip(given, directions(count, DIMENSIONS, seed=7), strict=True)):
                plain, fused = QueryVector(vector, text), QueryVector(vector, text, words_only=True, texts=(text,))
                if not number:  # warm
                    search_encoded(collection, plain, K), search_encoded(collection, fused, K)
                runs = {
                    "plain": partial(search_encoded, collection, plain, K),
                    "fused": partial(search_encoded, collection, fused, K),
                }
                times.append(in_turns(runs, number)[1])
                files.append(len(search_words(collection, fused, None).hits.ids))
            found[kind] = {**compared(times, "fused", "plain"), "files": float(np.median(files))}
    return found


def size(place: Path, dropped: tuple[str, ...]) -> int:
    """Return the bytes of the database without these tables."""
    (database,) = place.glob("generation-*/items.sqlite")
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        copy = shutil.copy(database, Path(folder) / "copy.sqlite")
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            for thing in dropped:
                connection.execute(f"DROP {thing}")
            started = time.perf_counter()
            connection.execute("VACUUM")
            print(f"VACUUM took {time.perf_counter() - started:.0f} s", file=sys.stderr)
        return copy.stat().st_size
