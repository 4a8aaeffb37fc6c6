"""Tables of evaluation results."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from tests.evaluation.support import evaluate_embeddings, evaluate_scores, video_test
from tests.evaluation.test_embeddings import make
from tests.evaluation.test_report import F30K, REGION, result
from tests.evaluation.test_video import split

from vse.cli.render import render
from vse.evaluation import MatrixScores
from vse.evaluation.bootstrap import Interval
from vse.evaluation.evaluate import compare
from vse.evaluation.protocols import Protocol
from vse.evaluation.report import Comparison, EvaluationReport, find_published


def rendered(report: EvaluationReport, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    render(report, console)
    return console.file.getvalue()


def flat(report: EvaluationReport) -> str:
    """The report without line breaks."""
    return " ".join(rendered(report, width=200).split())


def test_evaluation_table_fits_80_columns():
    """Intervals and model names are not truncated."""
    found = result(model="a-model-with-a-name", fingerprint="abc123")
    wide = replace(found, intervals=dict.fromkeys(found.intervals, Interval(98.76, 543.21)))
    lines = rendered(EvaluationReport([wide]), width=80).splitlines()
    table = [line for line in lines if line.startswith("│")]
    assert max(map(len, table)) <= 80
    assert "\n".join(table).count("98.8–") == "\n".join(table).count("543.2") == 7
    assert "a-model-with-a-name" in "".join(line.split("│")[1].strip() for line in table)


def test_evaluation_table_shows_figures_intervals_and_card():
    """Recall both ways, rsum, ranks and intervals of a model; below the table the card of the test."""
    found = result(model="mine", fingerprint="abc123")
    text = rendered(EvaluationReport([found]))
    figures = found.metrics.figures()
    for part in ("i→t", "t→i", "R@1", "R@5", "R@10", "rsum", "mean rank", "mine", "all: "):
        assert part in text
    for name in ("i2t_r1", "t2i_r1", "rsum"):
        assert f"{figures[name]:.1f}" in text
    joined = flat(EvaluationReport([found]))
    assert "95 %" in joined
    for part in (
        "toys test (content 0000000000000000)",
        "4 images, 7 texts",
        "1–3 captions per image",
        "mine (abc123)",
    ):
        assert part in joined
    assert "Ties pessimistic" in joined
    assert "any-hit" in joined
    assert "20 bootstrap samples" in joined


def test_evaluation_draws_one_table_per_protocol():
    """Results of different protocols are never in one table."""
    text = rendered(EvaluationReport([result(model="one"), result(F30K, model="two"), result(model="three")]))
    assert text.count("i→t") == 2
    assert text.index("three") < text.index("flickr30k-1k: as on Flickr30K") < text.index("two")


def test_evaluation_card_shows_folds_and_captions_per_image():
    """A constant number of captions is shown as one number."""
    two = Protocol("two", "two folds of two", 4, 2, 2)
    found = evaluate_embeddings([make([0, 1, 2, 3], 4)], two, samples=2)
    assert "gallery 2 images, 2 texts, 2 folds, 1 captions per image" in flat(EvaluationReport([found]))


def test_evaluation_draws_comparisons():
    """Every figure's difference with its interval and verdict."""
    first, second = result(model="one"), result(model="two", seed=5)
    comparison = Comparison("two", "one", "all", compare(second, first))
    text = rendered(EvaluationReport([first, second], [comparison]))
    assert "two minus one (all)" in text
    for name in ("i2t_r1", "rsum", "t2i_mean_rank"):
        assert name in text
    assert ("may be chance" in text) or ("real" in text)


def test_evaluation_shows_published_row():
    """Below ours, with its method and encoders."""
    found = result(F30K, traits=REGION)
    row = find_published(found)
    assert row is not None
    text = flat(EvaluationReport([found], published={0: row}))
    assert "VSE∞ (region, BUTD, bigru)" in text
    assert f"{row.row.values['i2t_r1']:.1f}" in text


@pytest.mark.parametrize("name", ["[bold]best[/bold]", "run[/2]"])
def test_evaluation_prints_model_names_without_markup(name):
    """Brackets in a name are not markup."""
    assert name in rendered(EvaluationReport([result(model=name)]), width=200)


def test_evaluation_reports_how_published_row_differs():
    """With another pooling the closest row is shown, and the difference is named."""
    found = result(F30K, traits={**REGION, "image_pooling": "max"})
    row = find_published(found)
    assert row is not None
    assert "image_pooling max here" in flat(EvaluationReport([found], published={0: row}))


def test_evaluation_of_videos_shows_sentences_and_excluded_videos():
    """The card has the distinct sentences, remarks, and the videos without frames."""
    data = split(list("abc"), [0, 1, 2], 3)
    object.__setattr__(data, "dropped", ("v7",))
    object.__setattr__(data, "remarks", ("a half",))
    text = flat(EvaluationReport([evaluate_scores(MatrixScores(np.eye(3)), video_test(data), name="[x]")]))
    for part in ("[x]", "v→t", "3 distinct sentences of 3 captions", "Note: a half.", "excluded, the first is v7"):
        assert part in text
