"""The errors that this package raises.

A message is one line that names the invalid value, what was expected and the fix. Every error has the exit code of the
command. Standard library only, so that every module can import this one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import ClassVar

DISTRIBUTION = "vse-infinity"
LONGEST_REASON = 200  # characters quoted from another library's message


class VSEError(Exception):
    """An expected failure; the message is enough for the user to act on."""

    exit_code: ClassVar[int] = 1


class InputError(VSEError, ValueError):
    """An invalid value was passed to the library."""


class UsageError(VSEError):
    """The command was called incorrectly."""

    exit_code: ClassVar[int] = 2


class MissingDependencyError(VSEError, ImportError):
    """An optional dependency is missing or cannot be imported."""


class PluginError(VSEError):
    """A plugin of another distribution cannot be imported, or fails."""


class PluginWarning(UserWarning):
    """A plugin is ignored, because its name is taken."""


def install_hint(extras: str) -> str:
    """Return the command that installs extras, from a clone: the project is on no package index yet.

    >>> install_hint("train")
    'pip install ".[train]" (or make setup) in a clone'
    """
    photo = "./packages/photo " if "search" in extras.split(",") else ""  # a requirement that no index has either
    return f'pip install {photo}".[{extras}]" (or make setup) in a clone'


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import and return ``module``.

    Args:
        module: Name of the module.
        extra: The optional install that provides it.
        purpose: What needs it, as the subject of a sentence: ``require("torch", "torch", "vse.pooling")``.

    Raises:
        MissingDependencyError: If the module is missing (the message says how to install it), or is installed but
            cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:  # a broken library may raise anything while loading, not only ImportError
        root = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == root:
            message = f"{purpose} needs {root}, which is not installed: {install_hint(extra)}"
        else:
            message = (
                f"{purpose} needs {module}, which is installed but cannot be imported "
                f"({type(error).__name__}: {error}): repair or reinstall it in this environment"
            )
        raise MissingDependencyError(message, name=module) from error


_EXTRAS = {
    **dict.fromkeys(
        (
            *("numpy", "onnxruntime", "tokenizers", "faiss", "PIL", "pillow_heif", "av", "pydantic", "typer", "rich"),
            *("fastapi", "starlette", "uvicorn", "multipart", "prometheus_client", "cachetools", "pathspec"),
        ),
        "search",
    ),
    **dict.fromkeys(("torch", "safetensors", "transformers", "timm", "nltk", "h5py", "scipy", "numba"), "train"),
}


def name_extra(error: ModuleNotFoundError, purpose: str) -> ImportError:
    """Return the error for a library of ours that is not installed, with the extra to install; else ``error`` itself.

    For code that imports several libraries at once, where :func:`require` would need a line for each.
    """
    root = str(error.name).partition(".")[0]
    if root not in _EXTRAS:
        return error
    message = f"{purpose} needs {root}, which is not installed: {install_hint(_EXTRAS[root])}"
    return MissingDependencyError(message, name=root)


def first_line(error: BaseException) -> str:
    """Return the start of another library's error message, or the name of its type if the message is empty."""
    if isinstance(error, MemoryError):
        return "not enough memory"
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if len(line) <= LONGEST_REASON else line[:LONGEST_REASON] + " …"


def unknown_choice(what: str, value: object, choices: Iterable[str]) -> str:
    """Return an error message for a value outside a closed set: the value, the whole set and the closest member.

    >>> unknown_choice("pooling", "kmax", ["avg", "k-max"])
    "unknown pooling 'kmax': expected one of 'avg', 'k-max' (did you mean 'k-max'?)"
    """
    from difflib import get_close_matches

    names = list(choices)
    close = get_close_matches(str(value), names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"unknown {what} {value!r}: expected one of {', '.join(map(repr, names))}{hint}"
