"""Measuring one contestant at one size: ready beforehand, warmed up, then asked in earnest."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from itertools import cycle, islice
from types import TracebackType
from typing import Any, Self

from vse.experiments.speed_contestants import (
    CrossContestant,
    VSEContestant,
    build_cross,
    build_vse_bert,
    build_vse_bigru,
)
from vse.experiments.speed_gallery import Gallery
from vse.experiments.speed_profile import SENTENCES, Contestant, Outcome, Profile

WARM_UP = 3


class Measurements:
    """The contestants of one seed, each made when it is first needed. Sizes have to come in ascending order."""

    def __init__(self, profile: Profile, seed: int) -> None:
        self.profile, self.seed = profile, seed

    def measure(self, contestant: Contestant, candidates: int) -> Outcome:
        """Ask often enough for a median, each time another sentence."""
        if contestant == "cross-encoder":
            return self._cross(candidates)
        return self._vse(self.bert if contestant == "vse-bert" else self.bigru, candidates)

    @cached_property
    def gallery(self) -> Gallery:
        return Gallery(self.profile.dimensions, self.seed)

    @cached_property
    def bert(self) -> VSEContestant:
        return VSEContestant(build_vse_bert(self.profile, self.seed), self.gallery, self.profile.results)

    @cached_property
    def bigru(self) -> VSEContestant:
        return VSEContestant(build_vse_bigru(self.profile, self.seed), self.gallery, self.profile.results)

    @cached_property
    def cross(self) -> CrossContestant:
        return build_cross(self.profile, self.seed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "gallery" in self.__dict__:  # made at all
            self.gallery.close()

    def _vse(self, contestant: VSEContestant, candidates: int) -> Outcome:
        contestant.prepare(candidates)
        for sentence in SENTENCES[:WARM_UP]:
            contestant.answer(sentence)
        asked = islice(cycle(SENTENCES), self.profile.repetitions)
        return Outcome([taken(contestant.answer, sentence) for sentence in asked])

    def _cross(self, candidates: int) -> Outcome:
        contestant = self.cross  # warm already: its batch size has been chosen
        contestant.prepare(candidates)
        repetitions = dict(self.profile.cross_repetitions)[candidates]
        seconds = [taken(contestant.answer, sentence) for sentence in islice(cycle(SENTENCES), repetitions)]
        return Outcome(seconds, contestant.batch_size)


def taken(function: Callable[[str], Any], sentence: str) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    function(sentence)
    return time.perf_counter() - started
