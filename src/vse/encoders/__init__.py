"""Encoders: each turns raw inputs into a set of features and a mask, and pools it to a unit vector."""

from vse.encoders.backbones import create_backbone
from vse.encoders.bigru import BiGRUEncoder
from vse.encoders.build import build_image_encoder, build_text_encoder
from vse.encoders.frames import FrameEncoder
from vse.encoders.grid import GridEncoder
from vse.encoders.region import RegionEncoder
from vse.encoders.transformer_text import TransformerTextEncoder
from vse.encoders.words import WordEncoder

__all__ = [
    "BiGRUEncoder",
    "FrameEncoder",
    "GridEncoder",
    "RegionEncoder",
    "TransformerTextEncoder",
    "WordEncoder",
    "build_image_encoder",
    "build_text_encoder",
    "create_backbone",
]
