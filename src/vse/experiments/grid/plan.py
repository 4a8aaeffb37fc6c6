"""What an experiment trains, and which claims it puts to the test."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Variant:
    """One row of a table: a recipe with some values changed, trained with several seeds.

    Rows of a ``panel`` stand together.
    """

    label: str
    recipe: str
    changes: tuple[str, ...] = ()
    panel: str = ""

    @property
    def key(self) -> str:
        """The name of its folder: equal for equal recipes, so that experiments share runs."""
        name = Path(self.recipe).stem
        if not self.changes:
            return name
        digest = hashlib.sha256(json.dumps(sorted(self.changes)).encode()).hexdigest()[:8]
        return f"{name}-{digest}"


@dataclass(frozen=True)
class Claim:
    """The paper finds the row ``better`` above the row ``worse`` in rsum; both are labels."""

    better: str
    worse: str

    @property
    def text(self) -> str:
        return f"{self.better} above {self.worse}"


@dataclass(frozen=True)
class Grid:
    """``changes`` apply to all rows. Claims name the labels of rows."""

    name: str
    title: str
    variants: tuple[Variant, ...]
    claims: tuple[Claim, ...] = ()
    changes: tuple[str, ...] = ()
