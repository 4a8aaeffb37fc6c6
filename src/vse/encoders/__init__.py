"""Encoders: each turns raw inputs into a set of features and a mask, and pools it to a unit vector."""

from vse.encoders.backbones import create_backbone
from vse.encoders.bigru import BiGRUEncoder
from vse.encoders.build import build_image_encoder, build_text_encoder
from vse.encoders.grid import GridEncoder
from vse.encoders.region import RegionEncoder
from vse.encoders.transformer_text import TransformerTextEncoder

__all__ = [
    "BiGRUEncoder",
    "GridEncoder",
    "RegionEncoder",
    "TransformerTextEncoder",
    "build_image_encoder",
    "build_text_encoder",
    "create_backbone",
]
