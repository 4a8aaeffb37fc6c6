"""Layout ``vatex``: VATEX as it was published, English captions.

``vatex_training_v*.json``, ``vatex_validation_v*.json``, ``vatex_public_test_english_v*.json``: lists of
``{"videoID", "enCap": [sentence]}``.

| split | videos | what it is |
|---|---|---|
| ``train``, ``val``, ``test`` | 25,991, 3,000, 6,000 | the official splits; ``test`` is the public test |
| ``val-1500``, ``test-1500`` | 1,500, 1,500 | halves of the official ``val``, on which papers on retrieval report |

The halves that papers used were never published. These are drawn by the SHA-256 of a seed and the video's id, so that
they do not depend on the machine or the order of the file. Published results are on other halves.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from vse.data.dataset import VideoCaptions
from vse.data.files import distinct_names, expect_name, expect_videos, parse_json, read_caption, read_text
from vse.data.reading import OnProblem, ReadOptions, in_usual_order
from vse.errors import InputError
from vse.inputs.text import plain_sentence

NAME = "vatex"
SEED = 0
PROTOCOLS = (("train", "val", "test"), ("train", "val-1500", "test-1500"))
"""Splits that belong together; different protocols share videos."""
_PATTERNS = {
    "train": "vatex_training*.json",
    "val": "vatex_validation*.json",
    "test": "vatex_public_test_english*.json",
}
_HALVES = {"val-1500": 0, "test-1500": 1}
_HALF = 1500


def detect(path: Path) -> bool:
    """Return whether a folder has one of the annotation files."""
    return path.is_dir() and any(next(path.glob(pattern), None) for pattern in _PATTERNS.values())


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits whose files exist."""
    there = [split for split, pattern in _PATTERNS.items() if next(path.glob(pattern), None)]
    return in_usual_order([*there, *(_HALVES if "val" in there else ())])


def read(path: Path, split: str, options: ReadOptions) -> VideoCaptions:
    """Return the videos of a split in the order of its file, captions as plain sentences."""
    official = "val" if split in _HALVES else split
    found = sorted(path.glob(_PATTERNS[official]))
    if len(found) != 1:
        there = ", ".join(file.name for file in found) or "none"
        raise InputError(f"{path}: expected exactly one {_PATTERNS[official]}, found {there}")
    entries = parse_json(read_text(found[0]), str(found[0]))
    if not isinstance(entries, list):
        raise InputError(f'{found[0]}: expected a list of objects with "videoID" and "enCap"')
    listed = [_video(entry, f"{found[0]}[{i}]", options.on_problem) for i, entry in enumerate(entries)]
    captions_of = dict(listed)
    names = distinct_names([name for name, _ in listed], str(found[0]), options.on_problem)
    videos = [(name, captions_of[name]) for name in names]
    remarks: tuple[str, ...] = ()
    if split in _HALVES:
        chosen = halves([name for name, _ in videos])[_HALVES[split]]
        videos = [(name, captions) for name, captions in videos if name in chosen]
        remarks = (_remark(len(videos)),)
    expect_videos(path, split, len(videos))
    return VideoCaptions.of(NAME, split, NAME, videos, remarks)


def halves(videos: list[str], seed: int = SEED) -> tuple[frozenset[str], frozenset[str]]:
    """Return two halves of some videos, by the SHA-256 of ``seed`` and id; of an odd number the first has one less."""
    order = sorted(videos, key=lambda name: (hashlib.sha256(f"{seed}:{name}".encode()).digest(), name))
    middle = len(order) // 2
    return frozenset(order[:middle]), frozenset(order[middle:])


def _remark(count: int) -> str:
    remark = (
        f"a half of the official validation set drawn with seed {SEED}; the halves of published results are unknown"
    )
    return remark if count == _HALF else f"{remark}; {count} videos here, {_HALF} in the whole set"


def _video(entry: Any, place: str, on_problem: OnProblem) -> tuple[str, list[str]]:
    name = entry.get("videoID") if isinstance(entry, dict) else None
    captions = entry.get("enCap") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        raise InputError(f'{place}: "videoID" is {name!r}, expected the name of a video')
    if not isinstance(captions, list):
        raise InputError(f'{place}: "enCap" is not a list of sentences: test files without captions cannot be used')
    sentences = [read_caption(caption, f"{place}, enCap[{k}]", on_problem) for k, caption in enumerate(captions)]
    return expect_name(name, place), [plain_sentence(sentence) for sentence in sentences]
