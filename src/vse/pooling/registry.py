"""Create poolings by name.

``avg``              mean of all elements
``max``              maximum
``k-max``            mean of the ``k`` largest values
``top-percent``      mean of the largest ``percent`` of the values
``linear``           weights that decay linearly with the rank
``gem``              generalized mean with a learned exponent
``fspool``           learned piecewise linear weights for each of ``dim`` dimensions
``cls``              the first element
``self-attention``   self-attention over ``dim`` dimensions, then the mean
``seq2seq``          last state of a GRU over ``dim`` dimensions
``gcn-avg``          graph convolution over ``dim`` dimensions, then the mean
``gcn-seq2seq``      graph convolutions, then a GRU
``gpo``              learned weights for each rank

and those that plugins register, see :mod:`vse._util.plugins`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from vse._util.plugins import Registry
from vse.errors import InputError, PluginError, unknown_choice
from vse.pooling.aggregators import Seq2SeqPool, gcn_avg, gcn_seq2seq
from vse.pooling.base import Pooling
from vse.pooling.gpo import GPO
from vse.pooling.learned_poolings import FSPool, GeMPool, SelfAttentionPool
from vse.pooling.rank_poolings import AvgPool, FirstTokenPool, KMaxPool, LinearDecayPool, MaxPool, TopPercentPool

_POOLINGS: Registry[Callable[..., Pooling]] = Registry(
    "vse.poolings",
    {
        "avg": AvgPool,
        "max": MaxPool,
        "k-max": KMaxPool,
        "top-percent": TopPercentPool,
        "linear": LinearDecayPool,
        "gem": GeMPool,
        "fspool": FSPool,
        "cls": FirstTokenPool,
        "self-attention": SelfAttentionPool,
        "seq2seq": Seq2SeqPool,
        "gcn-avg": gcn_avg,
        "gcn-seq2seq": gcn_seq2seq,
        "gpo": GPO,
    },
)


def list_poolings() -> list[str]:
    """Return the names that :func:`create_pooling` accepts."""
    return list(_POOLINGS)


def pooling_builder(name: str) -> Callable[..., Pooling]:
    """Return the class or function that creates the pooling called ``name``."""
    if name not in _POOLINGS:
        raise InputError(unknown_choice("pooling", name, _POOLINGS))
    return _POOLINGS[name]


def create_pooling(name: str | Pooling, **options: Any) -> Pooling:
    """Create a pooling by name; an existing pooling is returned unchanged.

    Args:
        name: One of :func:`list_poolings`, or a pooling.
        **options: Arguments of its constructor; ``fspool``, ``self-attention``, ``seq2seq`` and the two graph poolings
            need the feature size ``dim``.

    Raises:
        InputError: If the name or an option is unknown.

    Example:
        >>> create_pooling("k-max", k=5)
        KMaxPool(k=5)
    """
    if isinstance(name, Pooling):
        if options:
            raise InputError(f"options {sorted(options)} go with a name, not with a ready {type(name).__name__}")
        return name
    build = pooling_builder(name)
    try:
        inspect.signature(build).bind(**options)
    except TypeError as error:
        accepted = ", ".join(inspect.signature(build).parameters)
        raise InputError(f"pooling {name!r}: {error}; it takes: {accepted}") from None
    made = _POOLINGS.call(name, **options)
    if not isinstance(made, Pooling):
        raise PluginError(f"{_POOLINGS.origin(name)}: expected a vse.pooling.Pooling, got {type(made).__name__}")
    return made
