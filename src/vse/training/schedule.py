"""What changes during a run: the learning rate, the EMA of the weights, the objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from vse.errors import PluginError
from vse.losses import (
    LOSSES,
    contrastive_from_scores,
    matching_from_scores,
    smooth_triplet_from_scores,
    triplet_from_scores,
)
from vse.pooling import TopPercentPool
from vse.training.distributed import Ranks
from vse.training.keyed import Purpose, keyed
from vse.training.recipe import LossRecipe, ScheduleRecipe


def warmup_factor(schedule: ScheduleRecipe, step: int, steps_per_epoch: int, *, first: int = 1) -> float:
    """Return ``(k + first) / n`` at step k of the n steps of the warm-up, and 1 outside of it."""
    begin = round(schedule.warmup_from * steps_per_epoch)
    length = round(schedule.warmup_epochs * steps_per_epoch)
    return (step - begin + first) / length if begin <= step < begin + length else 1.0


def rate_factor(schedule: ScheduleRecipe, step: int, steps_per_epoch: int, *, warm_up: bool = True) -> float:
    """Return the factor of the learning rate at a step, between 0 and 1.

    Warm-up: step k of n has the factor (k + 1) / n, so that the first step is not lost and the last one has the full
    rate. Afterwards ``step`` decay multiplies by ``decay_factor`` in the last ``decay_epochs``; ``cosine`` follows
    ``(1 + cos πx) / 2`` from the end of the warm-up (x = 0) to the end of the run (x = 1). ``warm_up=False`` keeps the
    full rate during the warm-up.
    """
    epoch = step / steps_per_epoch
    begin = round(schedule.warmup_from * steps_per_epoch)
    length = round(schedule.warmup_epochs * steps_per_epoch)
    warm = warmup_factor(schedule, step, steps_per_epoch) if warm_up else 1.0
    if schedule.decay == "step":
        late = schedule.decay_epochs > 0 and epoch >= schedule.epochs - schedule.decay_epochs
        return warm * (schedule.decay_factor if late else 1.0)
    total = schedule.epochs * steps_per_epoch
    if step < begin + length:
        return warm
    passed = (step - begin - length) / max(1, total - begin - length)
    return 0.5 * (1 + math.cos(math.pi * passed))


class AveragedWeights:
    """EMA of the weights: ``a ← d · a + (1 - d) · w`` after step n, with ``d = min(decay, (1 + n) / (10 + n))``.

    The decay is smaller at first: with a constant one the random initial weights would dominate the average of a short
    run. Buffers (statistics, counters) are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self._averaged = {name for name, _ in model.named_parameters()}
        self.tensors = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Add the weights after a step."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        self.steps += 1
        for name, value in model.state_dict().items():
            if name in self._averaged:
                self.tensors[name].lerp_(value, 1 - decay)
            else:
                self.tensors[name].copy_(value)

    def load(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        """Restore the state of a checkpoint."""
        for name, value in tensors.items():
            self.tensors[name].copy_(value)
        self.steps = steps

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """Give the model the averaged weights inside a ``with`` block."""
        kept = {name: value.detach().clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.tensors, strict=True)
        try:
            yield
        finally:
            model.load_state_dict(kept, strict=True)


class PoolingSearch:
    """Find the percentages of ``top-percent`` poolings: drawn for every step at first, then selected by a score.

    One network is trained under all candidates at once, so that a search costs a few evaluations and no further run.

    Args:
        model: the model; poolings without ``percent="search"`` stay as they are.
        seed: of the run.
        steps: the number of steps that draw.
    """

    def __init__(self, model: nn.Module, seed: int, steps: int) -> None:
        self._pools = [each for each in model.modules() if isinstance(each, TopPercentPool) and each.searched]
        self._seed, self.steps = seed, steps

    def draw(self, step: int) -> None:
        """Set the percentages of a step; after the search this does nothing."""
        if step >= self.steps:
            return
        for number, pool in enumerate(self._pools):
            draw = keyed(self._seed, step, Purpose.POOLING, number)
            pool.found.fill_(draw.choice(pool.CANDIDATES))

    def settle(self, step: int, score: Callable[[], float] | None, ranks: Ranks) -> list[float]:
        """Set the percentages for the evaluation after a step, and from the end of the search on for good.

        Args:
            step: the number of finished steps.
            score: evaluates the model; None in processes that do not.
            ranks: shares what the first process selects.

        Returns:
            The percentages that were selected; empty if this is not the end of the search.
        """
        if step > self.steps:
            return []
        for pool in self._pools:
            pool.found.fill_(100.0)
        if step < self.steps:
            return []
        for pool in self._pools:
            best = 100.0
            if score is not None:
                scores = {}
                for candidate in pool.CANDIDATES:
                    pool.found.fill_(candidate)
                    scores[candidate] = score()
                best = max(scores, key=lambda each: scores[each])
            pool.found.fill_(ranks.share(best))
        return [float(pool.found) for pool in self._pools]


class Objective:
    """Compute the loss of a batch from its scores, at any step of the run.

    ``softened`` is what the guard requests when the embeddings collapse: all negatives for the triplet loss, the
    initial temperature for the annealed one.
    """

    def __init__(self, recipe: LossRecipe, steps_per_epoch: int, epochs: int) -> None:
        self.recipe = recipe
        self._warmup = round(recipe.warmup_epochs * steps_per_epoch)
        self._last = max(1, steps_per_epoch * epochs - 1)

    def __call__(self, scores: Tensor, image_ids: Tensor, step: int, *, softened: bool = False) -> Tensor:
        recipe = self.recipe
        ids = image_ids if recipe.same_image == "masked" else None
        if recipe.objective not in LOSSES.builtin:
            return self._plugin_loss(scores, ids)
        if recipe.objective == "matching":
            return matching_from_scores(scores, reduction=recipe.reduction)
        if recipe.objective == "contrastive":
            return contrastive_from_scores(
                scores,
                ids,
                temperature=recipe.temperature,
                margin=recipe.softmax_margin,
                reduction=recipe.reduction,
            )
        if recipe.objective == "annealed":
            temperature = recipe.temperature if softened else self.temperature(step)
            return smooth_triplet_from_scores(
                scores, ids, temperature=temperature, margin=recipe.margin, reduction=recipe.reduction
            )
        hinge = partial(triplet_from_scores, scores, ids, margin=recipe.margin, reduction=recipe.reduction)
        negatives = "all" if softened or step < self._warmup else recipe.negatives
        if negatives != "blended":
            return hinge(negatives=negatives)
        share = recipe.blend ** (step + 1 - self._warmup)
        return share * hinge(negatives="all") + (1 - share) * hinge(negatives="hardest")

    def _plugin_loss(self, scores: Tensor, ids: Tensor | None) -> Tensor:
        loss = LOSSES.call(self.recipe.objective, scores, ids, **self.recipe.options)
        if not isinstance(loss, Tensor) or loss.dim():
            got = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise PluginError(f"{LOSSES.origin(self.recipe.objective)}: expected a scalar tensor, got {got}")
        return loss

    @property
    def can_soften(self) -> bool:
        """Whether there is a softer loss."""
        recipe = self.recipe
        return recipe.objective == "annealed" or (recipe.objective == "triplet" and recipe.negatives != "all")

    def temperature(self, step: int) -> float:
        """Return ``t₀ · (t₁ / t₀)^(step / last)``: from the initial temperature to the final one."""
        share = min(1.0, step / self._last)
        return self.recipe.temperature * (self.recipe.final_temperature / self.recipe.temperature) ** share

    def describe(self, step: int, *, softened: bool = False) -> str:
        """Return the kind of loss at a step in a few words."""
        recipe = self.recipe
        if recipe.objective not in LOSSES.builtin:
            return recipe.objective
        if recipe.objective == "matching":
            return f"matching, {'random' if recipe.first_stage is None else 'hard'} negatives"
        if recipe.objective == "contrastive":
            return f"contrastive at {recipe.temperature:g}"
        if recipe.objective == "annealed":
            return f"annealed at {recipe.temperature if softened else self.temperature(step):.3g}"
        return f"{'all' if softened or step < self._warmup else recipe.negatives} negatives"
