"""Files, embeddings and filters for the collection tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from vse.index.filters import Box, Filter
from vse.index.types import Entry, MediaFile, Moment, Vectors

DIMENSIONS = 8
ROOTS = ("/photos", "/phones")
PATHS = (
    "a.jpg",
    "holiday/a.jpg",
    "holiday/b.jpg",
    "holiday/sea/c.mp4",
    "holiday2/d.jpg",
    "holiday 3/e.jpg",
    'Ärger/it\'s "é".jpg',
)
FOLDERS = ("holiday", "holiday/sea", "holi", "Ärger")


def directions(count: int, dimensions: int = DIMENSIONS, seed: int = 0) -> Vectors:
    """Return random unit vectors (count, dimensions)."""
    values = np.random.default_rng(seed).standard_normal((count, dimensions))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


VECTORS = directions(7)  # few, so that scores are equal or clearly different
QUERIES = directions(5, seed=1)


def picture(path: str, root: str = "/photos", **values: object) -> MediaFile:
    """Return a file with default values."""
    plain = {"kind": "image", "size": 10, "modified": 20, "digest": "d", "width": 30, "height": 40}
    return MediaFile(root, path, **{**plain, **values})  # type: ignore[arg-type]


def entry(path: str, vector: Vectors, root: str = "/photos", **values: object) -> Entry:
    """Return an image with one embedding."""
    return Entry(picture(path, root, **values), (Moment(vector),))


vectors = st.sampled_from(range(3)).map(lambda each: VECTORS[each])
queries = st.sampled_from(range(len(QUERIES))).map(lambda each: QUERIES[each])
places = st.tuples(st.sampled_from(ROOTS), st.sampled_from(PATHS))
optional_time = st.none() | st.sampled_from([-5.0, 0.0, 100.5])
latitudes = st.sampled_from([-90.0, -10.0, 0.0, 47.25, 90.0])
longitudes = st.sampled_from([-180.0, -170.0, 0.0, 11.5, 175.0, 180.0])


@st.composite
def files(draw: st.DrawFn, words: bool = False) -> MediaFile:
    """Draw a file at one of few places, so that files are often replaced; ``words`` adds what metadata say."""
    root, path = draw(places)
    located = draw(st.booleans())
    captions = draw(st.lists(st.sampled_from(["a dog", "ein Hund", "a cat"]), max_size=2, unique=True))
    file = MediaFile(
        root, path, draw(st.sampled_from(["image", "video"])), draw(st.integers(0, 2**40)), draw(st.integers(0, 2**62)),
        draw(st.text("0123456789abcdef", min_size=1, max_size=8)), draw(st.integers(1, 9)), draw(st.integers(1, 9)),
        taken=draw(optional_time),
        latitude=draw(latitudes) if located else None,
        longitude=draw(longitudes) if located else None,
        duration=draw(st.none() | st.just(3.5)),
        captions=tuple(captions),
    )  # fmt: skip
    if not words:
        return file
    return replace(
        file,
        camera=draw(st.none() | st.sampled_from(["Canon EOS 80D", "Apple iPhone 12"])),
        place=draw(st.none() | st.sampled_from(["Quito, Pichincha, Ecuador"])),
        title=draw(st.none() | st.sampled_from(["", "Canon law", "\udcff é"])),
        keywords=tuple(draw(st.lists(st.sampled_from(["dog", "big cat", "Quito"]), max_size=2))),
        ocr=draw(st.none() | st.sampled_from(["", "NO DOGS"])),
        metadata_version=draw(st.integers(0, 2)),
    )


@st.composite
def entries(draw: st.DrawFn, words: bool = False) -> Entry:
    """Draw a file with one embedding, or with several moments."""
    file = draw(files(words))
    if draw(st.booleans()):
        moments = [Moment(draw(vectors))]
    else:
        moments = [Moment(draw(vectors), float(second), second + 0.5) for second in range(draw(st.integers(1, 3)))]
    described = draw(st.booleans())
    caption_vectors = np.stack([draw(vectors) for _ in file.captions]) if described and file.captions else None
    return Entry(file, tuple(moments), caption_vectors)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    """Draw any combination of conditions."""
    south, north = sorted((draw(latitudes), draw(latitudes)))
    box = Box(south, draw(longitudes), north, draw(longitudes)) if draw(st.booleans()) else None
    return Filter(
        draw(st.none() | st.sampled_from(FOLDERS)),
        draw(st.none() | st.sampled_from(["image", "video"])),
        draw(optional_time),
        draw(optional_time),
        box,
        draw(st.none() | st.sampled_from(ROOTS)),
    )


@st.composite
def word_filters(draw: st.DrawFn) -> Filter:
    """Draw a filter with conditions on words."""
    return replace(
        draw(filters()),
        name=draw(st.none() | st.sampled_from(["a", "a.jpg", "e", "b*"])),
        camera=draw(st.none() | st.sampled_from(["canon", "EOS 80d", "iphone 1*"])),
        place=draw(st.none() | st.just("pichincha")),
        words=tuple(draw(st.lists(st.sampled_from(["dog", "a dog", "quito", "canon", "sea", "dogs"]), max_size=2))),
    )
