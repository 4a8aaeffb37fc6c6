"""Encoders: map images, videos and texts to sets of features and pool them to unit-norm embeddings."""

from typing import TYPE_CHECKING

from vse._util.lazy import lazy_names

if TYPE_CHECKING:
    from vse.encoders.backbones import Backbone, create_backbone
    from vse.encoders.image import GridEncoder, RegionEncoder
    from vse.encoders.text import BiGRUEncoder, WordEncoder
    from vse.encoders.transformer_text import TransformerTextEncoder
    from vse.encoders.video import FrameEncoder

__all__ = [
    "Backbone",
    "BiGRUEncoder",
    "FrameEncoder",
    "GridEncoder",
    "RegionEncoder",
    "TransformerTextEncoder",
    "WordEncoder",
    "create_backbone",
]

__getattr__ = lazy_names(
    __name__,
    {
        "backbones": ("Backbone", "create_backbone"),
        "image": ("GridEncoder", "RegionEncoder"),
        "text": ("BiGRUEncoder", "WordEncoder"),
        "transformer_text": ("TransformerTextEncoder",),
        "video": ("FrameEncoder",),
    },
)
