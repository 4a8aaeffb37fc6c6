"""Encoders: each turns raw inputs into a set of features and a mask, and pools it to a unit vector."""

from vse.encoders.backbones import create_backbone
from vse.encoders.image import GridEncoder, RegionEncoder
from vse.encoders.text import BiGRUEncoder, WordEncoder
from vse.encoders.transformer_text import TransformerTextEncoder
from vse.encoders.video import FrameEncoder

__all__ = [
    "BiGRUEncoder",
    "FrameEncoder",
    "GridEncoder",
    "RegionEncoder",
    "TransformerTextEncoder",
    "WordEncoder",
    "create_backbone",
]
