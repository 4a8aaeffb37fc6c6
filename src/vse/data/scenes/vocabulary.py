"""What scenes are made of: kinds, colours, sizes and splits."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Kind = Literal["circle", "square", "triangle", "star", "cross", "ring", "diamond", "heart"]
Color = Literal["red", "orange", "yellow", "green", "blue", "purple", "pink", "black"]
Size = Literal["small", "large"]
Split = Literal["train", "dev", "test"]
RGB: TypeAlias = tuple[int, int, int]

KINDS: tuple[Kind, ...] = get_args(Kind)
COLORS: tuple[Color, ...] = get_args(Color)
SIZES: tuple[Size, ...] = get_args(Size)
SPLITS: tuple[Split, ...] = get_args(Split)

PALETTE: dict[Color, RGB] = {
    "red": (208, 32, 40),
    "orange": (240, 128, 24),
    "yellow": (248, 214, 36),
    "green": (34, 140, 62),
    "blue": (36, 84, 206),
    "purple": (124, 50, 166),
    "pink": (246, 128, 182),
    "black": (26, 26, 32),
}

RADII: dict[Size, tuple[float, float]] = {"small": (0.052, 0.060), "large": (0.092, 0.103)}
"""The range of radii of a size, as a share of the picture's side; far enough apart to be told from one object."""
