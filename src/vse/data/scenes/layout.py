"""Where groups stand: the picture is cut into regions, and each group is spread over its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias

from vse.data.scenes.keyed import KeyedRandom

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
"""A leaf is the slot of a group; along ``x`` the children stand from left to right, along ``y`` from top to bottom."""

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
    """How many groups the layout holds."""
    return len(_leaves(LAYOUTS[layout]))


def relation(layout: Layout, first: int, second: int) -> Relation:
    """How the group in slot ``first`` stands to the one in ``second``, by the cut that parts the two."""
    return _relation(LAYOUTS[layout], first, second)


def place(layout: Layout, counts: Sequence[int], radii: Sequence[float], rng: KeyedRandom) -> list[list[Point]] | None:
    """The centres of each group's objects, or None if the picture is too small for them.

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
    """The least width and height of a region that holds this part of the tree."""
    if isinstance(tree, int):
        return needs[tree]
    axis, children = tree
    widths, heights = zip(*(_need(child, needs) for child in children), strict=True)
    apart = SEPARATION * (len(children) - 1)
    return (sum(widths) + apart, max(heights)) if axis == "x" else (max(widths), sum(heights) + apart)


def _cut(tree: Tree, box: Box, needs: Sequence[Point], rng: KeyedRandom, boxes: dict[int, Box]) -> None:
    """Cut ``box`` along the tree; room to spare is shared out at random."""
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
    """``count`` centres in different cells of the grid over ``box``, anywhere in the cell that leaves the gap."""
    columns, rows = grid
    width, height = box.width / columns, box.height / rows
    points = []
    for number in sorted(rng.shuffled(range(columns * rows))[:count]):
        row, column = divmod(number, columns)
        x = box.x + column * width + rng.uniform(cell / 2, max(cell / 2, width - cell / 2))
        y = box.y + row * height + rng.uniform(cell / 2, max(cell / 2, height - cell / 2))
        points.append((x, y))
    return points
