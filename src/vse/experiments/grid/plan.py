"""What an experiment trains, and which claims it puts to the test."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """One row of a table: a recipe with some values changed, trained with several seeds."""

    label: str
    recipe: str
    changes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of its folder: equal for equal recipes, so that experiments share runs."""
        if not self.changes:
            return self.recipe
        digest = hashlib.sha256(json.dumps(self.changes).encode()).hexdigest()[:8]
        return f"{self.recipe}-{digest}"


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
