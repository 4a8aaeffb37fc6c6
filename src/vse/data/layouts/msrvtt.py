"""Layout ``msrvtt``: MSR-VTT as published, and the lists of videos that most papers use.

``train_val_videodatainfo.json`` and ``test_videodatainfo.json`` (or ``MSRVTT_data.json``, which holds both), zipped or
not: ``{"videos": [{"video_id", "split"}], "sentences": [{"caption", "video_id"}]}``. Optionally next to them:
``MSRVTT_train.7k.csv`` and ``MSRVTT_train.9k.csv`` (``video_id``), ``MSRVTT_JSFUSION_test.csv``
(``video_id, sentence``: the 1k-A test, one sentence per video).

| split | videos | what it is |
|---|---|---|
| ``train``, ``val``, ``test`` | 6,513, 497, 2,990 | the official splits of the paper |
| ``train-7k`` | 7,010 | official train and val, for ``test-1k-A`` |
| ``train-9k`` | 9,000 | everything except ``test-1k-A`` |
| ``test-1k-A`` | 1,000 | part of the official test, one sentence each |
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vse.data.dataset import VideoCaptions
from vse.data.files import SHOWN, distinct_names, expect_name, expect_videos, parse_json, read_caption, read_text
from vse.data.reading import OnProblem, ReadOptions, in_usual_order
from vse.data.video_sources import reading, zip_entry
from vse.errors import InputError
from vse.inputs.text import plain_sentence

NAME = "msrvtt"
PROTOCOLS = (("train", "val", "test"), ("train-7k", "test-1k-A"), ("train-9k", "test-1k-A"))
"""Splits that belong together; different protocols share videos."""
_ALL = ("train", "val", "test")
# The official splits in each file, by its name: reading a file takes a second.
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

_LARGEST = 2**28  # bytes of an unpacked file; the largest published one has 16 million
_ONE_SENTENCE = ("one sentence for each video, not the 20 of the official test",)


def detect(path: Path) -> bool:
    """Return whether a folder has one of the annotation files."""
    return any((path / name).is_file() for name in _FILES)


def splits(path: Path) -> tuple[str, ...]:
    """Return the official splits whose files exist, and those with a list."""
    official = [split for name, held in _FILES.items() if (path / name).is_file() for split in held]
    return in_usual_order([*official, *(split for split, name in _LISTS.items() if (path / name).is_file())])


def read(path: Path, split: str, options: ReadOptions) -> VideoCaptions:
    """Return the videos of a split in the order of its list, captions in the order of the file, as plain sentences."""
    if split not in _LISTS:
        official = _captions(path, split, None, options.on_problem)
        expect_videos(path, split, len(official))
        return VideoCaptions.of(NAME, split, NAME, list(official.items()))
    file = path / _LISTS[split]
    rows = _rows(file)
    listed = distinct_names([row["video_id"] for row in rows], str(file), options.on_problem)
    if "sentence" in rows[0]:
        own = {
            row["video_id"]: _caption(row["sentence"], f"{file}:{k}", options.on_problem)
            for k, row in enumerate(rows, 2)
        }
        return VideoCaptions.of(NAME, split, NAME, [(name, [own[name]]) for name in listed], _ONE_SENTENCE)
    captions_of = _captions(path, split, set(listed), options.on_problem)
    unknown = [name for name in listed if name not in captions_of]
    if unknown:
        raise InputError(
            f"{file}: {len(unknown)} of {len(listed)} videos are in no annotation file, "
            f"{unknown[0]!r} is the first: put train_val_videodatainfo.json and test_videodatainfo.json next to it"
        )
    return VideoCaptions.of(NAME, split, NAME, [(name, captions_of[name]) for name in listed])


def _captions(path: Path, split: str, listed: set[str] | None, on_problem: OnProblem) -> dict[str, list[str]]:
    """Return the captions of the listed videos, or of those of an official split.

    The first file that has a video describes it: another one may repeat the same sentences.
    """
    found: dict[str, list[str]] = {}
    for content, place in _contents(path, split):
        here: dict[str, list[str]] = {}
        for number, video in enumerate(_list(content, "videos", place)):
            name = _name(video, f"{place}, videos[{number}]")
            if name in listed if listed is not None else _split_of(video, place) == split:
                here[name] = []
        here = {name: captions for name, captions in here.items() if name not in found}
        for k, sentence in enumerate(_list(content, "sentences", place)):
            captions = here.get(str(sentence.get("video_id")))
            if captions is not None:
                captions.append(_caption(sentence.get("caption"), f"{place}, sentences[{k}]", on_problem))
        found |= here
    return found


def _name(video: dict[str, Any], place: str) -> str:
    name = video.get("video_id")
    if not isinstance(name, str | int) or name == "":
        raise InputError(f'{place}: "video_id" is {name!r}, expected the name of a video')
    return expect_name(str(name), place)


def _caption(value: object, place: str, on_problem: OnProblem) -> str:
    return plain_sentence(read_caption(value, place, on_problem))


def _contents(path: Path, split: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the files that may hold videos of a split, unzipped ones first; a file in both forms is read once."""
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
    with reading(str(file)), zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.endswith("videodatainfo.json") and "__MACOSX" not in name:
                entry = zip_entry(archive, name)
                if entry.file_size > _LARGEST:  # never unpack more than this
                    raise InputError(
                        f"{file}: {name[:SHOWN]!r} has {entry.file_size} bytes, expected at most {_LARGEST}: copy it "
                        "again, or put the unpacked file next to it"
                    )
                yield Path(name).name, archive.read(entry).decode("utf-8-sig")


def _list(content: dict[str, Any], key: str, place: str) -> list[dict[str, Any]]:
    found = content.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise InputError(f'{place}: expected a list of objects "{key}", the format of MSR-VTT')
    return found


def _split_of(video: dict[str, Any], place: str) -> str:
    given = video.get("split")
    if not isinstance(given, str) or given not in _OFFICIAL:
        video_id = video.get("video_id")
        raise InputError(
            f'{place}, video {video_id!r}: "split" is {repr(given)[:SHOWN]}, expected train, validate or test'
        )
    return _OFFICIAL[given]


def _rows(file: Path) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(read_text(file)), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise InputError(f"{file}:{reader.line_num + 1}: {error}: check the quotation marks of this row") from None
    if not rows or not all(row.get("video_id") for row in rows):
        raise InputError(f"{file}: expected rows with a column video_id")
    return rows
