"""What scenes show, as symbols."""

from __future__ import annotations

from dataclasses import dataclass

from vse.data.scenes.layout import Layout
from vse.data.scenes.vocabulary import Color, Kind, Size


@dataclass(frozen=True)
class Part:
    """One group as symbols."""

    kind: Kind
    color: Color
    size: Size
    count: int


@dataclass(frozen=True)
class Content:
    """A whole scene as symbols; the parts stand in the order of the layout's slots."""

    layout: Layout
    parts: tuple[Part, ...]

    def meaning(self) -> tuple[str, ...]:
        """What every caption of the scene tells: number, colour and kind of each group, in no order."""
        return tuple(sorted(f"{part.count} {part.color} {part.kind}" for part in self.parts))
