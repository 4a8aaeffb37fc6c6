"""The collapse guard: detects within an epoch that all embeddings converge to one point.

With the hardest negatives alone a triplet loss has a trivial plateau, ``2 · B · margin``, where every image and every
text has the same embedding. The loss may stay there for an epoch while the ranking still improves, so the loss alone
does not show a collapse. The spread does: one minus the mean cosine between different images, 0 when all embeddings
are equal. Either side can collapse alone, so the guard observes the smaller spread of images and texts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from vse.training.recipe import GuardRecipe

RECOVERED = 2.0
"""A softened run returns to its loss when the spread is this many times the limit."""
GRACE = 10
"""Random networks may begin with a small spread: the guard starts once it has grown, or after this many patiences."""

Event = Literal["collapsed", "recovered"]


@torch.no_grad()
def spread(vectors: Tensor, image_ids: Tensor) -> float:
    """Return one minus the mean cosine of unit vectors ``(B, D)`` that belong to different images."""
    vectors = vectors.float()
    other = image_ids.unsqueeze(0) != image_ids.unsqueeze(1)
    pairs = int(other.sum())
    if pairs == 0:
        return 1.0
    return 1.0 - float((vectors @ vectors.T)[other].double().sum()) / pairs


@dataclass
class CollapseGuard:
    """Count steps below the limit and report events.

    The fields are the whole state: :meth:`to_json` and ``CollapseGuard(recipe, **state)`` save and restore it.
    """

    recipe: GuardRecipe
    begun: bool = False
    waited: int = 0
    below: int = 0
    above: int = 0
    collapsed: bool = False

    def observe(self, value: float) -> Event | None:
        """Take the smaller spread of a step's two sides; return an event once, when it begins."""
        if self.recipe.action == "off":
            return None
        if not self.begun:
            self.waited += 1
            self.begun = value > RECOVERED * self.recipe.spread or self.waited > GRACE * self.recipe.patience
            if not self.begun:
                return None
        self.below = self.below + 1 if value < self.recipe.spread else 0
        self.above = self.above + 1 if value > RECOVERED * self.recipe.spread else 0
        if not self.collapsed and self.below >= self.recipe.patience:
            self.collapsed = True
            return "collapsed"
        if self.collapsed and self.above >= self.recipe.patience:
            self.collapsed = False
            return "recovered"
        return None

    @property
    def softened(self) -> bool:
        """Whether the loss should use all negatives now."""
        return self.collapsed and self.recipe.action == "soften"

    def to_json(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {key: value for key, value in asdict(self).items() if key != "recipe"}
