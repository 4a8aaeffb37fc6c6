"""Several models on one test of videos: a table, comparisons, the published rows beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from vse.errors import InputError
from vse.evaluation.bootstrap import SAMPLES, differences
from vse.evaluation.published import ClosestRow, closest_row
from vse.evaluation.ranks import Ties
from vse.evaluation.report import Comparison, published_json
from vse.evaluation.scores import MeanScores, Scores
from vse.evaluation.video import VideoResult, VideoTest, directed, evaluate_videos
from vse.progress import ProgressReporter, SilentProgress


@dataclass(frozen=True, eq=False)
class ScoredModel:
    """What a model says about a test; ``traits`` are its properties in the words of the published tables."""

    name: str
    fingerprint: str
    traits: dict[str, str]
    scores: Scores
    note: str = ""


@dataclass(frozen=True)
class VideoReport:
    """What ``vse eval`` shows for videos."""

    results: list[VideoResult]
    comparisons: list[Comparison] = field(default_factory=list)
    published: dict[int, ClosestRow] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Everything, cards included."""
        rows = [result.to_json() for result in self.results]
        for number, found in self.published.items():
            rows[number]["published"] = _directed_under("values", published_json(found))
        compared = [_directed_under("differences", each.to_json()) for each in self.comparisons]
        return {"results": rows, "comparisons": compared}


def evaluate_on_videos(
    members: Iterable[ScoredModel],
    test: VideoTest,
    *,
    ensemble: bool = False,
    comparing: bool = False,
    against_paper: bool = False,
    ties: Ties = "pessimistic",
    samples: int = SAMPLES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> VideoReport:
    """Each model by itself, or all as one ensemble (the mean of their scores); ``comparing`` also to the first row.

    Models that are made as they are asked for are let go one by one: only an ensemble holds the scores of all.
    """
    report = progress or SilentProgress()
    if against_paper and test.protocol is None:
        report.note(f"the paper has no rows for {test.about['data']} {test.about['split']}")
    results: list[VideoResult] = []
    published: dict[int, ClosestRow] = {}
    for group in _groups(members, ensemble=ensemble, comparing=comparing):
        if against_paper and test.protocol is not None:
            published[len(results)] = _closest(test.protocol, group)
        results.append(
            evaluate_videos(
                group[0].scores if len(group) == 1 else MeanScores([each.scores for each in group]),
                test,
                name=" + ".join(each.name for each in group),
                ties=ties,
                samples=samples,
                seed=seed,
                models=[_card(each) for each in group],
                progress=report,
            )
        )
        del group  # its scores, before the next ones are computed
    return VideoReport(results, _comparisons(results) if comparing else [], published)


def _groups(members: Iterable[ScoredModel], *, ensemble: bool, comparing: bool) -> Iterator[list[ScoredModel]]:
    """The models of each row."""
    left = iter(members)
    first = next(left, None)
    if first is None:
        raise InputError("nothing to evaluate: give at least one model")
    if not ensemble:
        yield [first]
        del first
        yield from map(_alone, left)
        return
    together = [first, *left]
    yield together
    if comparing:
        yield from map(_alone, together)


def _alone(model: ScoredModel) -> list[ScoredModel]:
    return [model]


def _closest(protocol: str, group: Sequence[ScoredModel]) -> ClosestRow:
    """The published row nearest to what the members have in common."""
    common: dict[str, Any] = {
        name: value
        for name, value in group[0].traits.items()
        if name in {"method", "image", "text", "image_pooling", "text_pooling"}
        and all(each.traits.get(name) == value for each in group)
    }
    return closest_row(protocol=protocol, ensemble=len(group) > 1, **common)


def _comparisons(results: Sequence[VideoResult]) -> list[Comparison]:
    base, *others = results
    found = []
    for other in others:
        if base.draws is None or other.draws is None:
            raise InputError("results without draws cannot be compared: evaluate them with samples")
        paired = differences(other.metrics, base.metrics, other.draws, base.draws)
        found.append(Comparison(other.name, base.name, base.card["protocol"], paired))
    return found


def _directed_under(key: str, plain: dict[str, Any]) -> dict[str, Any]:
    """``plain`` with the figures under ``key`` called as those of videos are."""
    return plain | {key: {directed(name): each for name, each in plain[key].items()}}


def _card(model: ScoredModel) -> dict[str, Any]:
    note = {"role_graphs": model.note} if model.note else {}
    return {"name": model.name, "fingerprint": model.fingerprint, **model.traits, **note}
