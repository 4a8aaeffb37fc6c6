"""Hierarchical graph reasoning (HGR) for videos and sentences: role graphs, and scores on three levels.

HGR compares a video with a whole sentence, with its verbs and with its nouns. HGR∞ pools frames and words with GPO in
place of attention.

>>> from vse.hgr import HGRConfig, HGRModel
>>> model = HGRModel(HGRConfig(vocabulary_size=9000, video_pooling="gpo", sentence_pooling="gpo"))  # doctest: +SKIP

Names are imported lazily: reading role graphs needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vse.hgr.encoders import SentenceFeatures, VideoFeatures, join
    from vse.hgr.graphs import ROLES, GraphBatch, RoleGraph, SentenceGraphs, role_id
    from vse.hgr.model import HGRModel
    from vse.hgr.scores import LevelScores, level_scores, score_blocks
    from vse.models.config import HGRConfig

__all__ = [
    "ROLES",
    "GraphBatch",
    "HGRConfig",
    "HGRModel",
    "LevelScores",
    "RoleGraph",
    "SentenceFeatures",
    "SentenceGraphs",
    "VideoFeatures",
    "join",
    "level_scores",
    "role_id",
    "score_blocks",
]

_MODULES = {
    "vse.hgr.encoders": ("SentenceFeatures", "VideoFeatures", "join"),
    "vse.hgr.graphs": ("ROLES", "GraphBatch", "RoleGraph", "SentenceGraphs", "role_id"),
    "vse.hgr.model": ("HGRModel",),
    "vse.hgr.scores": ("LevelScores", "level_scores", "score_blocks"),
    "vse.models.config": ("HGRConfig",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
