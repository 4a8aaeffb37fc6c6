"""The errors this package raises on purpose.

A message is one line that names the bad value, what was expected and the fix. Every error carries the exit
code with which the command ends. Standard library only: everything else may import this file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import ClassVar

DISTRIBUTION = "vse-infinity"
LONGEST_REASON = 200  # characters of another library's message within ours


class VSEError(Exception):
    """Something failed in a way we foresaw; the message alone tells the user what to do."""

    exit_code: ClassVar[int] = 1


class InputError(VSEError, ValueError):
    """A value handed to the library is wrong."""


class UsageError(VSEError):
    """The command was called wrongly."""

    exit_code: ClassVar[int] = 2


class MissingDependencyError(VSEError, ImportError):
    """A library of an optional install is absent, or present and unable to load."""


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import ``module`` or say in one line how to get it.

    ``extra`` is the optional install that brings the module and ``purpose`` what needs it, as the subject of
    a sentence: ``require("torch", "torch", "vse.pooling")``. A module that is absent and a module that is
    there but cannot be loaded get different messages, since only the first is cured by installing it.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:  # a broken library may raise anything while loading, not only ImportError
        root = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == root:
            message = f'{purpose} needs {root}, which is not installed: pip install "{DISTRIBUTION}[{extra}]"'
        else:
            message = (
                f"{purpose} needs {module}, which is installed but cannot be imported "
                f"({type(error).__name__}: {error}): repair or reinstall it in this environment"
            )
        raise MissingDependencyError(message, name=module) from error


def first_line(error: BaseException) -> str:
    """The beginning of another library's message, which says what is wrong; its type where it says nothing."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if len(line) <= LONGEST_REASON else line[:LONGEST_REASON] + " …"


def unknown_choice(what: str, value: object, choices: Iterable[str]) -> str:
    """The message for a value outside a closed set: the value, the whole set and the closest member.

    >>> unknown_choice("pooling", "kmax", ["avg", "k-max"])
    "unknown pooling 'kmax': expected one of 'avg', 'k-max' (did you mean 'k-max'?)"
    """
    from difflib import get_close_matches

    names = list(choices)
    close = get_close_matches(str(value), names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"unknown {what} {value!r}: expected one of {', '.join(map(repr, names))}{hint}"
