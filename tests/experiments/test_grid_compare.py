"""Contracts of comparing rows of an experiment, against computations written out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from vse.errors import InputError
from vse.evaluation.bootstrap import FIGURES
from vse.evaluation.metrics import DirectionMetrics, RetrievalMetrics
from vse.experiments.grid.compare import RSUM, MeasuredSeed, Row, contrast, still_rising
from vse.experiments.plan import Claim, Variant

SAMPLES = 400


def row(label, rsums, noise, *, first_seed=0, rising=False):
    """A row whose seeds have these rsums; the draws of a seed scatter around its rsum by ``noise (SAMPLES,)``."""
    seeds = []
    for number, rsum in enumerate(rsums, first_seed):
        side = DirectionMetrics(rsum / 6, rsum / 6, rsum / 6, 1.0, 1.0, 10)
        draws = np.zeros((SAMPLES, len(FIGURES)))
        draws[:, RSUM] = rsum + noise
        seeds.append(MeasuredSeed(SimpleNamespace(seed=number), RetrievalMetrics(side, side), draws))
    return Row(Variant(label, label), tuple(seeds), (rising,) * len(rsums))


CLAIM = Claim("A", "B")


def test_paired_draws_cancel_shared_scatter():
    """Draws are paired: a scatter that both rows share leaves no width, however large it is."""
    shared = np.random.default_rng(0).normal(size=SAMPLES) * 50
    found = contrast(CLAIM, row("A", [300, 300], shared), row("B", [290, 290], shared))
    assert found.value == pytest.approx(10)
    assert found.interval.low == pytest.approx(10)
    assert found.interval.high == pytest.approx(10)
    assert found.verdict == "holds"


def test_the_interval_is_over_items_and_seeds():
    """Against a loop that draws seeds with replacement and takes the middle 95 %."""
    generator = np.random.default_rng(1)
    noise = generator.normal(size=SAMPLES) * 2
    better, worse = row("A", [310, 300, 290], noise), row("B", [300, 302, 280], np.zeros(SAMPLES))
    found = contrast(CLAIM, better, worse)
    differences = np.array([10.0, -2.0, 10.0])
    assert found.by_seed == pytest.approx(differences)
    assert found.value == pytest.approx(differences.mean())
    naive = [
        np.mean([differences[generator.integers(3)] for _ in range(3)]) + noise[generator.integers(SAMPLES)]
        for _ in range(40_000)
    ]
    low, high = np.quantile(naive, [0.025, 0.975])
    assert found.interval.low == pytest.approx(low, abs=0.9)
    assert found.interval.high == pytest.approx(high, abs=0.9)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [([300], [290], "holds"), ([290], [300], "does not hold"), ([300, 290], [295, 296], "undecided")],
)
def test_claim_verdict_follows_interval(ours, theirs, verdict):
    """A claim is decided when the interval leaves zero out, one way or the other."""
    still = np.zeros(SAMPLES)
    assert contrast(CLAIM, row("A", ours, still), row("B", theirs, still)).verdict == verdict


def test_other_seeds_are_not_compared():
    """They are no pairs."""
    still = np.zeros(SAMPLES)
    with pytest.raises(InputError, match="different seeds"):
        contrast(CLAIM, row("A", [1, 2], still), row("B", [1, 2], still, first_seed=1))


def test_row_mean_and_deviation_over_seeds():
    """Over the seeds of a row; one seed has no deviation."""
    still = np.zeros(SAMPLES)
    several = row("A", [300, 310, 320], still)
    assert several.mean["rsum"] == pytest.approx(310)
    assert several.deviation["rsum"] == pytest.approx(10)
    assert row("A", [300], still).deviation is None
    assert several.finished
    assert not row("A", [300], still, rising=True).finished


@pytest.mark.parametrize(
    ("dev", "rising"),
    [
        ([100, 150, 200, 250, 300], True),
        ([100, 200, 290, 300, 300.5], False),
        ([100, 200, 300, 290, 280], False),
        ([*range(100, 200, 10), *[200] * 10], False),
        ([*[200] * 18, 210, 210], True),
        ([100], True),
    ],
)
def test_run_is_unfinished_when_still_rising(dev, rising):
    """The last fifth of the epochs is more than a point above the fifth before it; one epoch tells nothing."""
    assert still_rising(dev) is rising


def test_equal_recipes_share_run_folder():
    """Equal recipes have equal folders, other changes other ones."""
    plain, changed = Variant("a", "recipe"), Variant("b", "recipe", ("x=1",))
    assert plain.key == Variant("another label", "recipe").key == "recipe"
    assert len({plain.key, changed.key, Variant("c", "recipe", ("x=2",)).key}) == 3
