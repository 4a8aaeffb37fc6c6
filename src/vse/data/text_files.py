"""Text from files: UTF-8, lines with numbers, JSON; what is wrong with a file is said in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vse.data.reading import OnProblem
from vse.errors import InputError

EMPTY_CAPTION = "empty caption"
NO_TEXT = "caption that is no text"


def read_text(path: Path) -> str:
    """The whole file; a byte order mark is left out."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}:{line}: byte 0x{content[error.start]:02x} is not UTF-8: convert the file to UTF-8"
        ) from None


def raw_lines(path: Path) -> list[str]:
    """The lines as they are. Line i of the file is item i - 1, blank or not.

    Only a newline ends a line: ``str.splitlines`` would also cut at the exotic separators that web captions contain,
    and shift all captions after them.
    """
    lines = read_text(path).split("\n")
    if not lines[-1].strip():
        lines.pop()  # what follows the last newline is no line
    return lines


def read_lines(path: Path) -> list[str]:
    """The lines without the white space around them."""
    return [line.strip() for line in raw_lines(path)]


def read_captions(path: Path, on_problem: OnProblem) -> list[str]:
    """One caption a line. An empty one is a problem; it keeps its place if reading goes on."""
    captions = read_lines(path)
    for number, caption in enumerate(captions, start=1):
        if not caption:
            report_empty(on_problem, f"{path}:{number}")
    return captions


def whole_caption(text: str, place: str, on_problem: OnProblem) -> str:
    """A caption of JSON without the white space around it; where a check goes on after a flaw, it is empty."""
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can say "\ud800", which no text can hold
        on_problem(NO_TEXT, f"{place}: holds {text[error.start]!r}, half of a character: write the caption again")
        return ""
    caption = text.strip()
    if not caption:
        on_problem(EMPTY_CAPTION, f"{place}: empty caption: write one, or take it out of the file")
    return caption


def report_empty(on_problem: OnProblem, place: str) -> None:
    """Report an empty caption."""
    on_problem(EMPTY_CAPTION, f"{place}: empty caption: write one, or remove it with its image")


def parse_json(text: str, place: str) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{place}:{error.lineno}" if error.lineno > 1 else place
        raise InputError(f"{where}: not JSON ({error.msg} at column {error.colno})") from None
    except (ValueError, RecursionError) as error:  # numbers of a thousand digits, brackets a thousand deep
        raise InputError(f"{place}: not usable JSON ({error})") from None
