"""The losses against loops, the released implementation, and what must hold for every batch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from vse.errors import InputError
from vse.losses import (
    NEGATIVES,
    ContrastiveLoss,
    TripletLoss,
    contrastive_from_scores,
    satisfied,
    smooth_triplet_from_scores,
    triplet_from_scores,
)


def naive_triplet(scores, ids, negatives, margin):
    """One pair at a time, in Python numbers."""
    values, count = scores.tolist(), len(scores)
    total = 0.0
    for i in range(count):
        own = values[i][i]
        for row in ([values[i][j] for j in range(count)], [values[j][i] for j in range(count)]):
            wrong = [score for j, score in enumerate(row) if ids[j] != ids[i]]
            if negatives == "semi-hard":
                wrong = [score for score in wrong if score < own]
            costs = [max(0.0, margin + score - own) for score in wrong]
            if costs:
                total += sum(costs) if negatives == "all" else max(costs)
    return total


def naive_contrastive(scores, ids, temperature):
    values, count = scores.tolist(), len(scores)
    total = 0.0
    for i in range(count):
        for row in ([values[i][j] for j in range(count)], [values[j][i] for j in range(count)]):
            kept = [score for j, score in enumerate(row) if j == i or ids[j] != ids[i]]
            total -= math.log(math.exp(values[i][i] / temperature) / sum(math.exp(s / temperature) for s in kept))
    return total / count


def naive_smooth(scores, ids, temperature, margin):
    """t · log(1 + Σ exp(cost / t)) of every image and every text, shifted by hand so that nothing overflows."""
    values, count = scores.tolist(), len(scores)
    total = 0.0
    for i in range(count):
        for row in ([values[i][j] for j in range(count)], [values[j][i] for j in range(count)]):
            costs = [0.0] + [margin + score - values[i][i] for j, score in enumerate(row) if ids[j] != ids[i]]
            most = max(costs)
            total += most + temperature * math.log(sum(math.exp((cost - most) / temperature) for cost in costs))
    return total


@st.composite
def batches(draw):
    count = draw(st.integers(2, 7))
    seed = draw(st.integers(0, 10_000))
    scores = torch.rand(count, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
    if draw(st.booleans()):
        scores = (scores * 4).round() / 4  # ties
    ids = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    return scores, ids


@given(batches(), st.sampled_from(NEGATIVES), st.sampled_from([0.1, 0.2, 1.0]))
def test_the_triplet_loss_equals_a_loop(batch, negatives, margin):
    """Both directions, every kind of negatives, captions of one image left out."""
    scores, ids = batch
    found = triplet_from_scores(scores, ids, negatives=negatives, margin=margin)
    assert float(found) == pytest.approx(naive_triplet(scores, ids, negatives, margin), abs=1e-9)
    mean = triplet_from_scores(scores, ids, negatives=negatives, margin=margin, reduction="mean")
    assert float(mean) == pytest.approx(float(found) / len(scores), abs=1e-12)


@given(batches(), st.sampled_from([0.05, 0.5]))
def test_the_contrastive_loss_equals_a_loop(batch, temperature):
    """The pair itself against all that is not of its image."""
    scores, ids = batch
    found = contrastive_from_scores(scores, ids, temperature=temperature)
    assert float(found) == pytest.approx(naive_contrastive(scores, ids, temperature), rel=1e-9, abs=1e-9)


@given(batches(), st.sampled_from([0.001, 0.05, 0.5, 10.0]), st.sampled_from([0.0, 0.2, 1.0]))
def test_the_smooth_triplet_loss_equals_a_loop(batch, temperature, margin):
    """Both directions, any temperature, captions of one image left out."""
    scores, ids = batch
    found = smooth_triplet_from_scores(scores, ids, temperature=temperature, margin=margin)
    assert float(found) == pytest.approx(naive_smooth(scores, ids, temperature, margin), rel=1e-7, abs=1e-7)
    mean = smooth_triplet_from_scores(scores, ids, temperature=temperature, margin=margin, reduction="mean")
    assert float(mean) == pytest.approx(float(found) / len(scores), abs=1e-12)
    without = smooth_triplet_from_scores(scores, temperature=temperature, margin=margin)
    expected = naive_smooth(scores, list(range(len(scores))), temperature, margin)
    assert float(without) == pytest.approx(expected, rel=1e-7, abs=1e-7)


@given(batches(), st.sampled_from([0.0, 0.2]))
def test_a_cold_smooth_triplet_is_the_hardest_one(batch, margin):
    """From above, and by no more than t · log B for each image and text."""
    scores, ids = batch
    hardest = float(triplet_from_scores(scores, ids, margin=margin))
    for temperature in (1e-1, 1e-3, 1e-8):
        found = float(smooth_triplet_from_scores(scores, ids, temperature=temperature, margin=margin))
        assert hardest - 1e-9 <= found <= hardest + 2 * len(scores) * temperature * math.log(len(scores)) + 1e-9
    assert found == pytest.approx(hardest, abs=1e-6)


@given(batches(), st.sampled_from([0.05, 0.5, 2.0]))
def test_a_smooth_triplet_without_margin_is_contrastive(batch, temperature):
    """The temperature times the cross-entropy, gradients too."""
    scores, ids = batch
    results = []
    for loss in (
        lambda given: smooth_triplet_from_scores(given, ids, temperature=temperature, margin=0),
        lambda given: temperature * contrastive_from_scores(given, ids, temperature=temperature, reduction="sum"),
    ):
        given_scores = scores.clone().requires_grad_()
        value = loss(given_scores)
        value.backward()
        results.append((value.detach(), given_scores.grad))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-7, atol=1e-7)


def test_every_negative_pulls_the_harder_the_more():
    """The gradient over the negatives of an image is positive everywhere and ordered like their scores."""
    scores = torch.tensor([[0.5, 0.4, 0.1, -0.3], [0.0] * 4, [0.0] * 4, [0.0] * 4], requires_grad=True)
    smooth_triplet_from_scores(scores, temperature=0.1).backward()
    first = scores.grad[0, 1:].tolist()
    assert first == sorted(first, reverse=True)
    assert all(share > 0 for share in first)


def test_smooth_rows_without_negatives():
    """Two captions of one image and a third pair: the lonely ones cost what they should, nothing is NaN."""
    scores = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    alone = smooth_triplet_from_scores(scores, [4, 4, 4], temperature=0.01)
    (gradient,) = torch.autograd.grad(alone, scores)
    assert alone.item() == 0
    assert torch.equal(gradient, torch.zeros_like(gradient))
    some = smooth_triplet_from_scores(scores, [4, 4, 5], temperature=0.01)
    (gradient,) = torch.autograd.grad(some, scores)
    assert gradient.isfinite().all()
    assert some.item() == pytest.approx(naive_smooth(scores.detach(), [4, 4, 5], 0.01, 0.2), abs=1e-9)


def test_parity_with_the_released_loss(shared_reference):
    """Sums for all negatives and for the hardest, without knowledge of images, to 1e-5."""
    numbers = load_file(shared_reference / "loss.safetensors")
    for negatives, name in (("all", "loss_all_negatives"), ("hardest", "loss_hardest")):
        found = TripletLoss(margin=0.2, negatives=negatives)(numbers["image"], numbers["text"])
        torch.testing.assert_close(found, numbers[name].squeeze(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_loss_gradients_match_finite_differences(negatives):
    """Backpropagation agrees with finite differences."""
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    loss = TripletLoss(0.3, negatives)
    assert torch.autograd.gradcheck(lambda image, text: loss(image, text, image_ids=[0, 1, 1, 2, 3]), vectors)
    assert torch.autograd.gradcheck(lambda image, text: ContrastiveLoss()(image, text, [0, 1, 1, 2, 3]), vectors)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_gradients_of_the_smooth_triplet(temperature):
    """Backpropagation agrees with finite differences, for a learned temperature too."""
    scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    warmth = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda given, t: smooth_triplet_from_scores(given, [0, 1, 1, 2, 3], temperature=t, margin=0.3), (scores, warmth)
    )


def test_captions_of_one_image_are_not_negatives():
    """Two pairs of the same image, and nothing else: no cost at all; without ids they push each other away."""
    image = torch.nn.functional.normalize(torch.ones(2, 4), dim=1)
    assert float(TripletLoss()(image, image, image_ids=[7, 7])) == 0
    assert float(TripletLoss()(image, image)) == pytest.approx(4 * 0.2)


def test_collapse_costs_twice_the_batch_times_the_margin():
    """All vectors at one point: the plateau that the guard of training looks for."""
    point = torch.nn.functional.normalize(torch.ones(128, 8), dim=1)
    assert float(TripletLoss(0.2)(point, point)) == pytest.approx(51.2, rel=1e-5)
    assert satisfied(point @ point.T) == 0


@given(batches())
def test_satisfied_pairs_cost_nothing(batch):
    """The share of pairs whose own terms are zero, counted one by one."""
    scores, ids = batch
    count = len(scores)
    free = 0
    for i in range(count):
        wrong = [j for j in range(count) if ids[j] != ids[i]]
        free += all(scores[i, j] + 0.2 <= scores[i, i] and scores[j, i] + 0.2 <= scores[i, i] for j in wrong)
    assert satisfied(scores, ids) == pytest.approx(free / count)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TripletLoss()(torch.ones(1, 4), torch.ones(1, 4)), "a batch of one pair has no negatives"),
        (lambda: TripletLoss()(torch.ones(3, 4), torch.ones(2, 4)), r"\(3, 4\) and \(2, 4\)"),
        (lambda: triplet_from_scores(torch.ones(3, 4)), r"must be \(B, B\)"),
        (lambda: smooth_triplet_from_scores(torch.ones(3, 4), temperature=1), r"must be \(B, B\)"),
        (lambda: smooth_triplet_from_scores(torch.ones(1, 1), temperature=1), "a batch of one pair has no negatives"),
        (lambda: smooth_triplet_from_scores(torch.ones(2, 2), temperature=1, reduction="avg"), "unknown reduction"),
        (lambda: triplet_from_scores(torch.ones(3, 3), [0, 1]), r"image_ids must have shape \(3,\)"),
        (lambda: TripletLoss(negatives="hard"), "did you mean 'hardest'"),
        (lambda: TripletLoss(margin=-1), "margin must be a number above 0"),
        (lambda: TripletLoss(reduction="avg"), "unknown reduction 'avg'"),
        (lambda: ContrastiveLoss(temperature=0), "temperature must be a number above 0"),
    ],
)
def test_losses_name_invalid_inputs(call, message):
    """One line that names the value and what was expected."""
    with pytest.raises(InputError, match=message):
        call()
