"""What an HGR model is, as one strict value."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vse.configuration import LARGEST, About, PoolingConfig
from vse.strict import Strict

ATTENTION = "attention"
Width = Annotated[int, Field(ge=1, le=LARGEST)]
Share = Annotated[float, Field(ge=0, lt=1)]


class HGRConfig(Strict):
    """Sizes, poolings and dropout of :class:`~vse.hgr.model.HGRModel`; the defaults are the released ones.

    The two poolings make one vector of a video's frames and of a sentence's words. ``"attention"`` is HGR, ``"gpo"``
    HGR∞, and any other pooling of :func:`vse.pooling.list_poolings` will do. ``dropout`` is that of projected frames
    and of word embeddings, ``graph_dropout`` that of what a node takes from its neighbours.
    """

    format: Literal[1] = 1
    runtime: Literal["torch"] = "torch"
    kind: Literal["hgr"] = "hgr"
    feature_size: Width = 2048
    vocabulary_size: Annotated[int, Field(ge=1, le=100 * LARGEST)]
    word_size: Width = 300
    embed_size: Annotated[int, Field(ge=2, le=LARGEST)] = 1024
    video_pooling: PoolingConfig = PoolingConfig(name=ATTENTION)
    sentence_pooling: PoolingConfig = PoolingConfig(name=ATTENTION)
    dropout: Share = 0.2
    graph_dropout: Share = 0.5
    about: About = About()
