"""The learning rate of every step of small runs, against a list written down epoch by epoch."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vse.training.recipe import ScheduleRecipe
from vse.training.schedule import rate_factor


def naive_factors(schedule: ScheduleRecipe, steps_per_epoch: int) -> list[float]:
    """All factors of a run: full, then the ramp laid over, then the decay."""
    total = schedule.epochs * steps_per_epoch
    factors = [1.0] * total
    begin, length = round(schedule.warmup_from * steps_per_epoch), round(schedule.warmup_epochs * steps_per_epoch)
    for number in range(length):
        if begin + number < total:
            factors[begin + number] = (number + 1) / length
    if schedule.decay == "step":
        for step in range((schedule.epochs - schedule.decay_epochs) * steps_per_epoch, total):
            factors[step] *= schedule.decay_factor
    else:
        after = range(begin + length, total)
        for step in after:
            factors[step] = math.cos(math.pi / 2 * (step - after.start) / len(after)) ** 2  # = (1 + cos πx) / 2
    return factors


@given(
    epochs=st.integers(1, 8),
    steps_per_epoch=st.integers(1, 9),
    warmup_from=st.sampled_from([0, 0.5, 1, 2.25, 20]),
    warmup_epochs=st.sampled_from([0, 0.1, 1, 1.5, 30]),
    decay=st.sampled_from(["step", "cosine"]),
    decay_epochs=st.integers(0, 8),
    decay_factor=st.sampled_from([0.1, 0.5]),
)
def test_every_step_of_a_run(epochs, steps_per_epoch, warmup_from, warmup_epochs, decay, decay_epochs, decay_factor):
    """Any schedule, any length of epoch."""
    assume(decay_epochs < epochs)
    schedule = ScheduleRecipe(
        epochs=epochs,
        warmup_from=warmup_from,
        warmup_epochs=warmup_epochs,
        decay=decay,
        decay_epochs=decay_epochs,
        decay_factor=decay_factor,
    )
    found = [rate_factor(schedule, step, steps_per_epoch) for step in range(epochs * steps_per_epoch)]
    assert found == pytest.approx(naive_factors(schedule, steps_per_epoch), abs=1e-12)
    assert all(0 < factor <= 1 for factor in found)


def test_the_schedule_of_the_paper():
    """25 epochs, the last ten at a tenth: the change comes with the first step of epoch 16."""
    schedule = ScheduleRecipe(epochs=25, decay="step", decay_epochs=10, decay_factor=0.1)
    found = [rate_factor(schedule, step, 4) for step in range(100)]
    assert found == [1.0] * 60 + [0.1] * 40


def test_a_warm_up_in_the_second_epoch():
    """Epoch 1 has the full rate; epoch 2 begins at one step's share, not at 0, and ends at the full rate."""
    schedule = ScheduleRecipe(epochs=4, warmup_from=1, warmup_epochs=1, decay_epochs=0)
    assert [rate_factor(schedule, step, 4) for step in range(12)] == [1] * 4 + [0.25, 0.5, 0.75, 1] + [1] * 4


def test_the_cosine_begins_full_and_ends_near_nothing():
    """Full right after the warm-up, half in the middle of the rest, positive on the last step."""
    schedule = ScheduleRecipe(epochs=5, warmup_epochs=1, decay="cosine")
    found = [rate_factor(schedule, step, 10) for step in range(50)]
    assert found[9] == found[10] == 1
    assert found[30] == pytest.approx(0.5)
    assert 0 < found[49] < 0.01
    assert found[10:] == sorted(found[10:], reverse=True)
