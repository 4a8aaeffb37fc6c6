"""Arguments that need no conversion, kept from pydantic.

typer converts every value with pydantic, also one that is absent, and loading that takes longer than a search itself.
Texts are texts already, and defaults have their type: only what is left is worth the library.
"""

from __future__ import annotations

from typing import Any

import typer


def keep_plain(command: Any) -> None:
    """Let the parameters of a typer command, and of the commands below it, take what needs no conversion as it is."""
    for each in getattr(command, "commands", {}).values():
        keep_plain(each)
    listed = command.get_params

    def get_params(context: typer.Context) -> list[Any]:
        parameters = listed(context)  # with the one for --help, which is made here
        for parameter in parameters:
            converter = getattr(parameter, "get_runtime_param", None)
            if converter is not None and not isinstance(converter, _Reluctant):
                parameter.get_runtime_param = _Reluctant(converter)
        return parameters

    command.get_params = get_params


class _Reluctant:
    """A parameter's way to its converter, and the converter itself; typer's own is made when a value asks for it."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self) -> _Reluctant:
        return self

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        return value if _is_plain(value, param.type_descriptor, several) else self._make().coerce(value, param, ctx)


def _is_plain(value: Any, kind: Any, several: bool) -> bool:
    """Whether ``value`` has the type that the command asks for, and nothing else is to be checked about it."""
    if kind.parameter_info.parser is not None or kind.is_choice or kind.is_path or kind.is_file:
        return False
    if several:
        return kind.annotation == list[str] and all(type(each) is str for each in value)
    return kind.annotation in (str, int, float, bool) and type(value) is kind.annotation
