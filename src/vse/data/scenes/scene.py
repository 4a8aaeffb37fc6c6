"""A scene: everything there is to draw, as plain values in the unit square (x to the right, y down)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from vse.data.scenes.content import Content, Part
from vse.data.scenes.layout import Layout
from vse.data.scenes.vocabulary import RGB, Color, Kind, Size

Texture = Literal["plain", "gradient", "stripes", "checks", "clouds"]


@dataclass(frozen=True)
class Shape:
    """One object. It lies inside the circle of ``radius`` around (x, y) whatever its turn, in degrees."""

    kind: Kind
    color: Color
    size: Size
    x: float
    y: float
    radius: float
    turn: float
    rgb: RGB


@dataclass(frozen=True)
class Group:
    """Objects of one kind, colour and size that a caption speaks of together."""

    kind: Kind
    color: Color
    size: Size
    shapes: tuple[Shape, ...]

    @property
    def part(self) -> Part:
        """What the group is, without where it is."""
        return Part(self.kind, self.color, self.size, len(self.shapes))


@dataclass(frozen=True)
class Stroke:
    """A piece of clutter: a short line in a colour of the palette, behind the objects and in no caption."""

    start: tuple[float, float]
    end: tuple[float, float]
    width: float
    rgb: RGB


@dataclass(frozen=True)
class Background:
    """A texture between two tones; ``angle`` in degrees, ``waves`` across the picture, ``seed`` for the clouds."""

    texture: Texture
    tones: tuple[RGB, RGB]
    angle: float
    waves: float
    seed: int


@dataclass(frozen=True)
class Scene:
    """Groups in the order of their layout's slots, in front of clutter and a background."""

    layout: Layout
    groups: tuple[Group, ...]
    background: Background
    clutter: tuple[Stroke, ...]

    @property
    def content(self) -> Content:
        """What the scene shows, without where exactly: the part that captions can tell."""
        return Content(self.layout, tuple(group.part for group in self.groups))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """All objects."""
        return tuple(shape for group in self.groups for shape in group.shapes)

    def fingerprint(self) -> str:
        """A hash of every value in the scene: equal exactly if the scenes are."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]
