"""Contracts of ECCV Caption: positions of all right candidates, and the figures made of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.evaluation.coco.eccv import (
    DEFINITION,
    EccvDirection,
    EccvPositives,
    eccv_metrics,
    eccv_metrics_of_scores,
    positive_positions,
    read_eccv,
)
from vse.evaluation.coco.ids import CocoIds, read_coco_ids
from vse.evaluation.positives import Positives
from vse.evaluation.scores import DotScores, MatrixScores, MeanScores

IDS = CocoIds(("a.jpg", "b.jpg"), (1, 2), ((10, 11), (20, 21, 22)))
ANSWERS = EccvPositives({2: (20, 21, 10)}, {10: (1, 2), 22: (2,)})


def naive_positions(scores, right) -> list[int]:
    """By sorting; a wrong candidate wins a tie."""
    order = sorted(range(len(scores)), key=lambda c: (-scores[c], c in right))
    return [place for place, c in enumerate(order, start=1) if c in right]


def naive_figures(positions) -> tuple[float, float, float]:
    """Precision at every right place among the first R, precision at R, and the first place."""
    size, hits = len(positions), 0
    precisions = []
    for place in range(1, size + 1):
        right = place in positions
        hits += right
        precisions.append(hits / place if right else 0.0)
    return 100 * sum(precisions) / size, 100 * hits / size, 100.0 * (1 in positions)


@st.composite
def cases(draw):
    queries, candidates = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    seed = draw(st.integers(0, 10**6))
    chosen = [draw(st.sets(st.integers(0, candidates - 1), max_size=candidates)) for _ in range(queries)]
    return np.random.default_rng(seed), [sorted(each) for each in chosen], candidates


def check(scores, matrix, right):
    found = positive_positions(scores, Positives.from_lists(right, matrix.shape[1]))
    assert [each.tolist() for each in found] == [
        naive_positions(row.tolist(), set(good)) for row, good in zip(matrix, right, strict=True)
    ]


@given(cases(), st.sampled_from(["float32", "float64"]))
def test_positions_of_vectors_with_ties(case, dtype):
    """Positions are those of sorting, with every tie decided against the right candidate."""
    generator, right, candidates = case
    left = generator.integers(-2, 3, size=(len(right), 4))
    other = generator.integers(-2, 3, size=(candidates, 4))
    check(DotScores(left.astype(dtype), other.astype(dtype)), left @ other.T, right)


@given(cases())
def test_positions_that_float32_cannot_tell(case):
    """Scores that are equal in float32 and differ in float64 are put in the order of float64."""
    generator, right, candidates = case
    matrix = 0.5 + generator.integers(-4, 5, size=(len(right), candidates)) * 1e-12
    check(MatrixScores(matrix), matrix, right)
    check(MeanScores([MatrixScores(matrix), MatrixScores(matrix)]), matrix, right)


def test_scores_that_only_rounding_tells_apart_are_ties():
    """0.1 + 0.2 + 0.3 depends on the order of the terms; neither order makes a right candidate win."""
    scores = DotScores(np.ones((2, 3)), np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]))
    found = positive_positions(scores, Positives.from_lists([[0], [1]], 2))
    assert [each.tolist() for each in found] == [[2], [2]]


def test_positions_over_several_blocks():
    """More queries than a block holds, some blocks without a right candidate, give the same positions."""
    generator = np.random.default_rng(0)
    matrix = generator.integers(0, 20, size=(700, 30)).astype(np.float32)
    right = [sorted(set(generator.integers(0, 30, size=4).tolist())) if not 256 <= q < 512 else [] for q in range(700)]
    check(MatrixScores(matrix), matrix, right)


@given(cases())
def test_figures_equal_the_naive_twin(case):
    """The figures are means over the queries with right candidates."""
    generator, right, candidates = case
    ranked = [np.sort(generator.permutation(candidates)[: len(good)]) + 1 for good in right]
    expected = [naive_figures(each.tolist()) for each in ranked if len(each)]
    if not expected:
        with pytest.raises(InputError, match="no query has a right candidate"):
            EccvDirection.of(ranked)
        return
    found = EccvDirection.of(ranked)
    assert (found.map_at_r, found.r_precision, found.r1) == pytest.approx(tuple(np.mean(expected, axis=0)))
    assert found.queries == len(expected)


def test_eccv_figures_by_hand():
    """Right candidates at places 1, 3 and 4 of a query with three: (1/1 + 2/3) / 3, 2/3 and 1."""
    found = EccvDirection.of([np.array([1, 3, 4])])
    assert (found.map_at_r, found.r_precision, found.r1) == pytest.approx((500 / 9, 200 / 3, 100))


def test_a_random_ranking_reaches_its_expectation():
    """With R of N right: R/N for R-Precision and R@1, sum over r <= R of (1 + (r-1)(R-1)/(N-1)) / (r N) for mAP@R."""
    queries, total, size = 3000, 40, 10
    generator = np.random.default_rng(5)
    scores = MatrixScores(generator.random((queries, total)))
    right = [generator.permutation(total)[:size].tolist() for _ in range(queries)]
    positions = positive_positions(scores, Positives.from_lists(right, total))
    found = EccvDirection.of(positions)
    average = sum((1 + (r - 1) * (size - 1) / (total - 1)) / r for r in range(1, size + 1)) / total
    each = np.array([naive_figures(place.tolist()) for place in positions])
    allowed = 5 * each.std(axis=0) / np.sqrt(queries)
    expected = np.array([100 * average, 100 * size / total, 100 * size / total])
    assert (np.abs(np.array([found.map_at_r, found.r_precision, found.r1]) - expected) < allowed).all()


def test_both_directions_by_hand():
    """Queries are the ids in the files; all images and captions are candidates, listed as a query or not."""
    scores = np.array([[0.9, 0.1, 0.8, 0.2, 0.3], [0.4, 0.7, 0.9, 0.7, 0.1]])
    found = eccv_metrics_of_scores(MatrixScores(scores), IDS, ANSWERS)
    # Image 2: captions 20, 21, 10 score 0.9, 0.7 (a tie with the wrong 11) and 0.4: places 1, 3, 4.
    assert (found.i2t.map_at_r, found.i2t.r_precision, found.i2t.r1) == pytest.approx((500 / 9, 200 / 3, 100))
    # Caption 10: both images are right. Caption 22: image 2 comes second of two.
    assert (found.t2i.map_at_r, found.t2i.r_precision, found.t2i.r1) == pytest.approx((50, 50, 50))
    assert (found.i2t.queries, found.t2i.queries) == (1, 2)
    assert found.to_json()["definition"] == DEFINITION


@pytest.fixture(scope="module")
def release(shared_data):
    ids = read_coco_ids(shared_data / "coco" / "karpathy_test_captions.json.gz")
    return ids, read_eccv(shared_data / "eccv")


def test_eccv_released_files(release):
    """1,261 images and 1,332 captions are queries; a perfect ranking gives 100, two absent captions notwithstanding."""
    ids, answers = release
    assert (len(answers.i2t), len(answers.t2i)) == (1261, 1332)
    for way in ("i2t", "t2i"):
        # One direction at a time is ranked perfectly: the two files do not list the same pairs.
        matrix = np.zeros(ids.shape, dtype=np.float16)
        for query, found in getattr(answers, way).items():
            if way == "i2t":
                rows = [ids.caption_rows[item] for item in found if item in ids.caption_rows]
                matrix[ids.image_rows[query], rows] += 1
            else:
                matrix[[ids.image_rows[item] for item in found], ids.caption_rows[query]] += 1
        one = {"i2t": {391895: (770337,)}, "t2i": {770337: (391895,)}}
        chosen = EccvPositives(**(one | {way: getattr(answers, way)}))
        side = getattr(eccv_metrics_of_scores(MatrixScores(matrix), ids, chosen), way)
        assert (side.map_at_r, side.r_precision, side.r1) == pytest.approx((100, 100, 100))
        assert side.absent == (2 if way == "i2t" else 0)


def test_vectors_for_the_release(release):
    """Vectors of all images and captions are ranked as the sorted float64 scores of a few queries say."""
    ids, answers = release
    generator = np.random.default_rng(1)
    images, texts = (generator.normal(size=(rows, 16)).astype(np.float32) for rows in ids.shape)
    some = EccvPositives(dict(list(answers.i2t.items())[:30]), dict(list(answers.t2i.items())[:30]))
    found = eccv_metrics(images, texts, ids, some)
    for side, queries, rows, columns, left, right in (
        (found.i2t, some.i2t, ids.image_rows, ids.caption_rows, images, texts),
        (found.t2i, some.t2i, ids.caption_rows, ids.image_rows, texts, images),
    ):
        figures = []
        for query, items in queries.items():
            row = right.astype(np.float64) @ left[rows[query]].astype(np.float64)
            figures.append(naive_figures(naive_positions(row.tolist(), {columns[i] for i in items if i in columns})))
        assert (side.map_at_r, side.r_precision, side.r1) == pytest.approx(tuple(np.mean(figures, axis=0)))


def test_eccv_intervals_resample_images_with_their_captions():
    """A draw repeats each query as often as its image is drawn; a draw without a query counts each query once."""
    generator = np.random.default_rng(5)
    ids = CocoIds(tuple(f"{i}.jpg" for i in range(8)), tuple(range(8)), tuple((10 * i, 10 * i + 1) for i in range(8)))
    answers = EccvPositives(
        {i: tuple({10 * i, 10 * ((i + 1) % 8) + 1, 21}) for i in range(0, 8, 3)},
        {10 * i + j: tuple({i, (3 * i + 1) % 8}) for i in range(0, 8, 2) for j in (0, 1)},
    )
    matrix = generator.random((8, 16))
    samples, seed = 80, 2
    found = eccv_metrics_of_scores(MatrixScores(matrix), ids, answers, samples=samples, seed=seed)
    captions = [sentid for each in ids.sentids for sentid in each]
    queries = {
        "i2t": [(i, matrix[i], {captions.index(c) for c in right}) for i, right in answers.i2t.items()],
        "t2i": [(c // 10, matrix[:, captions.index(c)], set(right)) for c, right in answers.t2i.items()],
    }
    for way, asked in queries.items():
        figures = [(image, naive_figures(naive_positions(row.tolist(), right))) for image, row, right in asked]
        drawn = []
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)))
        for _ in range(samples):
            row = generator.integers(0, 8, size=8).tolist()
            chosen = [values for image in row for owner, values in figures if owner == image]
            drawn.append(np.mean(chosen or [values for _, values in figures], axis=0))
        for column, name in enumerate(("map_at_r", "r_precision", "r1")):
            expected = np.quantile([each[column] for each in drawn], [0.025, 0.975])
            assert found.intervals[f"{way}_{name}"].to_json() == pytest.approx(expected), (way, name)
    assert found.to_json()["intervals"]["i2t_r1"] == found.intervals["i2t_r1"].to_json()


def write(folder, i2t, t2i):
    for name, value in (("image_to_caption", i2t), ("caption_to_image", t2i)):
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / f"eccv_{name}.json").write_text(text, encoding="utf-8")
    return folder


def test_eccv_reads_ids_once(tmp_path):
    """Keys become numbers, and an id that is listed twice counts once."""
    found = read_eccv(write(tmp_path, {"2": [20, 21, 20, 10]}, {"10": [1, 2], "22": ["2"]}))
    assert found == ANSWERS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not JSON"),
        ([1], "expected an object"),
        ({}, "that is not empty"),
        ({"x": [1]}, "a key is 'x', expected the number of a COCO image or sentence"),
        ({"1": []}, "'1' has [], expected a list of ids that is not empty"),
        ({"1": 3}, "'1' has 3, expected a list"),
        ({"1": [2.5]}, "an id of '1' is 2.5"),
    ],
)
def test_eccv_refuses_malformed_files(tmp_path, content, message):
    """An error names the file, the entry and what was expected."""
    with pytest.raises(InputError) as caught:
        read_eccv(write(tmp_path, content, {"10": [1]}))
    assert message in str(caught.value)
    assert "eccv_image_to_caption.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_eccv_refuses_mismatched_inputs(tmp_path):
    """Absent files, ids of another split, vectors of another number and NaN are named."""
    with pytest.raises(InputError, match=r"eccv_image_to_caption\.json does not exist"):
        read_eccv(tmp_path)
    images, texts = np.ones((2, 3), dtype=np.float32), np.ones((5, 3), dtype=np.float32)
    with pytest.raises(InputError, match=r"asks for id 9, which the ids do not have \(2 such queries\)"):
        eccv_metrics(images, texts, IDS, EccvPositives({2: (20,), 9: (20,), 8: (20,)}, {10: (1,)}))
    with pytest.raises(InputError, match="1 of 2 right candidates of ECCV Caption are not in the ids, first id 99"):
        eccv_metrics(images, texts, IDS, EccvPositives({2: (20, 99)}, {10: (1,)}))
    with pytest.raises(InputError, match=r"scores of shape \(2, 4\): 2 images and 5 captions expected"):
        eccv_metrics(images, texts[:4], IDS, ANSWERS)
    images[1, 0] = np.nan
    with pytest.raises(InputError, match=r"images\[1\] holds NaN"):
        eccv_metrics(images, texts, IDS, ANSWERS)
    with pytest.raises(InputError, match="the positives are for 1 queries and 4 candidates, the scores for 2 and 5"):
        positive_positions(MatrixScores(np.zeros((2, 5))), Positives.from_lists([[0]], 4))
