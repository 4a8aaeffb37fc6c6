"""Contracts of the intervals, against drawing one image at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vse.errors import InputError
from vse.evaluation import bootstrap
from vse.evaluation.bootstrap import FIGURES, Difference, FoldRanks, Interval, differences, intervals, resample
from vse.evaluation.metrics import DirectionMetrics, RetrievalMetrics, mean_metrics
from vse.evaluation.positives import Positives


def fold(images, texts, owners) -> FoldRanks:
    return FoldRanks(*(np.array(values, dtype=np.int64) for values in (images, texts, owners)))


def random_fold(generator: np.random.Generator, images: int, captions: int = 4, worst: int = 30) -> FoldRanks:
    """One to ``captions`` texts an image in any order, ranks with many repetitions."""
    owners = generator.permutation(np.repeat(np.arange(images), generator.integers(1, captions + 1, size=images)))
    return fold(generator.integers(1, worst, size=images), generator.integers(1, worst, size=len(owners)), owners)


def metrics(folds) -> RetrievalMetrics:
    return mean_metrics([RetrievalMetrics(DirectionMetrics.of(f.images), DirectionMetrics.of(f.texts)) for f in folds])


def naive_side(ranks: list[int]) -> list[float]:
    """R@1, 5, 10, median and mean of the ranks as they were drawn, repetitions written out; 0 is no query."""
    asked = np.array([rank for rank in ranks if rank != 0])
    recalls = [100.0 * sum(rank <= cutoff for rank in asked) / len(asked) for cutoff in (1, 5, 10)]
    return [*recalls, float(np.median(asked)), sum(asked) / len(asked)]


def naive_draws(folds, samples: int, seed: int) -> np.ndarray:
    """Draw after draw: as many images as there are, each with all its captions."""
    total = np.zeros((samples, len(FIGURES)))
    for number, each in enumerate(folds):
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
        for draw in range(samples):
            times = np.bincount(
                generator.integers(0, len(each.images), size=len(each.images)), minlength=len(each.images)
            )
            image_side = naive_side(np.repeat(each.images, times).tolist())
            text_side = naive_side(np.repeat(each.texts, times[each.owners]).tolist())
            total[draw] += [*image_side, *text_side, sum(image_side[:3]) + sum(text_side[:3])]
    return total / len(folds)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), images=st.integers(1, 12), folds=st.integers(1, 3), samples=st.integers(1, 9))
def test_draws_are_those_of_a_loop(seed, images, folds, samples):
    """Every figure of every draw is that of images repeated as often as they were drawn, with all their texts."""
    generator = np.random.default_rng(seed)
    made = [random_fold(generator, images) for _ in range(folds)]
    np.testing.assert_array_equal(resample(made, samples=samples, seed=seed), naive_draws(made, samples, seed))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), images=st.integers(1, 10), texts=st.integers(1, 12), samples=st.integers(1, 9))
def test_a_shared_text_is_drawn_as_often_as_its_images_on_average(seed, images, texts, samples):
    """Written out: each text once for each drawing of each of its images, in a scale where its share is whole."""
    generator = np.random.default_rng(seed)
    owners = [set(generator.integers(0, images, size=generator.integers(1, 4)).tolist()) for _ in range(texts)]
    ranks = generator.integers(1, 30, size=images), generator.integers(1, 30, size=texts)
    made = FoldRanks(*ranks, Positives.from_lists([sorted(each) for each in owners], images))
    found = resample([made], samples=samples, seed=seed)
    drawing = np.random.Generator(np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)))
    for row in found:
        times = np.bincount(drawing.integers(0, images, size=images), minlength=images)
        repeated = [6 // len(each) * sum(int(times[i]) for i in each) for each in owners]  # of 1, 2 or 3 images
        asked = np.repeat(ranks[1], repeated) if any(repeated) else ranks[1]
        np.testing.assert_allclose(row[5:10], naive_side(asked.tolist()))
        np.testing.assert_allclose(row[:5], naive_side(np.repeat(ranks[0], times).tolist()))


def test_texts_of_one_image_each_are_drawn_alike_in_both_forms():
    """As a list of images, or as sets of one image."""
    made = random_fold(np.random.default_rng(3), 9)
    images = Positives.from_lists([[int(owner)] for owner in made.owners], 9)
    shared = FoldRanks(made.images, made.texts, images)
    np.testing.assert_array_equal(resample([shared], samples=30), resample([made], samples=30))


def test_images_without_a_caption_are_drawn_and_not_asked():
    """They take part in the draw, as in the gallery, and in no figure."""
    made = [fold([3, 0, 1, 7, 0, 2], [4, 1, 1, 9, 2], [0, 2, 2, 3, 5])]
    np.testing.assert_array_equal(resample(made, samples=50, seed=4), naive_draws(made, 50, 4))


@pytest.mark.parametrize(
    ("ranks", "weights", "expected"),
    [
        ([1, 2, 5, 9], [1, 1, 1, 1], 3.5),
        ([1, 2, 5, 9], [2, 0, 0, 2], 5.0),
        ([9, 1], [1, 1], 5.0),
        ([9, 1], [1, 2], 1.0),
        ([4, 4, 7, 8], [1, 0, 1, 0], 5.5),
        ([6], [4], 6.0),
    ],
)
def test_bootstrap_median_of_even_number(ranks, weights, expected):
    """It is the mean of the two in the middle of the repeated ranks, not the lower one."""
    owners = np.arange(len(ranks))
    figures = bootstrap._figures(fold(ranks, ranks, owners), np.array([weights]))
    named = dict(zip(FIGURES, figures[0].tolist(), strict=True))
    assert named["i2t_median_rank"] == named["t2i_median_rank"] == expected


@pytest.mark.parametrize("values", [1, 37, 100, 1000])
def test_draws_do_not_depend_on_the_block(monkeypatch, values):
    """How many draws are held at once is a matter of memory alone."""
    generator = np.random.default_rng(0)
    made = [random_fold(generator, 11), random_fold(generator, 8)]
    expected = resample(made, samples=40, seed=2)
    monkeypatch.setattr(bootstrap, "CHUNK_VALUES", values)
    np.testing.assert_array_equal(resample(made, samples=40, seed=2), expected)


def test_bootstrap_draws_are_keyed():
    """The seed decides the draws, more of them begin with the same, and each fold has its own."""
    made = random_fold(np.random.default_rng(1), 30)
    draws = resample([made], samples=20, seed=7)
    np.testing.assert_array_equal(resample([made], samples=20, seed=7), draws)
    np.testing.assert_array_equal(resample([made], samples=50, seed=7)[:20], draws)
    assert not np.array_equal(resample([made], samples=20, seed=8), draws)
    second = 2 * resample([made, made], samples=20, seed=7) - draws
    assert not np.allclose(second, draws)


def test_draws_ask_the_same_images_of_every_model():
    """Where a second model ranks one image otherwise, only draws with that image differ."""
    made = random_fold(np.random.default_rng(3), 12)
    images = made.images.copy()
    images[5] += 100
    before, after = (resample([each], samples=200, seed=1) for each in (made, fold(images, made.texts, made.owners)))
    place = FIGURES.index("i2t_mean_rank")
    times = (after - before)[:, place] * 12 / 100
    np.testing.assert_allclose(times, np.round(times), atol=1e-9)
    assert (times.round() == 0).any()
    np.testing.assert_array_equal(before[:, 5:10], after[:, 5:10])


def test_a_model_does_not_differ_from_itself():
    """Paired draws cancel exactly: all differences are zero, and none is real."""
    generator = np.random.default_rng(2)
    made = [random_fold(generator, 40), random_fold(generator, 40)]
    draws = resample(made, samples=100)
    found = differences(metrics(made), metrics(made), draws, resample(made, samples=100))
    assert list(found) == list(FIGURES)
    assert set(found.values()) == {Difference(0.0, Interval(0.0, 0.0))}
    assert not any(each.real for each in found.values())


def test_a_clearly_better_model_is_real():
    """Its recalls are really larger and its ranks really smaller; the other way round the signs turn."""
    generator = np.random.default_rng(5)
    worse = random_fold(generator, 200, worst=60)
    better = fold((worse.images + 3) // 4, (worse.texts + 3) // 4, worse.owners)
    draws = [resample([each], samples=200) for each in (better, worse)]
    found = differences(metrics([better]), metrics([worse]), *draws)
    turned = differences(metrics([worse]), metrics([better]), *draws[::-1])
    for name, each in found.items():
        assert each.real, name
        assert (each.value > 0) == (not name.endswith("rank"))
        assert each.interval.low <= each.value <= each.interval.high
        assert (turned[name].value, turned[name].real) == (-each.value, True)


@pytest.mark.parametrize(
    ("low", "high", "real"), [(0.1, 2.0, True), (-2.0, -0.1, True), (-1.0, 1.0, False), (0.0, 1.0, False)]
)
def test_real_leaves_zero_out(low, high, real):
    """An interval that reaches zero proves nothing."""
    assert Difference(0.5, Interval(low, high)).real is real


def test_bootstrap_intervals_are_quantiles():
    """The middle 95 % of the values of each figure; they go to JSON as two ends."""
    values = np.random.default_rng(0).permuted(np.tile(np.arange(1001.0)[:, None], (1, len(FIGURES))), axis=0)
    found = intervals(values)
    assert list(found) == list(FIGURES)
    for each in found.values():
        assert each.to_json() == pytest.approx([25.0, 975.0])


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_the_interval_contains_the_figure(seed):
    """What was measured lies in the middle of what could have been."""
    generator = np.random.default_rng(seed)
    made = [random_fold(generator, 60) for _ in range(2)]
    found = intervals(resample(made, samples=300, seed=seed))
    for name, value in metrics(made).figures().items():
        assert found[name].low - 1e-9 <= value <= found[name].high + 1e-9, name


def test_intervals_cover_the_truth():
    """About 95 of 100 intervals hold the true recall, though the five captions of an image share its fate."""
    generator = np.random.default_rng(11)
    truth, covered, trials = 60.0, np.zeros(2), 200
    owners = np.repeat(np.arange(120), 5)
    for trial in range(trials):
        ranks = np.where(generator.random(120) < truth / 100, 1, 20)
        found = intervals(resample([fold(ranks, ranks[owners], owners)], samples=200, seed=trial))
        covered += [found[name].low <= truth <= found[name].high for name in ("i2t_r1", "t2i_r1")]
    assert (covered > 0.89 * trials).all()
    assert (covered < 0.995 * trials).all()


@pytest.mark.parametrize("samples", [0, -1])
def test_there_must_be_draws(samples):
    """Without draws there is no interval."""
    with pytest.raises(InputError, match=f"samples must be at least 1, got {samples}"):
        resample([random_fold(np.random.default_rng(0), 3)], samples=samples)


def test_a_draw_without_a_query_is_no_figure():
    """Where few images have captions a draw may miss them all; no rank is below 1 for that."""
    made = [fold([2, 0], [3], [0])]
    draws = resample(made, samples=50)
    assert (draws[:, FIGURES.index("i2t_mean_rank")] >= 1).all()
