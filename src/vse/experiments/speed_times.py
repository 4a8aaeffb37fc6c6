"""From single measurements to the times of the table: medians, and the cross-encoder's straight line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from vse.experiments.speed_profile import CONTESTANTS, Contestant, Outcome, Profile

Outcomes = Mapping[tuple[Contestant, int], list[Outcome]]
"""By contestant and number of candidates, one for each seed."""


@dataclass(frozen=True)
class QueryTime:
    """What one query takes. ``measured`` is False where the straight line was continued."""

    contestant: Contestant
    candidates: int
    seconds: float
    measured: bool
    repetitions: int


def query_times(outcomes: Outcomes, profile: Profile) -> list[QueryTime]:
    """A time for each contestant and size: the median where it was measured, else the line's value."""
    times: list[QueryTime] = []
    for contestant in CONTESTANTS:
        measured = {size: every_second(outcomes[contestant, size]) for size in measured_sizes(contestant, profile)}
        times += [QueryTime(contestant, size, median(each), True, len(each)) for size, each in measured.items()]
        beyond = [size for size in profile.sizes if size not in measured]
        if beyond:
            slope = seconds_per_candidate({size: median(each) for size, each in measured.items()})
            times += [QueryTime(contestant, size, slope * size, False, 0) for size in beyond]
    return times


def measured_sizes(contestant: Contestant, profile: Profile) -> tuple[int, ...]:
    """The numbers of candidates at which a contestant is measured."""
    return profile.cross_sizes if contestant == "cross-encoder" else profile.sizes


def every_second(outcomes: list[Outcome]) -> list[float]:
    """The repetitions of all seeds."""
    return [seconds for outcome in outcomes for seconds in outcome.seconds]


def seconds_per_candidate(medians: Mapping[int, float]) -> float:
    """The slope b of the line t = b·n of least squares through measured times, b = Σ n t / Σ n².

    Through the origin: without a candidate a cross-encoder has nothing to do.
    """
    return sum(size * seconds for size, seconds in medians.items()) / sum(size**2 for size in medians)


def largest_deviation(medians: Mapping[int, float]) -> float:
    """How far the measured times are from the line at most, as a part of the line's value."""
    slope = seconds_per_candidate(medians)
    return max(abs(seconds / (slope * size) - 1) for size, seconds in medians.items())


def rounded(ratio: float) -> str:
    """Two digits of a ratio: the others are noise."""
    return f"{float(f'{ratio:.2g}'):,.0f}" if ratio >= 10 else f"{ratio:.1f}"
