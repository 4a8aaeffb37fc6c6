"""Extensions that other distributions register by entry points.

An entry point has a group, a name and an object::

    [project.entry-points."vse.poolings"]
    median = "my_package:MedianPool"

Built-in names win. Entry points are read on demand, once per process: a built-in name costs nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from vse.errors import PluginError, PluginWarning, first_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS = {
    "vse.poolings": "a class or function that creates a vse.pooling.Pooling",
    "vse.losses": "a function of scores (B, B) and image_ids (B,), with options, that returns a scalar",
    "vse.backbones": "a function or class that creates a vse.encoders.Backbone",
    "vse.encoders": "a function or class that creates a module from tokens (B, L), lengths (B,) to states (B, L, D)",
    "vse.layouts": "a vse.data.Layout",
    "vse.backends": "a class with open, create and exists, for the addresses NAME+…",
    "vse.commands": "a function for typer, or a typer.Typer",
    "vse.models": "a function that returns the folder of a model",
}
"""What may be registered, and what the object of each group is."""

Value = TypeVar("Value")


@cache
def _entry_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; of two with one name, the one of the first distribution."""
    from importlib.metadata import entry_points  # costs more than a search: only for a name that is not built in

    found: dict[str, EntryPoint] = {}
    for each in sorted(entry_points(group=group), key=lambda each: (each.name, _distribution(each), each.value)):
        first = found.setdefault(each.name, each)
        if first.value != each.value:
            message = f"{_described(each)} is ignored: {_distribution(first)} has registered that name"
            warnings.warn(message, PluginWarning, stacklevel=2)
    return found


def forget_plugins() -> None:
    """Read the entry points again on the next use, after a distribution was installed."""
    _entry_points.cache_clear()


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown distribution"


def _described(entry: EntryPoint) -> str:
    return f"plugin {entry.name!r} of {entry.group} from {_distribution(entry)}"


class Registry(Mapping[str, Value]):
    """Objects by name: the built-in ones, then those of plugins.

    Iterating yields the names of both. A plugin is imported when its object is taken.

    >>> registry = Registry("vse.poolings", {"avg": 1})
    >>> registry["avg"], "median" in registry
    (1, False)
    """

    def __init__(self, group: str, builtin: Mapping[str, Value] | None = None) -> None:
        self.group = group
        self.builtin: Mapping[str, Value] = builtin or {}

    def __getitem__(self, name: str) -> Value:
        if name in self.builtin:
            return self.builtin[name]
        return _load(self.plugins()[name])

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or (isinstance(name, str) and name in self.plugins())

    def __iter__(self) -> Iterator[str]:
        yield from self.builtin
        yield from (name for name in self.plugins() if name not in self.builtin)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def plugins(self) -> dict[str, EntryPoint]:
        """Return the entry points by name; warn about those that a built-in name hides."""
        found = _entry_points(self.group)
        for name in found.keys() & self.builtin.keys():
            warnings.warn(f"{_described(found[name])} is ignored: the name is built in", PluginWarning, stacklevel=2)
        return found

    def origin(self, name: str) -> str:
        """Return which distribution a name comes from, for messages."""
        return "vse" if name in self.builtin else _described(self.plugins()[name])

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        """Call the object of a name; what a plugin raises becomes a one-line error that names its distribution."""
        value: Any = self[name]
        if name in self.builtin:
            return value(*args, **options)
        try:
            return value(*args, **options)
        except Exception as error:
            if isinstance(error, PluginError):
                raise
            raise PluginError(f"{self.origin(name)} failed: {type(error).__name__}: {first_line(error)}") from error


def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:  # a plugin may raise anything while it loads
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise PluginError(f"{_described(entry)} cannot be imported ({reason}): repair or uninstall it") from error


def list_plugins() -> list[tuple[str, str, str]]:
    """Return (group, name, distribution) of everything that is registered, without importing it."""
    return [(group, name, _distribution(entry)) for group in GROUPS for name, entry in _entry_points(group).items()]
