"""Which loss a step has, against formulas written down one pair at a time."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vse.losses import contrastive_from_scores, triplet_from_scores
from vse.training.recipe import LossRecipe
from vse.training.schedule import Objective

IDS = [0, 1, 1, 2, 3]


def batch(seed: int = 0, count: int = 5) -> torch.Tensor:
    return torch.rand(count, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def wrong_scores(scores: torch.Tensor, ids: list[int] | None) -> list[tuple[float, list[float]]]:
    """For every image and every text: the score of its own pair, and those of its negatives."""
    values, count = scores.tolist(), len(scores)
    owners = ids if ids is not None else list(range(count))
    found = []
    for i in range(count):
        others = [j for j in range(count) if owners[j] != owners[i]]
        found.append((values[i][i], [values[i][j] for j in others]))
        found.append((values[i][i], [values[j][i] for j in others]))
    return found


def naive(kind: str, scores: torch.Tensor, ids: list[int] | None, *, margin: float, temperature: float) -> float:
    total = 0.0
    for own, wrong in wrong_scores(scores, ids):
        costs = [margin + score - own for score in wrong]
        if kind == "contrastive":
            total += math.log(1 + sum(math.exp((score - own) / temperature) for score in wrong))
        elif kind == "annealed":
            total += temperature * math.log(1 + sum(math.exp(cost / temperature) for cost in costs))
        elif kind == "all":
            total += sum(max(0.0, cost) for cost in costs)
        else:
            allowed = costs if kind == "hardest" else [margin + score - own for score in wrong if score < own]
            total += max([0.0, *allowed])
    return total


@given(
    steps_per_epoch=st.integers(1, 7),
    epochs=st.integers(1, 4),
    warmup=st.sampled_from([0, 0.5, 1, 1.3, 10]),
    negatives=st.sampled_from(["hardest", "semi-hard", "all"]),
    same_image=st.sampled_from(["masked", "negatives"]),
    reduction=st.sampled_from(["sum", "mean"]),
    softened=st.booleans(),
)
def test_the_triplet_loss_of_every_step(steps_per_epoch, epochs, warmup, negatives, same_image, reduction, softened):
    """All negatives in the first ``warmup_epochs`` and whenever the guard asks, then the kind of the recipe."""
    recipe = LossRecipe(
        objective="triplet",
        negatives=negatives,
        warmup_epochs=warmup,
        margin=0.3,
        same_image=same_image,
        reduction=reduction,
    )
    objective = Objective(recipe, steps_per_epoch, epochs)
    ids = IDS if same_image == "masked" else None
    for step in range(steps_per_epoch * epochs):
        scores = batch(step)
        kind = "all" if softened or step < round(warmup * steps_per_epoch) else negatives
        expected = naive(kind, scores, ids, margin=0.3, temperature=1) / (5 if reduction == "mean" else 1)
        found = objective(scores, torch.tensor(IDS), step, softened=softened)
        assert float(found) == pytest.approx(expected, abs=1e-9)
        assert objective.describe(step, softened=softened) == f"{kind} negatives"


@given(
    steps_per_epoch=st.integers(1, 7),
    epochs=st.integers(1, 4),
    first=st.sampled_from([0.05, 0.5]),
    final=st.sampled_from([0.01, 0.1, 0.5]),
    same_image=st.sampled_from(["masked", "negatives"]),
    softened=st.booleans(),
)
def test_the_annealed_loss_of_every_step(steps_per_epoch, epochs, first, final, same_image, softened):
    """The temperature falls by the same factor at every step, from the first to the final one on the last step."""
    recipe = LossRecipe(objective="annealed", temperature=first, final_temperature=final, same_image=same_image)
    objective = Objective(recipe, steps_per_epoch, epochs)
    total = steps_per_epoch * epochs
    factor = (final / first) ** (1 / (total - 1)) if total > 1 else 1.0
    temperature = first
    for step in range(total):
        assert objective.temperature(step) == pytest.approx(temperature, rel=1e-9)
        used = first if softened else temperature
        expected = naive("annealed", batch(step), IDS if same_image == "masked" else None, margin=0.2, temperature=used)
        found = objective(batch(step), torch.tensor(IDS), step, softened=softened)
        assert float(found) == pytest.approx(expected, rel=1e-7, abs=1e-7)
        assert objective.describe(step, softened=softened) == f"annealed at {used:.3g}"
        temperature *= factor
    assert objective.temperature(total + 5) == pytest.approx(final)


@given(st.sampled_from(["masked", "negatives"]), st.sampled_from(["sum", "mean"]), st.booleans(), st.integers(0, 9))
def test_the_contrastive_loss_never_changes(same_image, reduction, softened, step):
    """Cross-entropy at one temperature, whatever the step and the guard."""
    recipe = LossRecipe(objective="contrastive", temperature=0.3, same_image=same_image, reduction=reduction)
    expected = naive("contrastive", batch(), IDS if same_image == "masked" else None, margin=0, temperature=0.3)
    found = Objective(recipe, 3, 3)(batch(), torch.tensor(IDS), step, softened=softened)
    assert float(found) == pytest.approx(expected / (5 if reduction == "mean" else 1), rel=1e-9)
    assert Objective(recipe, 3, 3).describe(step) == "contrastive at 0.3"


def test_the_ends_of_annealing_are_the_other_losses():
    """A cold end is the hardest triplet to 1e-6; without a margin any temperature is a contrastive loss."""
    cold = LossRecipe(objective="annealed", temperature=0.05, final_temperature=1e-8)
    scores, ids = batch(), torch.tensor(IDS)
    found = Objective(cold, 10, 2)(scores, ids, 19)
    assert float(found) == pytest.approx(float(triplet_from_scores(scores, ids, margin=0.2)), abs=1e-6)
    flat = LossRecipe(objective="annealed", temperature=0.2, final_temperature=0.2, margin=1e-12)
    expected = 0.2 * float(contrastive_from_scores(scores, ids, temperature=0.2, reduction="sum"))
    assert float(Objective(flat, 10, 2)(scores, ids, 7)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("objective", ["triplet", "annealed", "contrastive"])
def test_a_batch_of_one_image_costs_nothing_and_stays_finite(objective):
    """Every pair masked: the loss is 0 and so are its gradients, not NaN; as negatives the pairs do cost."""
    scores = batch().requires_grad_()
    same = torch.zeros(5, dtype=torch.long)
    loss = Objective(LossRecipe(objective=objective), 2, 2)(scores, same, 1)
    assert loss.item() == 0
    (gradient,) = torch.autograd.grad(loss, scores)
    assert torch.equal(gradient, torch.zeros_like(scores))
    as_negatives = LossRecipe(objective=objective, same_image="negatives")
    assert Objective(as_negatives, 2, 2)(scores, same, 1).item() > 0
