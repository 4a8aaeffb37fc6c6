"""Contracts of a result: its figures, ensembles, comparisons and card."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evaluation import naive
from tests.evaluation.support import evaluate_embeddings
from tests.evaluation.test_embeddings import make

from vse import __version__
from vse.errors import InputError
from vse.evaluation import retrieval_metrics
from vse.evaluation.bootstrap import FIGURES
from vse.evaluation.embeddings import Embeddings
from vse.evaluation.evaluate import Result, compare
from vse.evaluation.protocols import PROTOCOLS, Protocol

ALL = PROTOCOLS["all"]
TINY = Protocol("tiny", "two folds of four", 8, 4, 2)
OWNERS = [0, 0, 1, 2, 2, 2, 3, 4, 5, 5, 6, 7, 7, 7, 7]


def naive_figures(members: list[Embeddings], optimistic: bool = False) -> dict[str, float]:
    """The mean of whole score matrices, ranked by hand."""
    first = members[0]
    matrix = naive.mean_matrix([naive.score_matrix(each.images, each.texts) for each in members])
    right = [{j for j, owner in enumerate(first.text_to_image) if owner == i} for i in range(len(first.images))]
    columns = len(first.texts)
    turned = naive.transposed(matrix, columns), naive.seen_from_candidates(right, columns)
    figures = {}
    for way, case in (("i2t", (matrix, right)), ("t2i", turned)):
        found = naive.ranks(*case, 1e-12, optimistic=optimistic)
        figures |= {f"{way}_r{cutoff}": naive.recall(found, cutoff) for cutoff in (1, 5, 10)}
        figures |= {f"{way}_median_rank": naive.median(found), f"{way}_mean_rank": naive.mean(found)}
    return figures | {"rsum": sum(value for name, value in figures.items() if not name.endswith("rank"))}


def assert_same(first: Result, second: Result) -> None:
    assert first.metrics == second.metrics
    assert first.intervals == second.intervals
    np.testing.assert_array_equal(first.draws, second.draws)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 3))
def test_an_ensemble_ranks_by_the_mean_of_the_scores(seed, count):
    """One model or several, of different sizes of vectors too: the figures are those of the averaged matrix."""
    members = [make(OWNERS, 9, seed=seed + 10 * n, size=3 + n, hint=0.7) for n in range(count)]  # image 8: no captions
    found = evaluate_embeddings(members, ALL, samples=2)
    assert found.metrics.figures() == pytest.approx(naive_figures(members), rel=1e-12)


@pytest.mark.parametrize("protocol", [ALL, TINY])
@pytest.mark.parametrize("times", [2, 3])
def test_a_model_with_itself_is_the_model(protocol, times):
    """An average of equal scores changes nothing."""
    model = make(OWNERS, 8, hint=0.4)
    assert_same(
        evaluate_embeddings([model] * times, protocol, samples=30), evaluate_embeddings([model], protocol, samples=30)
    )


def test_one_model_is_measured_as_by_the_function():
    """``evaluate`` on all images gives what ``retrieval_metrics`` gives."""
    model = make(OWNERS, 8, hint=0.4)
    found = evaluate_embeddings([model], ALL, samples=2)
    assert found.metrics == retrieval_metrics(model.images, model.texts, model.text_to_image)


def test_evaluation_tie_rules():
    """Duplicates among the images: pessimistic puts the wrong one first, optimistic last, and the card says which."""
    model = make(range(6), 6)
    twins = Embeddings(np.repeat(model.images[:3], 2, axis=0), model.texts, model.text_to_image, model.header)
    pessimistic, optimistic = (
        evaluate_embeddings([twins], ALL, ties=rule, samples=2) for rule in ("pessimistic", "optimistic")
    )
    assert pessimistic.metrics.figures() == pytest.approx(naive_figures([twins]))
    assert optimistic.metrics.figures() == pytest.approx(naive_figures([twins], optimistic=True))
    assert pessimistic.metrics.t2i.r1 == 0.0
    assert (pessimistic.card["ties"], optimistic.card["ties"]) == ("pessimistic", "optimistic")
    assert pessimistic.card["tie_rule"] != optimistic.card["tie_rule"]


@pytest.mark.parametrize(
    "other",
    [
        make(OWNERS, 8, split_hash="1" * 16, data="others", model="second"),
        make([*OWNERS[:-1], 6], 8, data="others", model="second"),
        make(OWNERS[:-1], 8, data="others", model="second"),
    ],
    ids=["captions", "owners", "counts"],
)
def test_members_must_have_had_the_same_test(other):
    """Scores of different captions have no mean; both models and both datasets are named."""
    with pytest.raises(InputError, match="tiny and second were not given the same test: toys test and others test"):
        evaluate_embeddings([make(OWNERS, 8), other], ALL)


def test_members_must_have_the_same_images():
    """An image more, without captions, is another gallery, which the hash of the captions cannot tell."""
    with pytest.raises(InputError) as error:
        evaluate_embeddings([make(OWNERS, 8), make(OWNERS, 9)], ALL)
    assert "\n" not in str(error.value)


def test_evaluation_needs_a_model():
    """No model, no result."""
    with pytest.raises(InputError, match="at least one model"):
        evaluate_embeddings([], ALL)


def test_evaluation_names_models():
    """A model is called by its header, an ensemble by all of them, and whoever gives a name by that."""
    first, second = make(OWNERS, 8, model="a"), make(OWNERS, 8, model="b", seed=9)
    assert evaluate_embeddings([first], ALL, samples=1).name == "a"
    assert evaluate_embeddings([first, second], ALL, samples=1).name == "a + b"
    assert evaluate_embeddings([first, second], ALL, name="both", samples=1).name == "both"


class TestCard:
    """Everything that the figures mean."""

    def test_evaluation_card_is_complete(self):
        """Data, galleries, captions, rules, precision, models and draws, each under its name."""
        first = make(OWNERS, 8, model="a", fingerprint="1" * 16, traits={"image": "grid"})
        second = make(OWNERS, 8, model="b", fingerprint="2" * 16, seed=4)
        card = dict(evaluate_embeddings([first, second], TINY, samples=12, seed=3).card)
        assert card.pop("recall").startswith("any-hit")
        assert "same score" in card.pop("tie_rule")
        assert "float64" in card.pop("dtype")
        assert "drawn with replacement" in card["bootstrap"].pop("unit")
        assert card == {
            "protocol": "tiny",
            "protocol_summary": "two folds of four",
            "data": "toys",
            "split": "test",
            "split_hash": "0" * 16,
            "images": 8,
            "texts": 15,
            "captions_per_image": {"min": 1, "mean": 15 / 8, "max": 4},
            "remarks": [],
            "queries": {"i2t": 8, "t2i": 15},
            "folds": 2,
            "gallery_images": [4, 4],
            "gallery_texts": [7, 8],
            "ties": "pessimistic",
            "models": [
                {"name": "a", "fingerprint": "1" * 16, "image": "grid"},
                {"name": "b", "fingerprint": "2" * 16},
            ],
            "ensemble": True,
            "bootstrap": {"level": 0.95, "samples": 12, "seed": 3},
            "vse_version": __version__,
        }

    def test_images_without_captions_count_as_none(self):
        """They are in the gallery and have zero captions."""
        card = evaluate_embeddings([make(OWNERS, 9)], ALL, samples=2).card
        assert (card["images"], card["gallery_images"], card["captions_per_image"]["min"]) == (9, [9], 0)

    def test_evaluation_result_json(self):
        """A result is plain JSON without NaN, every figure with its interval."""
        found = evaluate_embeddings([make(OWNERS, 8)], TINY, samples=5).to_json()
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert set(found) == {"name", "protocol", "metrics", "intervals", "card"}
        assert (found["name"], found["protocol"]) == ("tiny", "tiny")
        assert list(found["intervals"]) == list(FIGURES)
        assert all(low <= high for low, high in found["intervals"].values())
        assert set(found["metrics"]) == {"i2t", "t2i", "rsum"}


class TestCompare:
    """Two results, paired."""

    def test_comparison_of_better_model_is_real(self):
        """Figures are subtracted; what is clearly better is real, what is the same is not."""
        owners = np.repeat(np.arange(80), 2)
        good, bad = (evaluate_embeddings([make(owners, 80, hint=h)], ALL, samples=100) for h in (3.0, 0.2))
        found = compare(good, bad)
        assert found["rsum"].value == good.metrics.rsum - bad.metrics.rsum
        assert found["rsum"].real
        assert compare(bad, good)["t2i_mean_rank"].real
        assert not any(each.real for each in compare(good, good).values())

    @pytest.mark.parametrize(
        ("other", "key"),
        [
            (evaluate_embeddings([make(OWNERS, 8, split_hash="1" * 16)], ALL, samples=3), "split_hash"),
            (evaluate_embeddings([make(OWNERS, 9)], ALL, samples=3), "images"),
            (evaluate_embeddings([make(OWNERS[:-1], 8)], ALL, samples=3), "texts"),
            (evaluate_embeddings([make(OWNERS, 8)], TINY, samples=3), "protocol"),
        ],
    )
    def test_results_of_different_tests(self, other, key):
        """They are refused, and the first thing that differs is named."""
        with pytest.raises(InputError, match=f"different tests cannot be compared: {key} ") as error:
            compare(evaluate_embeddings([make(OWNERS, 8)], ALL, samples=3), other)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("draws", [{"seed": 1}, {"samples": 4}, {"ties": "optimistic"}])
    def test_other_draws_are_not_paired(self, draws):
        """Draws of another seed or number do not cancel, other tie rules are other figures: refused as well."""
        settings_ = {"samples": 3, "seed": 0}
        first = evaluate_embeddings([make(OWNERS, 8)], ALL, **settings_)
        second = evaluate_embeddings([make(OWNERS, 8)], ALL, **(settings_ | draws))
        with pytest.raises(InputError):
            compare(first, second)
