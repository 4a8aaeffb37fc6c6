"""Options that several commands share, and how their values are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vse.errors import UsageError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def output_folder(path: Path) -> Path:
    """``path`` if results can be written under it; it need not exist yet."""
    for place in (path, *path.parents):
        if place.is_dir():
            return path
        if place.exists():
            raise UsageError(f"--out {str(path)!r}: {str(place)!r} is a file, expected a folder")
    return path


def parse_seeds(text: str) -> tuple[int, ...]:
    """Distinct whole numbers from 0 up, separated by commas."""
    seeds = []
    for part in text.split(","):
        number = part.strip()
        if not (number.isascii() and number.isdigit()):
            raise UsageError(f'--seeds {text!r}: {number!r} is not a whole number from 0 up: write them like "0,1,2"')
        seeds.append(int(number))
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text!r}: a seed is given twice and its run would count double")
    return tuple(seeds)
