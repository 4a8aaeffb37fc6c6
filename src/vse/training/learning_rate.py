"""The learning rate over a run, as a factor of the full one."""

from __future__ import annotations

import math

from vse.training.recipe import ScheduleRecipe


def rate_factor(schedule: ScheduleRecipe, step: int, steps_per_epoch: int) -> float:
    """Between 0 and 1 for step 0, 1, …

    Warm-up: step k of n has the factor (k + 1) / n, so that no step is lost and the last one has the full rate. After
    it, ``step`` decay multiplies by ``decay_factor`` in the last ``decay_epochs``; ``cosine`` follows
    ``(1 + cos πx) / 2`` from the end of the warm-up (x = 0) to the end of the run (x = 1).
    """
    epoch = step / steps_per_epoch
    begin = round(schedule.warmup_from * steps_per_epoch)
    length = round(schedule.warmup_epochs * steps_per_epoch)
    warm = (step - begin + 1) / length if begin <= step < begin + length else 1.0
    if schedule.decay == "step":
        late = schedule.decay_epochs > 0 and epoch >= schedule.epochs - schedule.decay_epochs
        return warm * (schedule.decay_factor if late else 1.0)
    total = schedule.epochs * steps_per_epoch
    if step < begin + length:
        return warm
    passed = (step - begin - length) / max(1, total - begin - length)
    return 0.5 * (1 + math.cos(math.pi * passed))
