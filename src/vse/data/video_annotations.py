"""What every layout of videos asks of its annotations: names that stand once, captions that are sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vse.data.reading import OnProblem
from vse.data.text_files import NO_TEXT, whole_caption
from vse.errors import InputError

LISTED_TWICE = "name listed twice"
EMPTY_NAME = "empty name"
SHOWN = 60  # characters of a bad value within a message


def read_caption(value: object, place: str, on_problem: OnProblem) -> str:
    """A caption with one blank between its words; where a check goes on after a flaw, one that is no text is empty.

    Role graphs count words by ``str.split``, tokenizers split at all of it but U+001C to U+001F: now they agree.
    """
    if not isinstance(value, str):
        on_problem(NO_TEXT, f"{place}: the caption is {repr(value)[:SHOWN]}, expected a sentence in quotes")
        return ""
    return one_blank(whole_caption(value, place, on_problem))


def one_blank(sentence: str) -> str:
    """``sentence`` with one blank between its words, and nothing around them."""
    return " ".join(sentence.split())


def expect_name(name: str, place: str) -> str:
    """``name``, unless it holds half of a character, as JSON's "\\ud800" gives: no file can be called so."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{place}: the name {name[:SHOWN]!r} holds half of a character: write it again") from None
    return name


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
