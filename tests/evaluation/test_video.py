"""Contracts of the evaluation of video–text retrieval."""

from __future__ import annotations

import json
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evaluation import naive
from tests.evaluation.support import evaluate_scores, video_test

from vse.data.dataset import VIDEOS, CaptionedImages, FeatureRows
from vse.errors import InputError
from vse.evaluation import DotScores, MatrixScores
from vse.evaluation.protocols import VIDEO_PROTOCOLS, choose_protocols
from vse.evaluation.published import load_table
from vse.evaluation.report import COLUMNS, heads_of, run_evaluation
from vse.evaluation.retrieval_test import ScoredModel


def split(captions: list[str], owners: list[int], videos: int) -> CaptionedImages:
    images = FeatureRows(np.zeros((videos, 2), "float32"), np.arange(videos), tuple(f"v{i}" for i in range(videos)))
    return CaptionedImages("msvd", "test", "hgr", images, tuple(captions), np.array(owners, dtype=np.int64))


@st.composite
def problems(draw):
    """A few videos, captions out of a handful so that videos share them, and scores with many ties."""
    videos = draw(st.integers(1, 6))
    pairs = draw(st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(0, videos - 1)), min_size=1, max_size=15))
    data = split([caption for caption, _ in pairs], [owner for _, owner in pairs], videos)
    distinct = len({caption for caption, _ in pairs})
    scores = draw(
        st.lists(st.lists(st.integers(0, 3), min_size=distinct, max_size=distinct), min_size=videos, max_size=videos)
    )
    return data, [[float(score) for score in row] for row in scores]


@given(problems(), st.booleans())
def test_both_directions_equal_the_definition(problem, optimistic):
    """Ranks of distinct sentences and of videos, straight from the captions: a caption is right where it stands."""
    data, matrix = problem
    test = video_test(data)
    assert sorted(test.texts) == sorted(set(data.captions))
    right = [{j for j, s in enumerate(test.texts) if s in data.captions_of(i)} for i in range(len(data.images))]
    turned = [list(column) for column in zip(*matrix, strict=True)]
    owners = [{i for i in range(len(right)) if j in right[i]} for j in range(len(test.texts))]
    result = evaluate_scores(MatrixScores(np.array(matrix)), test, ties="optimistic" if optimistic else "pessimistic")
    for side, scores, positives in ((result.metrics.i2t, matrix, right), (result.metrics.t2i, turned, owners)):
        found = naive.ranks(scores, positives, 0.0, optimistic=optimistic)
        assert [side.r1, side.r5, side.r10] == pytest.approx([naive.recall(found, k) for k in (1, 5, 10)])
        assert side.median_rank == naive.median(found)
        assert side.mean_rank == pytest.approx(naive.mean(found))


def test_a_shared_sentence_is_one_candidate():
    """Two videos with the same caption: it is ranked once, and right for both, so that everything is found first."""
    test = video_test(split(["a man", "a man", "a dog"], [0, 1, 2], 3))
    assert test.texts == ("a man", "a dog")
    result = evaluate_scores(DotScores(np.array([[1.0, 0], [1, 0], [0, 1]]), np.eye(2)), test)
    assert result.metrics.rsum == 600
    assert (result.metrics.i2t.queries, result.metrics.t2i.queries) == (3, 2)
    assert result.card["shared_sentences"] == 1


def test_a_row_of_the_table():
    """Seven cells in the paper's order, one decimal, the last the sum of the unrounded six; JSON names directions."""
    test = video_test(split(list("abc"), [0, 1, 2], 3))
    scores = np.array([[3.0, 2, 1], [3, 2, 1], [3, 2, 1]])
    result = evaluate_scores(MatrixScores(scores), test, name="[x]")
    assert len(heads_of(result.kind)) == len(COLUMNS) == 7
    figures = result.metrics.figures()
    assert [f"{figures[name]:.1f}" for name in COLUMNS] == ["33.3", "100.0", "100.0", "0.0", "100.0", "100.0", "433.3"]
    told = json.loads(json.dumps(result.to_json()))
    assert told["metrics"]["v2t"]["r1"] == pytest.approx(100 / 3)
    assert told["metrics"]["t2v"]["median_rank"] == 3


def test_the_card_tells_what_was_left_out():
    """Dropped videos and remarks of a split are in the card and below the table."""
    data = split(["a"], [0], 1)
    object.__setattr__(data, "dropped", ("v7",))
    object.__setattr__(data, "remarks", ("a half",))
    result = evaluate_scores(MatrixScores(np.ones((1, 1))), video_test(data))
    assert (result.card["dropped"], result.card["remarks"]) == (["v7"], ["a half"])


NAMED = (
    ("msrvtt", "test", 2990),
    ("MSRVTT", "Test", 2990),
    ("Vatex", "test-1500", 1500),
    ("msrvtt", "test", 2989),
    ("msrvtt-7k", "test", 2990),
)


def test_only_the_papers_tests_have_its_protocol():
    """The names are those of the published tables, in whatever case; another split, or a part of one, has none."""
    assert {each.name for each in VIDEO_PROTOCOLS.values()} == {row.protocol for row in load_table("video")}
    found = [choose_protocols("auto", name, videos, part, kind=VIDEOS)[0].name for name, part, videos in NAMED]
    assert found == ["msrvtt", "msrvtt", "vatex", "all", "all"]
    test = video_test(split(["a"], [0], 1))
    assert evaluate_scores(MatrixScores(np.ones((1, 1))), test).card["protocol"] == "all"


def test_published_figures_are_called_as_ours():
    """In the JSON of a report both directions are those of videos, whoever measured them."""
    captions = [f"sentence {i}" for i in range(2990)]
    images = split(captions, list(range(2990)), 2990).images
    data = CaptionedImages("msrvtt", "test", "msrvtt", images, tuple(captions), np.arange(2990))
    vectors = np.random.default_rng(0).standard_normal((2990, 4)).astype(np.float32)
    model = ScoredModel("ours", "0", {"method": "HGR"}, video_test(data), DotScores(vectors, vectors))
    report = run_evaluation([model] * 2, against_paper=True, comparing=True, samples=2)
    (first, _), (compared,) = (report.to_json()[key] for key in ("results", "comparisons"))
    figures = set(first["intervals"])
    assert {"v2t_r1", "t2v_r10", "t2v_mean_rank", "rsum"} < figures
    assert set(compared["differences"]) == figures
    assert {"v2t_r1", "t2v_r10", "rsum"} <= set(first["published"]["values"]) <= figures


def test_scores_are_let_go_model_by_model():
    """Of models that are made as they are asked for only one is held at a time; an ensemble has them all."""
    test = video_test(split(["a", "b"], [0, 1], 2))
    for ensemble, most in ((False, 1), (True, 3)):
        alive: list[weakref.ref[MatrixScores]] = []
        seen = []

        def models(alive=alive, seen=seen):
            for number in range(3):
                scores = MatrixScores(np.eye(2) * number)
                alive.append(weakref.ref(scores))
                seen.append(sum(each() is not None for each in alive))
                yield ScoredModel(str(number), "0", {}, test, scores)
                del scores

        report = run_evaluation(models(), ensemble=ensemble, samples=2)
        assert len(report.results) == (1 if ensemble else 3)
        assert max(seen) == most
    with pytest.raises(InputError, match="nothing to evaluate"):
        run_evaluation([])


def test_video_evaluation_refuses_mismatched_scores():
    """A split without captions, and scores of another size than the test."""
    with pytest.raises(InputError, match="no captions"):
        video_test(split([], [], 2))
    with pytest.raises(InputError, match="1 queries and 1 candidates"):
        evaluate_scores(MatrixScores(np.ones((1, 2))), video_test(split(["a"], [0], 1)))
