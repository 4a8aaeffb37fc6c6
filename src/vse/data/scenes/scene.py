"""The description of a scene: everything to draw, in the unit square (x to the right, y down)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias, get_args

from vse.data.scenes.keyed import KeyedRandom

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
"""The radii of a size as a fraction of the image's side; distinct enough to recognize from one object."""


Layout = Literal["row", "column", "row3", "column3", "left-stack", "stack-right", "top-row", "row-bottom"]
Relation = Literal["left of", "right of", "above", "below"]
Point: TypeAlias = tuple[float, float]
Axis = Literal["x", "y"]
Tree: TypeAlias = "int | tuple[Axis, tuple[Tree, ...]]"

LAYOUTS: dict[Layout, Tree] = {
    "row": ("x", (0, 1)),
    "column": ("y", (0, 1)),
    "row3": ("x", (0, 1, 2)),
    "column3": ("y", (0, 1, 2)),
    "left-stack": ("x", (0, ("y", (1, 2)))),
    "stack-right": ("x", (("y", (0, 1)), 2)),
    "top-row": ("y", (0, ("x", (1, 2)))),
    "row-bottom": ("y", (("x", (0, 1)), 2)),
}
"""A leaf is the slot of a group; along ``x`` the children go from left to right, along ``y`` from top to bottom."""

OPPOSITE: dict[Relation, Relation] = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
}
GRIDS: dict[int, tuple[tuple[int, int], ...]] = {
    1: ((1, 1),),
    2: ((1, 2), (2, 1)),
    3: ((1, 3), (3, 1), (2, 2)),
    4: ((1, 4), (4, 1), (2, 2)),
}
"""Columns and rows over which a group of this many objects may be spread."""

MARGIN = 0.02
GAP = 0.02
SEPARATION = 0.04


@dataclass(frozen=True)
class Box:
    """A rectangle of the unit square."""

    x: float
    y: float
    width: float
    height: float


def slots(layout: Layout) -> int:
    """Return the number of groups of a layout."""
    return len(_leaves(LAYOUTS[layout]))


def relation(layout: Layout, first: int, second: int) -> Relation:
    """Return the relation of the group in slot ``first`` to the one in ``second``, by the cut between them."""
    return _relation(LAYOUTS[layout], first, second)


def place(layout: Layout, counts: Sequence[int], radii: Sequence[float], rng: KeyedRandom) -> list[list[Point]] | None:
    """Return the centers of each group's objects, None if the image is too small for them.

    ``radii[g]`` bounds the radius of every object of group g. Objects keep at least ``GAP`` from each other and
    groups ``SEPARATION`` along the axis of their relation; both hold by construction, without trial and error.
    """
    tree = LAYOUTS[layout]
    cells = [2 * radius + GAP for radius in radii]
    room = 1 - 2 * MARGIN
    for grids in rng.shuffled(list(product(*(GRIDS[count] for count in counts)))):
        needs = [(columns * cell, rows * cell) for (columns, rows), cell in zip(grids, cells, strict=True)]
        width, height = _need(tree, needs)
        if width <= room and height <= room:
            boxes: dict[int, Box] = {}
            _cut(tree, Box(MARGIN, MARGIN, room, room), needs, rng, boxes)
            return [_spread(boxes[g], grids[g], counts[g], cells[g], rng) for g in range(len(counts))]
    return None


def _leaves(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else [leaf for child in tree[1] for leaf in _leaves(child)]


def _relation(tree: Tree, first: int, second: int) -> Relation:
    if isinstance(tree, int):
        raise ValueError(f"slots {first} and {second} are not two different slots of this layout")
    axis, children = tree
    places = [next(i for i, child in enumerate(children) if slot in _leaves(child)) for slot in (first, second)]
    if places[0] == places[1]:
        return _relation(children[places[0]], first, second)
    before: Relation = "left of" if axis == "x" else "above"
    return before if places[0] < places[1] else OPPOSITE[before]


def _need(tree: Tree, needs: Sequence[Point]) -> Point:
    """Return the minimum width and height of a region that holds this part of the tree."""
    if isinstance(tree, int):
        return needs[tree]
    axis, children = tree
    widths, heights = zip(*(_need(child, needs) for child in children), strict=True)
    apart = SEPARATION * (len(children) - 1)
    return (sum(widths) + apart, max(heights)) if axis == "x" else (max(widths), sum(heights) + apart)


def _cut(tree: Tree, box: Box, needs: Sequence[Point], rng: KeyedRandom, boxes: dict[int, Box]) -> None:
    """Cut ``box`` along the tree; spare space is distributed at random."""
    if isinstance(tree, int):
        boxes[tree] = box
        return
    axis, children = tree
    along = 0 if axis == "x" else 1
    least = [_need(child, needs)[along] for child in children]
    side = box.width if axis == "x" else box.height
    spare = max(0.0, side - sum(least) - SEPARATION * (len(children) - 1))
    weights = [rng.uniform(0.5, 1.5) for _ in children]
    position = 0.0
    for child, need, weight in zip(children, least, weights, strict=True):
        length = need + spare * weight / sum(weights)
        if axis == "x":
            part = Box(box.x + position, box.y, length, box.height)
        else:
            part = Box(box.x, box.y + position, box.width, length)
        _cut(child, part, needs, rng, boxes)
        position += length + SEPARATION


def _spread(box: Box, grid: tuple[int, int], count: int, cell: float, rng: KeyedRandom) -> list[Point]:
    """Return ``count`` centers in different cells of a grid over ``box``, at random positions that keep the gap."""
    columns, rows = grid
    width, height = box.width / columns, box.height / rows
    points = []
    for number in sorted(rng.shuffled(range(columns * rows))[:count]):
        row, column = divmod(number, columns)
        x = box.x + column * width + rng.uniform(cell / 2, max(cell / 2, width - cell / 2))
        y = box.y + row * height + rng.uniform(cell / 2, max(cell / 2, height - cell / 2))
        points.append((x, y))
    return points


@dataclass(frozen=True)
class Part:
    """One group as symbols."""

    kind: Kind
    color: Color
    size: Size
    count: int


@dataclass(frozen=True)
class Content:
    """A whole scene as symbols; parts are in the order of the layout's slots."""

    layout: Layout
    parts: tuple[Part, ...]

    def meaning(self) -> tuple[str, ...]:
        """What every caption of the scene describes: number, color and kind of each group, unordered."""
        return tuple(sorted(f"{part.count} {part.color} {part.kind}" for part in self.parts))


Texture = Literal["plain", "gradient", "stripes", "checks", "clouds"]


@dataclass(frozen=True)
class Shape:
    """One object, inside the circle of ``radius`` around (x, y) for any rotation ``turn`` in degrees."""

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
    """Objects of one kind, color and size that a caption describes together."""

    kind: Kind
    color: Color
    size: Size
    shapes: tuple[Shape, ...]

    @property
    def part(self) -> Part:
        """The group without its position."""
        return Part(self.kind, self.color, self.size, len(self.shapes))


@dataclass(frozen=True)
class Stroke:
    """A piece of clutter: a short line in a color of the palette, behind the objects and in no caption."""

    start: tuple[float, float]
    end: tuple[float, float]
    width: float
    rgb: RGB


@dataclass(frozen=True)
class Background:
    """A texture between two tones; ``angle`` in degrees, ``waves`` across the image, ``seed`` for the clouds."""

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
        """What the scene shows without exact positions: the part that captions can describe."""
        return Content(self.layout, tuple(group.part for group in self.groups))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """All objects."""
        return tuple(shape for group in self.groups for shape in group.shapes)

    def fingerprint(self) -> str:
        """Return a hash of every value in the scene: equal if and only if the scenes are."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]
