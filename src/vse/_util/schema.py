"""Read small JSON files that this package wrote, strictly and without pydantic.

Importing pydantic takes as long as importing numpy, and a search does not need it. Files that people write are read by
:mod:`vse._util.strict`, whose error messages are more detailed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vse.errors import InputError, unknown_choice

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Value = TypeVar("Value", bound=DataclassInstance)

Positive = Annotated[int, 1]
NonNegative = Annotated[int, 0]


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in ``path``; raise a one-line :class:`InputError` if it is missing or invalid."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # includes numbers and nesting beyond Python's limits
        raise InputError(f"{path}: not JSON ({str(error)[:120]})") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def parse_plain(kind: type[Value], mapping: Mapping[str, Any], where: str) -> Value:
    """Return ``mapping`` as the dataclass ``kind``.

    Fields may be ``str``, ``bool``, ``int``, ``float``, ``Any``, ``Literal``, tuples of fixed length, dictionaries with
    string keys, unions of these, and :data:`Positive` and :data:`NonNegative`. Lists become tuples and integers become
    floats where needed; nothing else is converted.

    Raises:
        InputError: If a field is missing, unknown or invalid; the message is one line that starts with ``where``.
    """
    hints = get_type_hints(kind, include_extras=True)
    known = {field.name: field for field in fields(kind)}
    for key in mapping:
        if key not in known:
            raise InputError(f"{where}: {unknown_choice('key', key, known)}")
    values = {}
    for name, field in known.items():
        if name not in mapping:
            if field.default is MISSING and field.default_factory is MISSING:
                raise InputError(f"{where}: {name!r} is missing")
            continue
        try:
            values[name] = _read(hints[name], mapping[name])
        except ValueError as error:
            raise InputError(f"{where}: {name!r} is {mapping[name]!r}: expected {error}") from None
    return kind(**values)


def _read(kind: Any, value: Any) -> Any:
    """Return ``value`` as ``kind``; raise a ``ValueError`` that describes what was expected."""
    origin = get_origin(kind)
    return _simple(kind, value) if origin is None else _READERS[origin](get_args(kind), value)


def _simple(kind: Any, value: Any) -> Any:
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is Any or (type(value) is kind and kind is not float):
        return value
    raise ValueError(_NAMES[kind])


def _at_least(parts: tuple[Any, ...], value: Any) -> Any:
    if _read(parts[0], value) < parts[1]:
        raise ValueError(f"a whole number from {parts[1]} up")
    return value


def _one_of(parts: tuple[Any, ...], value: Any) -> Any:
    if any(type(value) is type(part) and value == part for part in parts):
        return value
    raise ValueError(" or ".join(map(repr, parts)))


def _first_that_fits(parts: tuple[Any, ...], value: Any) -> Any:
    expected = []
    for part in parts:
        try:
            return _read(part, value)
        except ValueError as error:
            expected.append(str(error))
    raise ValueError(" or ".join(expected))


def _tuple(parts: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, (list, tuple)) and len(value) == len(parts):
        return tuple(_read(part, each) for part, each in zip(parts, value, strict=True))
    raise ValueError(f"{len(parts)} values")


def _object(parts: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, dict):
        return {_read(parts[0], key): _read(parts[1], each) for key, each in value.items()}
    raise ValueError("an object")


_READERS: dict[Any, Callable[[tuple[Any, ...], Any], Any]] = {
    Annotated: _at_least,
    Literal: _one_of,
    Union: _first_that_fits,
    UnionType: _first_that_fits,
    tuple: _tuple,
    dict: _object,
}
_NAMES = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", type(None): "null"}
