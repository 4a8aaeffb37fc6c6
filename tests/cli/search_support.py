"""A small saved model, and helpers that run a command and return its JSON or its error line."""

from __future__ import annotations

import atexit
import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

from tests.support_models import build, grid_config

from vse.cli.main import main

LARGER = 96  # 3 × 3 cells


@cache
def saved_folder() -> Path:
    """A model that reads images, saved once per process."""
    folder = tempfile.TemporaryDirectory(prefix="vse-model-")
    atexit.register(folder.cleanup)
    return build(grid_config(image_size=LARGER)).save(Path(folder.name) / "model")


def printed(*arguments: object) -> tuple[dict, int]:
    """The JSON that a call printed, and its exit code."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = main([*map(str, arguments), "--json"])
    return json.loads(out.getvalue()), code


def reported(*arguments: object) -> dict:
    """The JSON of a successful call."""
    found, code = printed(*arguments)
    assert code == 0
    return found


def error_line(capsys, code: int, *arguments: object) -> str:
    """The error line of a failed call."""
    assert main([*map(str, arguments)]) == code
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("vse: error: ")
    return line
