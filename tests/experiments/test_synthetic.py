"""The synthetic experiment: what it measures, what its training may look at, and its table."""

import pytest
import torch

from vse.experiments.synthetic import seeds_of
from vse.experiments.synthetic_report import PAPER, SyntheticResult, short
from vse.experiments.synthetic_task import DESIGNS, PATTERNS, SIZE_RANGES, Outcome, Profile, coefficient_error, train
from vse.pooling import AvgPool, KMaxPool, MaxPool, RankPooling

TINY = Profile(steps=20, sets=4, width=8, warm_up=5)


def test_error_is_per_size_then_averaged():
    """The figure is the mean over sizes of each size's own root mean square error."""
    sizes = range(2, 5)
    by_hand = []
    for n in sizes:
        squares = [(1 / n - (1.0 if k == 0 else 0.0)) ** 2 for k in range(n)]
        by_hand.append((sum(squares) / n) ** 0.5)
    assert coefficient_error(AvgPool(), MaxPool(), sizes) == pytest.approx(sum(by_hand) / 3, abs=1e-7)
    assert coefficient_error(KMaxPool(3), KMaxPool(3), sizes) == 0


@pytest.mark.parametrize("design", DESIGNS)
def test_same_seed_same_outcome(design):
    """A run depends on its seed and on nothing else."""
    torch.rand(7)  # the global generator must not matter
    first = train(design, "M-10", 3, TINY)
    torch.rand(5)
    second = train(design, "M-10", 3, TINY)
    other = train(design, "M-10", 4, TINY)
    assert first.errors == second.errors
    assert first.curves == second.curves
    assert other.loss != first.loss


def test_training_never_asks_for_coefficients(monkeypatch):
    """The loss sees pooled outputs only: neither pooling's coefficients are looked at while training."""
    from vse.experiments import synthetic_task

    def refuse(self, size):
        raise AssertionError("training looked at coefficients")

    monkeypatch.setattr(RankPooling, "coefficients", refuse)
    monkeypatch.setattr(RankPooling, "table", refuse)
    loss = synthetic_task.imitate(synthetic_task.GPO(), KMaxPool(5), 0, TINY)
    assert loss > 0


def test_gpo_finds_max_pooling():
    """A short training is enough for the paper's design to find max pooling, on sizes it saw and on others."""
    outcome = train("Cos/Sin + BiGRU", "M-1", 0, Profile(steps=150, sets=8, width=16))
    assert outcome.errors["seen"] < 0.008
    assert outcome.errors["smaller"] < 0.013
    assert outcome.errors["larger"] < 0.007


def test_synthetic_default_seeds():
    """Five seeds for the paper's own design, at least two for the others; the caller may name others."""
    assert seeds_of("Cos/Sin + BiGRU", quick=False, seeds=None) == (0, 1, 2, 3, 4)
    assert all(len(seeds_of(design, quick=False, seeds=None)) >= 2 for design in DESIGNS)
    assert seeds_of("Index + Interp.", quick=False, seeds=(7,)) == (7,)


def test_table_takes_the_median_and_counts_the_entries(tmp_path):
    """An entry is the median over seeds, and an entry is good up to 0.003 above the published figure."""

    def outcome(extra):
        return Outcome(errors=dict.fromkeys(SIZE_RANGES, extra), curves={}, loss=0.0, seconds=1.0)

    outcomes = {
        (design, pattern): [outcome(0.0029), outcome(9.0), outcome(0.0)] for design in DESIGNS for pattern in PATTERNS
    }
    result = SyntheticResult(Profile(), False, {design: [0, 1, 2] for design in DESIGNS}, outcomes, 1.0, tmp_path)
    assert result.error("Cos/Sin + BiGRU", "A", "seen") == 0.0029
    assert result.within_tolerance() == (15, 15)
    outcomes["Cos/Sin + BiGRU", "A"] = [outcome(0.0031)]
    assert result.within_tolerance() == (13, 15)  # seen and larger are zero in the paper, smaller is .002
    assert "| Cos/Sin + BiGRU | 3 | .003 |" in result.markdown()


def test_published_table_is_whole():
    """Every entry of the paper's table is there, and its best design is the best in sum."""
    assert set(PAPER) == set(DESIGNS)
    assert all(set(row) == set(PATTERNS) for row in PAPER.values())
    totals = {design: sum(map(sum, row.values())) for design, row in PAPER.items()}
    assert min(totals, key=totals.get) == "Cos/Sin + BiGRU"


@pytest.mark.parametrize(("value", "text"), [(0.0004, "0"), (0.0046, ".005"), (0.1414, ".141"), (1.5, "1.500")])
def test_figures_are_printed_as_the_paper_prints_them(value, text):
    """Three decimals, no leading zero, a bare 0 for what rounds to it."""
    assert short(value) == text
