"""What every layout of videos asks of its annotations: names that stand once, captions that are sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vse.data.reading import OnProblem
from vse.data.text_files import EMPTY_CAPTION
from vse.errors import InputError

NO_TEXT = "caption that is no text"
LISTED_TWICE = "name listed twice"
EMPTY_NAME = "empty name"
SHOWN = 60  # characters of a bad value within a message


def read_caption(value: object, place: str, on_problem: OnProblem) -> str:
    """A caption without the white space around it; where a check goes on after a flaw, one that is no text is empty."""
    if not isinstance(value, str):
        on_problem(NO_TEXT, f"{place}: the caption is {repr(value)[:SHOWN]}, expected a sentence in quotes")
        return ""
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can say "\\ud800", which no text can hold
        on_problem(NO_TEXT, f"{place}: holds {value[error.start]!r}, half of a character: write the caption again")
        return ""
    caption = value.strip()
    if not caption:
        on_problem(EMPTY_CAPTION, f"{place}: empty caption: write one, or take it out of the file")
    return caption


def distinct_names(names: Sequence[str], place: str, on_problem: OnProblem) -> list[str]:
    """The names of videos in their order, each once; one that stands twice and one that is empty are flaws."""
    counts = Counter(names)
    if "" in counts:
        on_problem(EMPTY_NAME, f"{place}: entry {names.index('')} has no name: expected one for each video")
    for name, count in counts.items():
        if count > 1:
            on_problem(LISTED_TWICE, f"{place}: {name[:SHOWN]} is listed {count} times: leave one of them")
    return [name for name in counts if name]


def expect_videos(path: Path, split: str, count: int) -> None:
    """Refuse a split without videos."""
    if count == 0:
        raise InputError(f"{path}, split {split!r}: zero videos, expected at least one")
