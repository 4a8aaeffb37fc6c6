"""What the speed experiment measures: contestants, numbers of candidates, repetitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, get_args

Contestant = Literal["vse-bert", "vse-bigru", "cross-encoder"]
CONTESTANTS: tuple[Contestant, ...] = get_args(Contestant)
BERT_BASE = (12, 12, 768, 3072)
"""Layers, heads, width, and width of the feed-forward part."""
SENTENCES = (
    "a brown dog runs across the wet sand with a red ball today",
    "two men in blue shirts stand beside an old truck near the road",
    "a woman holds a white cup while she reads under a green lamp",
    "three children play with a large kite on a hill above the lake",
    "an orange cat sleeps on a wooden chair close to the open window",
    "a young man jumps over a low fence with his old black bike",
    "many people wait for the late train on a cold and grey platform",
    "a small boat with a yellow sail drifts along the quiet river bank",
)
"""The queries, in rotation: 13 words each, which are 15 tokens for either text encoder."""


@dataclass(frozen=True)
class Profile:
    """Sizes and repetitions; the defaults are those of the paper's models, and BERT-base for either transformer.

    VSE is measured at every one of ``sizes``, the cross-encoder at the sizes of ``cross_repetitions`` (size,
    repetitions), with the fastest of ``batches``.
    """

    sizes: tuple[int, ...] = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
    repetitions: int = 24
    cross_repetitions: tuple[tuple[int, int], ...] = ((100, 5), (300, 3), (1_000, 3))
    batches: tuple[int, ...] = (8, 16, 32)
    layers: int = 12
    heads: int = 12
    width: int = 768
    feed_forward: int = 3072
    dimensions: int = 1024
    regions: int = 36
    feature_size: int = 2048
    results: int = 10

    @property
    def cross_sizes(self) -> tuple[int, ...]:
        """Where the cross-encoder is measured; beyond the last its time is extrapolated."""
        return tuple(size for size, _ in self.cross_repetitions)

    @property
    def bert_name(self) -> str:
        """The name of the transformers: BERT-base, or layers and width."""
        shape = (self.layers, self.heads, self.width, self.feed_forward)
        return "BERT-base" if shape == BERT_BASE else f"BERT {self.layers}×{self.width}"

    @property
    def labels(self) -> dict[Contestant, str]:
        """The contestants as tables and plots name them."""
        return {
            "vse-bert": f"VSE ({self.bert_name} text)",
            "vse-bigru": "VSE (BiGRU text)",
            "cross-encoder": "V+L BERT",
        }

    def bert(self) -> dict[str, Any]:
        """Return the architecture of the text encoder and of the cross-encoder, as transformers writes it."""
        return {
            "model_type": "bert",
            "vocab_size": 30522,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "hidden_size": self.width,
            "intermediate_size": self.feed_forward,
        }


QUICK = Profile(
    sizes=(10, 30, 100, 300, 1_000),
    repetitions=3,
    cross_repetitions=((10, 3), (30, 3), (100, 2)),
    batches=(8, 16),
    layers=2,
    heads=2,
    width=64,
    feed_forward=256,
    dimensions=64,
    feature_size=128,
)


@dataclass(frozen=True)
class Outcome:
    """Seconds of each repetition."""

    seconds: list[float]
    batch_size: int | None = None


Outcomes = Mapping[tuple[Contestant, int], list[Outcome]]
"""By contestant and number of candidates, one for each seed."""


@dataclass(frozen=True)
class QueryTime:
    """The time of one query; ``measured`` is False where it is extrapolated."""

    contestant: Contestant
    candidates: int
    seconds: float
    measured: bool
    repetitions: int


def query_times(outcomes: Outcomes, profile: Profile) -> list[QueryTime]:
    """Return a time for each contestant and size: the median where it was measured, else the line's value."""
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
    """Return the numbers of candidates at which a contestant is measured."""
    return profile.cross_sizes if contestant == "cross-encoder" else profile.sizes


def every_second(outcomes: list[Outcome]) -> list[float]:
    """Return the repetitions of all seeds."""
    return [seconds for outcome in outcomes for seconds in outcome.seconds]


def seconds_per_candidate(medians: Mapping[int, float]) -> float:
    """Return the slope b of the line t = b·n of least squares through measured times, b = Σ n t / Σ n².

    Through the origin: without candidates a cross-encoder does nothing.
    """
    return sum(size * seconds for size, seconds in medians.items()) / sum(size**2 for size in medians)


def largest_deviation(medians: Mapping[int, float]) -> float:
    """Return the largest relative deviation of the measured times from the line."""
    slope = seconds_per_candidate(medians)
    return max(abs(seconds / (slope * size) - 1) for size, seconds in medians.items())


def rounded(ratio: float) -> str:
    """Return a ratio with two significant digits; the others are noise."""
    return f"{float(f'{ratio:.2g}'):,.0f}" if ratio >= 10 else f"{ratio:.1f}"
