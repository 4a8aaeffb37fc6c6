"""Several models on their tests: one row each, comparisons, the published rows beside ours, JSON and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vse._util.atomic import write_text
from vse.data.dataset import IMAGES, ItemKind
from vse.errors import InputError
from vse.evaluation.bootstrap import SAMPLES, Difference
from vse.evaluation.evaluate import Result, compare, directed, evaluate
from vse.evaluation.protocols import AUTO, choose_protocols, remarks
from vse.evaluation.published import ClosestRow, closest_row, list_protocols
from vse.evaluation.ranks import Ties
from vse.evaluation.retrieval_test import ScoredModel, require_same_test
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.evaluation.coco.tasks import CocoTasks
    from vse.evaluation.retrieval_test import RetrievalTest


COLUMNS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
"""The figures of a row, in the order of the paper's tables."""
RANKS = ("i2t_median_rank", "i2t_mean_rank", "t2i_median_rank", "t2i_mean_rank")
PUBLISHED_TRAITS = ("method", "image", "backbone", "text", "image_pooling", "text_pooling")
PUBLISHED_VIDEO_TRAITS = ("method", "image", "text", "image_pooling", "text_pooling")


def heads_of(kind: ItemKind) -> tuple[str, ...]:
    """Return the headings of :data:`COLUMNS` for a kind of items."""
    letter = kind.noun[0]
    return (f"{letter}→t R@1", "R@5", "R@10", f"t→{letter} R@1", "R@5", "R@10", "rsum")


class Shown(Protocol):
    """A further report within a report."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""


@dataclass(frozen=True)
class Comparison:
    """Two results on the same test, and what differs."""

    first: str
    second: str
    protocol: str
    differences: dict[str, Difference]
    kind: ItemKind = IMAGES

    def to_json(self) -> dict[str, Any]:
        """Return every figure's difference, its interval and the verdict."""
        return {
            "first": self.first,
            "second": self.second,
            "protocol": self.protocol,
            "differences": {
                directed(self.kind, name): {"value": each.value, "interval": each.interval.to_json(), "real": each.real}
                for name, each in self.differences.items()
            },
        }


@dataclass(frozen=True)
class EvaluationReport:
    """The results of ``vse eval``.

    Attributes:
        results: one for each row and protocol.
        comparisons: other rows minus the first.
        published: the closest row of the paper, by the number of the result.
        extras: further tasks by name, one report for each row.
    """

    results: list[Result]
    comparisons: list[Comparison] = field(default_factory=list)
    published: dict[int, ClosestRow] = field(default_factory=dict)
    extras: dict[str, list[Shown]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return everything, cards included."""
        rows = [result.to_json() for result in self.results]
        for number, found in self.published.items():
            rows[number]["published"] = published_json(found, self.results[number].kind)
        return {
            "results": rows,
            "comparisons": [each.to_json() for each in self.comparisons],
            **{name: [extra.to_json() for extra in extras] for name, extras in self.extras.items()},
        }


def run_evaluation(
    members: Iterable[ScoredModel],
    *,
    protocol: str = AUTO,
    ensemble: bool = False,
    comparing: bool = False,
    against_paper: bool = False,
    coco: CocoTasks | None = None,
    ties: Ties = "pessimistic",
    samples: int = SAMPLES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> EvaluationReport:
    """Measure each model separately, or all as one ensemble.

    Models from a generator are released one by one: only an ensemble holds the scores of all.

    Args:
        members: models with their scores.
        protocol: a name, or ``auto`` for the usual protocols of the dataset.
        ensemble: average the scores of all models.
        comparing: also compare every other row with the first, and an ensemble with its members.
        against_paper: look up the closest published rows.
        coco: further tasks on COCO's captions; needs embeddings.
        ties: the tie rule.
        samples: draws for intervals.
        seed: of the draws.
        progress: shows the work.

    Raises:
        InputError: there are no models, or models of different tests are to be averaged or compared.
    """
    report = progress or SilentProgress()
    if coco is not None:
        members = list(members)
        for member in members:
            coco.check(embeddings_of(member))
    results: list[Result] = []
    published: dict[int, ClosestRow] = {}
    extras: dict[str, list[Shown]] = {}
    for group in _groups(members, ensemble=ensemble, comparing=comparing):
        test = group[0].test
        for chosen in _protocols(protocol, test):
            result = evaluate(group, chosen, ties=ties, samples=samples, seed=seed, progress=progress)
            found = find_published(result) if against_paper else None
            if found is not None:
                published[len(results)] = found
            elif against_paper:
                report.note(
                    f"the paper has no row for {result.name}, {test.about['data']} {test.about['split']}, "
                    f"{chosen.name}: another test, or nothing is known of the model"
                )
            results.append(result)
        if coco is not None:
            for name, extra in coco.evaluate(
                [embeddings_of(each) for each in group],
                ties=ties,
                samples=samples,
                seed=seed,
                against_paper=against_paper,
                progress=progress,
            ):
                extras.setdefault(name, []).append(extra)
        del group  # its scores, before the next ones are computed
    return EvaluationReport(results, _comparisons(results) if comparing else [], published, extras)


def find_published(result: Result) -> ClosestRow | None:
    """Return the paper's closest row on the same test; None where the paper has no such test."""
    foreign = remarks(result.protocol, result.card["data"], result.card["split"])
    if result.protocol.name not in list_protocols() or foreign:
        return None
    return closest_published(result.protocol.name, result.card["models"], result.kind)


def closest_published(protocol: str, models: Sequence[Mapping[str, Any]], kind: ItemKind = IMAGES) -> ClosestRow | None:
    """Return the row under ``protocol`` that is closest to a model, or to an ensemble of several.

    None if too little is known of the models.
    """
    traits: dict[str, Any] = {}
    if kind.shared_captions:  # the tables of videos name methods and no backbones
        for name in PUBLISHED_VIDEO_TRAITS:
            if name in models[0] and all(model.get(name) == models[0][name] for model in models):
                traits[name] = models[0][name]
    else:
        for name in PUBLISHED_TRAITS:
            values = sorted({str(model[name]) for model in models if name in model})
            if len(values) == 1:
                traits[name] = values[0]
            elif name == "image" and values == ["grid", "region"]:
                traits[name] = "region+grid"
        if "image" not in traits:
            return None
    return closest_row(protocol=protocol, ensemble=len(models) > 1, **traits)


def published_json(found: ClosestRow, kind: ItemKind = IMAGES) -> dict[str, Any]:
    """Return the row and what differs, as plain values."""
    row = found.row
    return {
        "method": row.method,
        "table": row.table,
        "label": row.label,
        "image": row.image,
        "backbone": row.backbone,
        "text": row.text,
        "values": {directed(kind, name): value for name, value in row.values.items()},
        "differences": {name: [str(asked), str(printed)] for name, (asked, printed) in found.differences.items()},
    }


def append_markdown(path: Path, results: list[Result]) -> None:
    """Append a row for each result to the Markdown table in ``path``, which is begun if the file is new or empty.

    Raises:
        InputError: ``path`` is not a UTF-8 text file.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path}: not a text file in UTF-8 that rows could be added to") from None
    if text and not text.endswith("\n"):
        text += "\n"
    if MARKDOWN_HEAD.splitlines()[0] not in text:  # a row without its head would not be a table
        text += ("\n" if text.strip() else "") + MARKDOWN_HEAD
    for result in results:
        figures = result.metrics.figures()
        spread = result.intervals["rsum"]
        cells = [
            result.name.replace("|", "\\|"),
            f"{result.card['data']} {result.card['split']}".replace("|", "\\|"),
            result.protocol.name,
            *(f"{figures[name]:.1f}" for name in COLUMNS),
            f"{spread.low:.1f}–{spread.high:.1f}",
        ]
        text += f"| {' | '.join(cells)} |\n"
    write_text(path, text)


MARKDOWN_HEAD = (
    f"| model | data | protocol | {' | '.join(heads_of(IMAGES))} | 95 % of rsum |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|\n"
)


def embeddings_of(member: ScoredModel) -> Any:
    """Return the embeddings of a model; a model that scores pairs has none."""
    if member.embeddings is None:
        raise InputError(f"{member.name}: no embeddings, and this task needs them: use a VSE model of images")
    return member.embeddings


def _groups(members: Iterable[ScoredModel], *, ensemble: bool, comparing: bool) -> Iterator[list[ScoredModel]]:
    """The models of each row."""
    if ensemble:
        together = list(members)
        yield together
        if comparing:
            yield from ([each] for each in together)
        return
    first: tuple[str, RetrievalTest] | None = None
    for member in members:
        if first is None:
            first = member.name, member.test
        elif comparing:
            require_same_test(*first, member)
        group = [member]
        del member
        yield group
        del group
    if first is None:
        raise InputError("nothing to evaluate: give at least one model")


def _protocols(name: str, test: RetrievalTest) -> list[Any]:
    return choose_protocols(name, test.about["data"], test.items, test.about["split"], kind=test.kind)


def _comparisons(results: Sequence[Result]) -> list[Comparison]:
    """Every other row minus the first of the same protocol."""
    found = []
    for name in dict.fromkeys(result.protocol.name for result in results):
        base, *others = [result for result in results if result.protocol.name == name]
        for row, other in enumerate(others, start=2):
            same = other.name == base.name
            names = (f"{other.name} (row {row})", f"{base.name} (row 1)") if same else (other.name, base.name)
            found.append(Comparison(*names, name, compare(other, base), base.kind))
    return found
