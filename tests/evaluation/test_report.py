"""Evaluation reports: JSON, Markdown, and the closest published row."""

from __future__ import annotations

import json

import pytest
from tests.evaluation.support import evaluate_embeddings
from tests.evaluation.test_embeddings import make

from vse.evaluation.evaluate import compare
from vse.evaluation.models import model_names
from vse.evaluation.protocols import PROTOCOLS, Protocol
from vse.evaluation.report import (
    Comparison,
    EvaluationReport,
    append_markdown,
    find_published,
)

OWNERS = [0, 0, 1, 2, 2, 2, 3]
ALL = PROTOCOLS["all"]
F30K = Protocol("flickr30k-1k", "as on Flickr30K", 4)  # its name on a split of test size
REGION = {"image": "region", "text": "bigru", "image_pooling": "gpo", "text_pooling": "gpo"}


def result(protocol: Protocol = ALL, *, seed: int = 0, **header):
    return evaluate_embeddings([make(OWNERS, 4, seed=seed, **header)], protocol, samples=20)


class TestJson:
    """``to_json``."""

    def test_report_json(self):
        """Results with their published rows, comparisons and other tasks, in one object without NaN."""

        class Extra:
            def to_json(self):
                return {"r1": 1.0}

        first, second = result(F30K, traits=REGION), result(F30K, seed=3)
        row = find_published(first)
        assert row is not None
        comparisons = [Comparison("b", "a", "flickr30k-1k", compare(second, first))]
        found = EvaluationReport([first, second], comparisons, {0: row}, {"cxc": [Extra()]}).to_json()
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        printed = found["results"][0]["published"]
        assert (printed["method"], printed["values"]) == ("VSE∞", dict(row.row.values))
        assert "published" not in found["results"][1]
        difference = found["comparisons"][0]["differences"]["rsum"]
        assert set(difference) == {"value", "interval", "real"}
        assert found["cxc"] == [{"r1": 1.0}]


class TestMarkdown:
    """``append_markdown``."""

    def test_it_begins_a_table_and_then_adds_rows(self, tmp_path):
        """The first call writes the head, the next only rows; what stands there is kept to the byte."""
        path = tmp_path / "new" / "results.md"
        append_markdown(path, [result(model="one")])
        before = path.read_text(encoding="utf-8")
        head, rule, row = before.splitlines()
        assert head.count("|") == rule.count("|") == row.count("|")
        assert row.startswith("| one | toys test | all | ")
        append_markdown(path, [result(model="two"), result(model="three")])
        after = path.read_text(encoding="utf-8")
        assert after.startswith(before)
        assert [line.split(" | ")[0] for line in after[len(before) :].splitlines()] == ["| two", "| three"]

    @pytest.mark.parametrize("text", ["", "\n \n", "| a |\n|---|", "# Results\n"])
    def test_markdown_report_keeps_other_text(self, tmp_path, text):
        """A row stands under the head of its table; other text is kept, with an empty line between."""
        path = tmp_path / "results.md"
        path.write_text(text)
        append_markdown(path, [result()])
        whole = path.read_text(encoding="utf-8")
        found = whole.splitlines()
        assert whole.startswith(text)
        assert found[-3].startswith("| model |")
        assert found[-1].startswith("| tiny |")
        if text.strip():
            assert found[-4] == ""

    def test_report_figures(self, tmp_path):
        """Six recalls, rsum and its interval, to one place."""
        found = result()
        append_markdown(tmp_path / "results.md", [found])
        cells = (tmp_path / "results.md").read_text(encoding="utf-8").splitlines()[-1].strip("| ").split(" | ")
        figures, spread = found.metrics.figures(), found.intervals["rsum"]
        names = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
        assert cells[3:] == [*(f"{figures[name]:.1f}" for name in names), f"{spread.low:.1f}–{spread.high:.1f}"]

    def test_pipes_in_a_name(self, tmp_path):
        """They would end the cell, and are escaped."""
        append_markdown(tmp_path / "results.md", [result(model="a|b")])
        row = (tmp_path / "results.md").read_text(encoding="utf-8").splitlines()[-1]
        assert row.startswith("| a\\|b | toys test |")

    def test_pipes_in_the_data(self, tmp_path):
        """The dataset's folder may have one too."""
        append_markdown(tmp_path / "results.md", [result(data="a|b")])
        assert "| a\\|b test |" in (tmp_path / "results.md").read_text(encoding="utf-8")


class TestPublished:
    """``find_published``."""

    def test_the_papers_row_of_the_same_configuration(self):
        """Region features with a BiGRU and two GPOs are VSE∞ on BUTD regions, with all its figures."""
        found = find_published(result(F30K, traits=REGION))
        assert found is not None
        row = found.row
        assert (row.method, row.image, row.backbone, row.text) == ("VSE∞", "region", "BUTD", "bigru")
        assert (row.protocol, row.ensemble, row.image_pooling, row.text_pooling) == (
            "flickr30k-1k",
            False,
            "gpo",
            "gpo",
        )
        assert (row.values["i2t_r1"], row.values["t2i_r1"], row.values["rsum"]) == (76.5, 56.4, 498.1)

    def test_an_ensemble_that_the_paper_has_not_is_told_apart(self):
        """The row of one model stands beside it with the remark that it is none."""
        members = [make(OWNERS, 4, seed=seed, traits=REGION) for seed in (0, 1)]
        row = find_published(evaluate_embeddings(members, F30K, samples=2))
        assert row is not None
        assert row.row.ensemble or row.differences["ensemble"] == (True, False)

    def test_region_and_grid_together(self):
        """An ensemble of both is the paper's Region+Grid, with the text encoder that they share."""
        grid = {**REGION, "image": "grid", "backbone": "BUTD", "text": "bert"}
        members = [make(OWNERS, 4, traits={**REGION, "text": "bert"}), make(OWNERS, 4, seed=1, traits=grid)]
        found = find_published(evaluate_embeddings(members, F30K, samples=2))
        assert found is not None
        assert (found.row.image, found.row.text, found.row.ensemble) == ("region+grid", "bert", True)

    def test_report_names_differences_to_published_row(self):
        """Another pooling gets the closest row, and the difference by name."""
        found = find_published(result(F30K, traits={**REGION, "image_pooling": "max"}))
        assert found is not None
        assert found.differences["image_pooling"][0] == "max"

    def test_another_data_set_has_no_published_row(self):
        """Flickr8k under Flickr30K's protocol is said in the card, and not put beside Flickr30K's figures."""
        real = Protocol("flickr30k-1k", "", 4, data=("f30k", "flickr30k"))
        found = result(real, traits=REGION, data="flickr8k")
        assert find_published(found) is None
        assert any("defined for f30k, this is flickr8k" in remark for remark in found.card["remarks"])

    def test_embeddings_of_an_unknown_model_have_none(self):
        """Nothing is known that could be compared."""
        assert find_published(result(F30K)) is None

    def test_report_without_published_row(self):
        """The paper has no row for galleries of another kind."""
        assert find_published(result(traits=REGION)) is None
        first = Protocol("coco-1k-first-fold", "", 4)
        assert find_published(result(first, traits=REGION)) is None


def test_models_of_two_runs_have_different_names(tmp_path):
    """Links of run folders are called after their run, not after the model that they point to."""
    for run in ("first", "second"):
        (tmp_path / run / "model-00000062").mkdir(parents=True)
        (tmp_path / run / "best").symlink_to("model-00000062")
    assert model_names([tmp_path / "first" / "best", tmp_path / "second" / "best"]) == ["first-best", "second-best"]
    same = [tmp_path / "first" / "model-00000062", "owner/model", tmp_path / "second" / "model-00000062"]
    assert model_names(same) == ["first-model-00000062", "owner-model", "second-model-00000062"]
    for place in ("x/m", "y/m"):
        (tmp_path / place).mkdir(parents=True)
    assert model_names([tmp_path / "x/m", tmp_path / "y/m"]) == ["x-m", "y-m"]
    assert model_names([tmp_path / "x/m", tmp_path / "x/m"]) == ["m", "m"]
