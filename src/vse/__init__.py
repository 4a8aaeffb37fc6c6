"""Search images and videos with words; train, evaluate and export visual-semantic embeddings.

>>> import vse
>>> vse.index_folders("~/Photos", "Photos.vse")  # doctest: +SKIP
>>> collection = vse.open_collection("Photos.vse")  # doctest: +SKIP
>>> for result in vse.search(collection, "two dogs in snow").results:  # doctest: +SKIP
...     print(result.path, result.confidence)

Names are loaded on first use: ``import vse`` costs nothing, ``vse.search`` needs no torch, ``vse.pooling`` needs torch
alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vse._version import __version__

if TYPE_CHECKING:
    from vse import data, evaluation, index, inputs, losses, models, pooling, training
    from vse.evaluation.models import evaluate
    from vse.index import open_collection, search
    from vse.index.build import index_folders
    from vse.models.sources import load
    from vse.training import train_recipe as train

__all__ = [
    "__version__",
    "data",
    "evaluate",
    "evaluation",
    "index",
    "index_folders",
    "inputs",
    "load",
    "losses",
    "models",
    "open_collection",
    "pooling",
    "search",
    "train",
    "training",
]

_FUNCTIONS = {
    "evaluate": "vse.evaluation.models:evaluate",
    "index_folders": "vse.index.build:index_folders",
    "load": "vse.models.sources:load",
    "open_collection": "vse.index.open:open_collection",
    "search": "vse.index.item_search:search",
    "train": "vse.training:train_recipe",
}
_PACKAGES = frozenset({"data", "evaluation", "index", "inputs", "losses", "models", "pooling", "training"})


def __getattr__(name: str) -> Any:
    try:
        if name in _FUNCTIONS:
            module, _, function = _FUNCTIONS[name].partition(":")
            return getattr(import_module(module), function)
        if name in _PACKAGES:
            return import_module(f"vse.{name}")
    except ModuleNotFoundError as error:
        from vse.errors import name_extra

        raise name_extra(error, f"vse.{name}") from error
    raise AttributeError(f"module 'vse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
