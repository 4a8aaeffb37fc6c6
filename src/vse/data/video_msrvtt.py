"""Layout ``msrvtt``: MSR-VTT as it was published, and the lists of videos that most papers use.

``train_val_videodatainfo.json`` and ``test_videodatainfo.json`` (or ``MSRVTT_data.json``, which holds both), zipped or
not: ``{"videos": [{"video_id", "split"}], "sentences": [{"caption", "video_id"}]}``. Beside them, where they are:
``MSRVTT_train.7k.csv`` and ``MSRVTT_train.9k.csv`` (``video_id``), ``MSRVTT_JSFUSION_test.csv``
(``video_id, sentence``: the 1k-A test, one sentence a video).

| split | videos | what it is |
|---|---|---|
| ``train``, ``val``, ``test`` | 6,513, 497, 2,990 | the official ones, those of the paper |
| ``train-7k`` | 7,010 | official train and val, for ``test-1k-A`` |
| ``train-9k`` | 9,000 | everything but ``test-1k-A`` |
| ``test-1k-A`` | 1,000 | a part of the official test, one sentence each |
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vse.data.reading import OnProblem, expect_images
from vse.data.splits import in_usual_order
from vse.data.text_files import parse_json, read_text, report_empty
from vse.data.video_words import plain_sentence
from vse.data.videos import VideoCaptions
from vse.errors import InputError, first_line

NAME = "msrvtt"
PROTOCOLS = (("train", "val", "test"), ("train-7k", "test-1k-A"), ("train-9k", "test-1k-A"))
"""Splits that belong together; those of different protocols share videos."""
_ALL = ("train", "val", "test")
# The official splits that a file holds: known by its name, since a file takes a second to read.
_FILES = {
    "train_val_videodatainfo.json": _ALL[:2],
    "test_videodatainfo.json": _ALL[2:],
    "MSRVTT_data.json": _ALL,
    "train_val_annotation.zip": _ALL[:2],
    "test_videodatainfo.json.zip": _ALL[2:],
}
_OFFICIAL = {"train": "train", "validate": "val", "val": "val", "test": "test"}
_LISTS = {
    "train-7k": "MSRVTT_train.7k.csv",
    "train-9k": "MSRVTT_train.9k.csv",
    "test-1k-A": "MSRVTT_JSFUSION_test.csv",
}

_ONE_SENTENCE = ("one sentence for each video, not the 20 of the official test",)


def detect(path: Path) -> bool:
    """Whether a folder has one of the annotation files."""
    return any((path / name).is_file() for name in _FILES)


def splits(path: Path) -> tuple[str, ...]:
    """The official splits whose files are there, and those with a list."""
    official = [split for name, held in _FILES.items() if (path / name).is_file() for split in held]
    return in_usual_order([*official, *(split for split, name in _LISTS.items() if (path / name).is_file())])


def read(path: Path, split: str, on_problem: OnProblem) -> VideoCaptions:
    """The videos of a split in the order of its list, captions in the order of the file, as plain sentences."""
    rows = _rows(path / _LISTS[split]) if split in _LISTS else None
    if rows is not None and "sentence" in rows[0]:
        videos = [(row["video_id"], [plain_sentence(row["sentence"])]) for row in rows]
        return VideoCaptions.of(NAME, split, NAME, videos, _ONE_SENTENCE)
    listed = None if rows is None else list(dict.fromkeys(row["video_id"] for row in rows))
    captions_of = _captions(path, split, listed, on_problem)
    unknown = [name for name in listed or () if name not in captions_of]
    if unknown:
        raise InputError(
            f"{path / _LISTS[split]}: {len(unknown)} of {len(listed or ())} videos are in no annotation file, "
            f"{unknown[0]!r} is the first: put train_val_videodatainfo.json and test_videodatainfo.json beside it"
        )
    expect_images(path, split, len(captions_of))
    return VideoCaptions.of(NAME, split, NAME, [(name, captions_of[name]) for name in listed or captions_of])


def _captions(path: Path, split: str, listed: list[str] | None, on_problem: OnProblem) -> dict[str, list[str]]:
    """The captions of the listed videos, or of those of an official split."""
    chosen = None if listed is None else set(listed)
    found: dict[str, list[str]] = {}
    for content, place in _contents(path, split):
        for video in _list(content, "videos", place):
            name = str(video.get("video_id"))
            if name in chosen if chosen is not None else _split_of(video, place) == split:
                found.setdefault(name, [])
        for k, sentence in enumerate(_list(content, "sentences", place)):
            captions = found.get(str(sentence.get("video_id")))
            if captions is not None:
                captions.append(_caption(sentence, f"{place}, sentences[{k}]", on_problem))
    return found


def _caption(sentence: dict[str, Any], place: str, on_problem: OnProblem) -> str:
    caption = sentence.get("caption")
    if not isinstance(caption, str):
        raise InputError(f'{place}: "caption" is {caption!r}, expected a text')
    if not caption.strip():
        report_empty(on_problem, place)
    return plain_sentence(caption)


def _contents(path: Path, split: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The files that may hold videos of a split, unzipped ones first; one that is there in both forms is read once."""
    seen: set[str] = set()
    for name, held in _FILES.items():
        wanted = (split in held or split in _LISTS) and (path / name).is_file()
        for inner, text in _texts(path / name) if wanted else ():
            if inner not in seen:
                seen.add(inner)
                content = parse_json(text, str(path / name))
                if not isinstance(content, dict):
                    raise InputError(f'{path / name}: expected an object with "videos" and "sentences"')
                yield content, str(path / name)


def _texts(file: Path) -> Iterator[tuple[str, str]]:
    if file.suffix != ".zip":
        yield file.name, read_text(file)
        return
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if name.endswith("videodatainfo.json") and "__MACOSX" not in name:
                    yield Path(name).name, archive.read(name).decode("utf-8-sig")
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read ({first_line(error)}): copy it again") from None


def _list(content: dict[str, Any], key: str, place: str) -> list[dict[str, Any]]:
    found = content.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise InputError(f'{place}: expected a list of objects "{key}", the format of MSR-VTT')
    return found


def _split_of(video: dict[str, Any], place: str) -> str:
    given = video.get("split")
    if given not in _OFFICIAL:
        raise InputError(
            f'{place}, video {video.get("video_id")!r}: "split" is {given!r}, expected train, validate or test'
        )
    return _OFFICIAL[given]


def _rows(file: Path) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(read_text(file))))
    if not rows or not all(row.get("video_id") for row in rows):
        raise InputError(f"{file}: expected rows with a column video_id")
    return rows
