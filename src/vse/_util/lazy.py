"""Import the names that a package exports on first access."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from vse.errors import name_extra


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a module ``__getattr__`` that imports each name from its module on first access.

    Args:
        package: ``__name__`` of the package.
        modules: Exported names by module, relative to the package.

    Example:
        >>> __getattr__ = lazy_names("vse.inputs", {"vocabulary": ("Vocabulary",)})
        >>> __getattr__("Vocabulary").__name__
        'Vocabulary'
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        except ModuleNotFoundError as error:
            raise name_extra(error, f"{package}.{name}") from error

    return load
