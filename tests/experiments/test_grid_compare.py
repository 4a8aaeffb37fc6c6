"""Contracts of comparing rows of an experiment, against computations written out."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from tests.training.support import tiny_recipe, write_pairs

from vse.errors import InputError
from vse.evaluation.bootstrap import FIGURES
from vse.evaluation.metrics import DirectionMetrics, RetrievalMetrics
from vse.evaluation.scores import DotScores
from vse.experiments.grid.compare import RSUM, MeasuredSeed, Row, TestSplit, contrast, measured, still_rising
from vse.experiments.plan import Claim, Variant
from vse.training.recipe import Recipe

SAMPLES = 400


def row(label, rsums, noise, *, first_seed=0, rising=False):
    """A row whose seeds have these rsums; the draws of a seed scatter around its rsum by ``noise (SAMPLES,)``."""
    seeds = []
    for number, rsum in enumerate(rsums, first_seed):
        side = DirectionMetrics(rsum / 6, rsum / 6, rsum / 6, 1.0, 1.0, 10)
        draws = np.zeros((SAMPLES, len(FIGURES)))
        draws[:, RSUM] = rsum + noise
        trained = SimpleNamespace(seed=number, recipe=Recipe())
        seeds.append(MeasuredSeed(trained, RetrievalMetrics(side, side), draws))
    return Row(Variant(label, label), tuple(seeds), (rising,) * len(rsums))


CLAIM = Claim("A", "B")


def test_paired_draws_cancel_shared_scatter():
    """Draws are paired: a scatter that both rows share leaves no width, however large it is."""
    shared = np.random.default_rng(0).normal(size=SAMPLES) * 50
    found = contrast(CLAIM, row("A", [300, 300], shared), row("B", [290, 290], shared))
    assert found.value == pytest.approx(10)
    assert found.interval.low == pytest.approx(10)
    assert found.interval.high == pytest.approx(10)
    assert found.verdict == "holds"


def test_the_interval_is_over_items_and_seeds():
    """Against a loop that draws seeds with replacement and takes the middle 95 %."""
    generator = np.random.default_rng(1)
    noise = generator.normal(size=SAMPLES) * 2
    better, worse = row("A", [310, 300, 290], noise), row("B", [300, 302, 280], np.zeros(SAMPLES))
    found = contrast(CLAIM, better, worse)
    differences = np.array([10.0, -2.0, 10.0])
    assert found.by_seed == pytest.approx(differences)
    assert found.value == pytest.approx(differences.mean())
    naive = [
        np.mean([differences[generator.integers(3)] for _ in range(3)]) + noise[generator.integers(SAMPLES)]
        for _ in range(40_000)
    ]
    low, high = np.quantile(naive, [0.025, 0.975])
    assert found.interval.low == pytest.approx(low, abs=0.9)
    assert found.interval.high == pytest.approx(high, abs=0.9)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [([300], [290], "holds"), ([290], [300], "does not hold"), ([300, 290], [295, 296], "undecided")],
)
def test_claim_verdict_follows_interval(ours, theirs, verdict):
    """A claim is decided when the interval leaves zero out, one way or the other."""
    still = np.zeros(SAMPLES)
    assert contrast(CLAIM, row("A", ours, still), row("B", theirs, still)).verdict == verdict


def test_other_seeds_are_not_compared():
    """They are no pairs."""
    still = np.zeros(SAMPLES)
    with pytest.raises(InputError, match="different seeds"):
        contrast(CLAIM, row("A", [1, 2], still), row("B", [1, 2], still, first_seed=1))


def test_row_mean_and_deviation_over_seeds():
    """Over the seeds of a row; one seed has no deviation."""
    still = np.zeros(SAMPLES)
    several = row("A", [300, 310, 320], still)
    assert several.mean["rsum"] == pytest.approx(310)
    assert several.deviation["rsum"] == pytest.approx(10)
    assert row("A", [300], still).deviation is None
    assert several.finished
    assert not row("A", [300], still, rising=True).finished


@pytest.mark.parametrize(
    ("dev", "rising"),
    [
        ([100, 150, 200, 250, 300], True),
        ([100, 200, 290, 300, 300.5], False),
        ([100, 200, 300, 290, 280], False),
        ([*range(100, 200, 10), *[200] * 10], False),
        ([*[200] * 18, 210, 210], True),
        ([100], True),
    ],
)
def test_run_is_unfinished_when_still_rising(dev, rising):
    """The last fifth of the epochs is more than a point above the fifth before it; one epoch tells nothing."""
    assert still_rising(dev) is rising


def test_equal_recipes_share_run_folder():
    """Equal recipes have equal folders, other changes other ones."""
    plain, changed = Variant("a", "recipe"), Variant("b", "recipe", ("x=1",))
    assert plain.key == Variant("another label", "recipe").key == "recipe"
    assert len({plain.key, changed.key, Variant("c", "recipe", ("x=2",)).key}) == 3


def write_coco(folder, **splits):
    """COCO's usual layout, one region and one caption for each image."""
    write_pairs(folder, train=4, dev=4)
    for split, count in splits.items():
        features = np.random.default_rng(count).standard_normal((count, 1, 4)).astype(np.float32)
        np.save(folder / f"{split}_ims.npy", features)
        (folder / f"{split}_caps.txt").write_text("".join(f"caption {n}\n" for n in range(count)))
        (folder / f"{split}_ids.txt").write_text("".join(f"{n}\n" for n in range(count)))
    return folder


def naive_recall(scores, k):
    """The share of rows whose own column is among the ``k`` best; ties count against."""
    return 100 * float(np.mean([(row >= row[n]).sum() <= k for n, row in enumerate(scores)]))


def test_coco_is_ranked_by_both_protocols_of_the_paper(tmp_path):
    """``testall`` as the mean of five folds and as a whole, against loops; ``test`` is not looked at."""
    where = TestSplit.of(tiny_recipe(write_coco(tmp_path / "coco", test=1000, testall=5000)))
    assert (where.data.split, [each.name for each in where.protocols]) == ("testall", ["coco-1k-5fold", "coco-5k"])
    generator = np.random.default_rng(5)
    images = generator.standard_normal((5000, 8))
    texts = images + generator.standard_normal((5000, 8))
    ranked = where.rank(DotScores(images, texts))
    matrix = images @ texts.T
    folds = [matrix[first : first + 1000, first : first + 1000] for first in range(0, 5000, 1000)]
    for name, parts in (("coco-1k-5fold", folds), ("coco-5k", [matrix])):
        figures = measured(SimpleNamespace(), ranked[name], samples=2).metrics.figures()
        for k in (1, 10):
            assert figures[f"i2t_r{k}"] == pytest.approx(np.mean([naive_recall(part, k) for part in parts]))
            assert figures[f"t2i_r{k}"] == pytest.approx(np.mean([naive_recall(part.T, k) for part in parts]))
    about = where.about(where.protocols[0], 2)
    assert (about["protocol"], about["folds"], about["images"]) == ("coco-1k-5fold", 5, 1000)


def test_first_thousand_of_coco_needs_its_name(tmp_path):
    """Without ``testall`` nothing is ranked unless the protocol is asked for, which then tells what it is."""
    recipe = tiny_recipe(write_coco(tmp_path / "coco_precomp", test=1000))
    with pytest.raises(InputError, match="which is not COCO 1K: add the split 'testall'") as caught:
        TestSplit.of(recipe)
    assert "\n" not in str(caught.value)
    where = TestSplit.of(recipe, "coco-1k-first-fold")
    about = where.about(where.protocols[0], 1)
    assert about["protocol"] == "coco-1k-first-fold"
    assert any("need all 5,000 test images" in remark for remark in about["remarks"])


@pytest.mark.parametrize(("name", "protocol"), [("f30k", "flickr30k-1k"), ("flickr8k-projected-256-0", "flickr8k-1k")])
def test_flickr_protocols_are_named(tmp_path, name, protocol):
    """1,000 test images of a known dataset, also where its cells were projected."""
    where = TestSplit.of(tiny_recipe(write_coco(tmp_path / name, test=1000)))
    assert [each.name for each in where.protocols] == [protocol]


def test_protocol_of_another_size_is_refused_before_training(tmp_path):
    """The message names the size that the protocol is defined for."""
    with pytest.raises(InputError, match="defined for 5000 images, this split has 40"):
        TestSplit.of(tiny_recipe(write_coco(tmp_path / "coco", test=40)), "coco-5k")


def test_vatex_is_ranked_on_the_other_half_of_its_dev_split(tmp_path):
    """``val-1500`` chooses, ``test-1500`` tests, and how the halves were drawn is told."""
    folder = tmp_path / "vatex"
    folder.mkdir()
    videos = [{"videoID": f"v{n}", "enCap": [f"sentence {n}"]} for n in range(12)]
    for part in ("training", "validation", "public_test_english"):
        (folder / f"vatex_{part}_v1.0.json").write_text(json.dumps(videos))
    frames = tmp_path / "frames"
    frames.mkdir()
    for video in videos:
        np.save(frames / f"{video['videoID']}.npy", np.ones((2, 8), dtype=np.float32))
    data = {"path": str(folder), "features": str(frames), "dev": "val-1500"}
    model = {"image": {"kind": "frames", "feature_size": 8}, "text": {"kind": "words"}}
    recipe = tiny_recipe(folder, data=data, model=model, augmentation={"image": "none", "text": "none"})
    where = TestSplit.of(recipe)
    assert (where.data.split, where.test.items) == ("test-1500", 6)
    (remark,) = where.about(where.protocols[0], 1)["remarks"]
    assert "drawn with seed 0; the halves of published results are unknown" in remark
    official = recipe.model_copy(update={"data": recipe.data.model_copy(update={"dev": "val"})})
    assert TestSplit.of(official).data.split == "test"
