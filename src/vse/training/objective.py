"""The loss of a step: which negatives count, and how that changes while training."""

from __future__ import annotations

from torch import Tensor

from vse.losses import contrastive_from_scores, smooth_triplet_from_scores, triplet_from_scores
from vse.training.recipe import LossRecipe


class Objective:
    """Scores of a batch to its loss, at any step of the run.

    ``softened`` stands for what the guard asks for when the embeddings collapse: all negatives of the triplet loss, or
    the first temperature of the annealed one.
    """

    def __init__(self, recipe: LossRecipe, steps_per_epoch: int, epochs: int) -> None:
        self.recipe = recipe
        self._warmup = round(recipe.warmup_epochs * steps_per_epoch)
        self._last = max(1, steps_per_epoch * epochs - 1)

    def __call__(self, scores: Tensor, image_ids: Tensor, step: int, *, softened: bool = False) -> Tensor:
        recipe = self.recipe
        ids = image_ids if recipe.same_image == "masked" else None
        if recipe.objective == "contrastive":
            return contrastive_from_scores(scores, ids, temperature=recipe.temperature, reduction=recipe.reduction)
        if recipe.objective == "annealed":
            temperature = recipe.temperature if softened else self.temperature(step)
            return smooth_triplet_from_scores(
                scores, ids, temperature=temperature, margin=recipe.margin, reduction=recipe.reduction
            )
        negatives = "all" if softened or step < self._warmup else recipe.negatives
        return triplet_from_scores(scores, ids, negatives=negatives, margin=recipe.margin, reduction=recipe.reduction)

    @property
    def can_soften(self) -> bool:
        """Whether there is a softer loss to go back to."""
        recipe = self.recipe
        return recipe.objective == "annealed" or (recipe.objective == "triplet" and recipe.negatives != "all")

    def temperature(self, step: int) -> float:
        """``t₀ · (t₁ / t₀)^(step / last)``: from the first temperature to the final one."""
        share = min(1.0, step / self._last)
        return self.recipe.temperature * (self.recipe.final_temperature / self.recipe.temperature) ** share

    def describe(self, step: int, *, softened: bool = False) -> str:
        """The kind of loss at a step, in a few words."""
        recipe = self.recipe
        if recipe.objective == "contrastive":
            return f"contrastive at {recipe.temperature:g}"
        if recipe.objective == "annealed":
            return f"annealed at {recipe.temperature if softened else self.temperature(step):.3g}"
        return f"{'all' if softened or step < self._warmup else recipe.negatives} negatives"
