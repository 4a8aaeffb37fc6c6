"""Poolings by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from vse.errors import InputError
from vse.pooling.arguments import one_of
from vse.pooling.average import AvgPool
from vse.pooling.base import Pooling
from vse.pooling.first_token import FirstTokenPool
from vse.pooling.fspool import FSPool
from vse.pooling.gem import GeMPool
from vse.pooling.gpo import GPO
from vse.pooling.graph import gcn_avg, gcn_seq2seq
from vse.pooling.k_max import KMaxPool
from vse.pooling.linear_decay import LinearDecayPool
from vse.pooling.maximum import MaxPool
from vse.pooling.self_attention import SelfAttentionPool
from vse.pooling.seq2seq import Seq2SeqPool
from vse.pooling.top_percent import TopPercentPool

_POOLINGS: dict[str, Callable[..., Pooling]] = {
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
}


def list_poolings() -> list[str]:
    """The names :func:`create_pooling` knows."""
    return list(_POOLINGS)


def pooling_builder(name: str) -> Callable[..., Pooling]:
    """The class or function that makes the pooling called ``name``."""
    return _POOLINGS[one_of("pooling", name, _POOLINGS)]


def create_pooling(name: str | Pooling, **options: Any) -> Pooling:
    """A pooling by name, ``create_pooling("k-max", k=5)``; a ready pooling is passed through.

    Options are the arguments of the pooling's constructor; ``fspool``, ``self-attention``, ``seq2seq`` and the two
    graph poolings need the feature size ``dim``.
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
    return build(**options)
