"""Contracts of Crisscrossed Captions, against hand-made cases and a naive twin."""

from __future__ import annotations

import gzip
import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.evaluation.coco.cxc import (
    CORRELATION,
    CxcMetrics,
    CxcRatings,
    CxcScores,
    RatedPairs,
    cxc_metrics,
    cxc_metrics_of_scores,
    image_image_positives,
    image_text_positives,
    read_cxc,
    sampled_correlation,
    spearman,
    text_text_positives,
)
from vse.evaluation.coco.ids import CocoIds, read_coco_ids
from vse.evaluation.ranks import NO_POSITIVE, ranks
from vse.evaluation.scores import DotScores, MeanScores

IDS = CocoIds(("a.jpg", "b.jpg", "c.jpg", "d.jpg"), (1, 2, 3, 4), ((10, 11), (20, 21), (30, 31), (40, 41)))
TABLES = {
    "sits": "10,b.jpg,3.0 20,a.jpg,2.99 30,c.jpg,1.0 40,a.jpg,0",
    "sis": "a.jpg,b.jpg,2.5 b.jpg,c.jpg,2.4 c.jpg,b.jpg,2.6 d.jpg,d.jpg,5",
    "sts": "10,30,3.0 31,10,2.9 10,11,0.5 20,20,5 21,40,1.5 40,30,1",
}
HEADERS = {"sits": "caption,image", "sis": "image1,image2", "sts": "caption1,caption2"}


def write_tables(folder, packed: bool = False, **changes: str):
    """The three files; a change replaces the whole text of one of them."""
    for task, rows in TABLES.items():
        lines = [f"{HEADERS[task]},agg_score,sampling_method"]
        for row in rows.split():
            *items, score = row.split(",")
            left, right = (f"COCO_val2014:sentid:{item}" if item.isdigit() else item for item in items)
            lines.append(f"{left},{right},{score},drawn")
        text = changes.get(task, "\n".join(lines) + "\n").encode()
        name = f"{task}_test.csv"
        (folder / (name + ".gz" if packed else name)).write_bytes(gzip.compress(text) if packed else text)
    return folder


def lists(positives) -> list[list[int]]:
    return [positives.of(query).tolist() for query in range(positives.queries)]


@pytest.mark.parametrize("packed", [False, True])
def test_right_pairs_by_hand(tmp_path, packed):
    """Thresholds are reached with equality, own captions are always right, and what is alike is so both ways."""
    ratings = read_cxc(write_tables(tmp_path, packed))
    assert lists(image_text_positives(ratings, IDS)) == [[0, 1], [0, 2, 3], [4, 5], [6, 7]]
    assert lists(image_text_positives(ratings, IDS).T) == [[0, 1], [0], [1], [1], [2], [2], [3], [3]]
    assert lists(image_image_positives(ratings, IDS)) == [[1], [0, 2], [1], []]
    assert lists(text_text_positives(ratings, IDS)) == [[1, 4], [0], [3], [2], [0, 5], [4], [7], [6]]


def test_counts_of_the_release(shared_data):
    """The test files give the published numbers of right pairs."""
    ids = read_coco_ids(shared_data / "coco" / "karpathy_test_captions.json.gz")
    ratings = read_cxc(shared_data / "cxc")
    assert [len(each.scores) for each in (ratings.sits, ratings.sis, ratings.sts)] == [44833, 46719, 44045]
    assert int((ratings.sits.scores >= 3.0).sum()) == 35585
    assert len(image_text_positives(ratings, ids).columns) == 35614
    assert int((ratings.sis.scores >= 2.5).sum()) == 21816
    images = image_image_positives(ratings, ids)
    assert (len(images.columns), int((images.counts > 0).sum())) == (40492, 4791)
    texts = text_text_positives(ratings, ids)
    assert texts.counts.min() == 4
    for positives in (images, texts):
        assert not (positives.rows == positives.columns).any()
        assert np.array_equal(positives.T.columns, positives.columns)


def naive_direction(score, right, candidates, skip_self: bool) -> tuple[float, ...]:
    """R@1, 5, 10, median, mean rank and number of queries, by sorting; a wrong candidate wins a tie."""
    found = []
    for query, good in enumerate(right):
        if good:
            others = [c for c in range(candidates) if not (skip_self and c == query)]
            order = sorted(others, key=lambda c: (-score(query, c), c in good))
            found.append(1 + next(place for place, c in enumerate(order) if c in good))
    middle = sorted(found)
    median = (middle[(len(found) - 1) // 2] + middle[len(found) // 2]) / 2
    recalls = [100 * sum(rank <= k for rank in found) / len(found) for k in (1, 5, 10)]
    return (*recalls, median, sum(found) / len(found), len(found))


def random_case(seed: int) -> tuple[CocoIds, CxcRatings, np.ndarray, np.ndarray]:
    """Images with one to three captions, ratings and small whole-number vectors, so that there are many ties."""
    generator = np.random.default_rng(seed)
    count = 10
    sizes = generator.integers(1, 4, size=count)
    numbers = iter(generator.permutation(1000)[: sizes.sum()].tolist())
    ids = CocoIds(
        tuple(f"{i}.jpg" for i in range(count)),
        tuple(range(count)),
        tuple(tuple(next(numbers) for _ in range(size)) for size in sizes),
    )
    captions = [sentid for each in ids.sentids for sentid in each]

    def rated(task, left, right):
        pairs = [(left[a], right[b]) for a, b in generator.integers(0, (len(left), len(right)), size=(40, 2))]
        scores = generator.integers(0, 51, size=40) / 10
        return RatedPairs(task, tuple(a for a, _ in pairs), tuple(b for _, b in pairs), scores)

    ratings = CxcRatings(
        rated("sts", captions, captions), rated("sis", ids.files, ids.files), rated("sits", captions, ids.files)
    )
    vectors = [generator.integers(-2, 3, size=(rows, 3)).astype(np.float32) for rows in ids.shape]
    return ids, ratings, vectors[0], vectors[1]


@given(st.integers(0, 10**6))
def test_retrieval_equals_the_naive_twin(seed):
    """All four tasks rank as sorting does: ties against the model, no query its own candidate."""
    ids, ratings, images, texts = random_case(seed)
    metrics = cxc_metrics(images, texts, ids, ratings, samples=2)
    owner = {sentid: i for i, each in enumerate(ids.sentids) for sentid in each}
    captions = list(owner)
    triples = {
        task: [(left, right, score) for left, right, score in zip(each.left, each.right, each.scores, strict=True)]
        for task, each in (("sts", ratings.sts), ("sis", ratings.sis), ("sits", ratings.sits))
    }
    text_pairs = {(a, b) for a, b, score in triples["sts"] if score >= 3.0}
    image_pairs = {(a, b) for a, b, score in triples["sis"] if score >= 2.5}
    cross = {(a, b) for a, b, score in triples["sits"] if score >= 3.0}
    cross |= {(sentid, ids.files[i]) for sentid, i in owner.items()}
    right = {
        "i2t": [{j for j, c in enumerate(captions) if (c, file) in cross} for file in ids.files],
        "t2i": [{i for i, file in enumerate(ids.files) if (c, file) in cross} for c in captions],
        "i2i": [
            {j for j, b in enumerate(ids.files) if a != b and ((a, b) in image_pairs or (b, a) in image_pairs)}
            for a in ids.files
        ],
        "t2t": [
            {
                j
                for j, b in enumerate(captions)
                if a != b and ((a, b) in text_pairs or (b, a) in text_pairs or owner[a] == owner[b])
            }
            for a in captions
        ],
    }
    sides = {"i": images, "t": texts}
    for task, good in right.items():
        left, other = sides[task[0]], sides[task[2]]
        expected = naive_direction(
            lambda q, c, left=left, other=other: sum(
                float(x) * float(y) for x, y in zip(left[q], other[c], strict=True)
            ),
            good,
            len(other),
            task[0] == task[2],
        )
        assert tuple(getattr(metrics, task).to_json().values()) == pytest.approx(expected), task


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=40))
def test_spearman_is_that_of_scipy(pairs):
    """Ties share their mean rank; a constant side, which scipy calls NaN, gives 0."""
    stats = pytest.importorskip("scipy.stats")
    left, right = np.array(pairs).T
    if len(set(left)) == 1 or len(set(right)) == 1:
        assert spearman(left, right) == 0
    else:
        assert spearman(left, right) == pytest.approx(stats.spearmanr(left, right).statistic, abs=1e-12)


def test_the_bootstrap_draws_half_of_the_queries_and_one_partner_of_each():
    """Mean and deviation are those over all equally likely draws, within what 4,000 samples allow."""
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(3)
    partners = [1, 3, 2, 1, 4, 2, 1]
    queries = np.repeat([5, 2, 9, 4, 7, 0, 8], partners)
    shuffled = generator.permutation(len(queries))
    queries = queries[shuffled]
    human = generator.integers(0, 8, size=len(queries)) / 2
    model = human + generator.normal(size=len(queries))
    of = {query: np.flatnonzero(queries == query) for query in set(queries.tolist())}
    values, weights = [], []
    for chosen in itertools.combinations(of, 3):  # seven queries: half of them, rounded down
        for pairs in itertools.product(*(of[query] for query in chosen)):
            both = model[list(pairs)], human[list(pairs)]
            values.append(stats.spearmanr(*both).statistic if len(set(both[1])) > 1 else 0.0)
            weights.append(1 / math.prod(len(of[query]) for query in chosen))
    mean = np.average(values, weights=weights)
    deviation = np.sqrt(np.average((np.array(values) - mean) ** 2, weights=weights))
    found = sampled_correlation(queries, model, human, samples=4000)
    assert (found.queries, found.pairs) == (7, 14)
    assert found.mean == pytest.approx(100 * mean, abs=5 * 100 * deviation / np.sqrt(4000))
    assert found.deviation == pytest.approx(100 * deviation, rel=0.1)


def test_cxc_intervals_resample_images_with_their_captions():
    """A draw repeats each query as often as its image is drawn; the gallery and the ranks stay as they are."""
    ids, ratings, images, texts = random_case(3)
    samples, seed = 60, 7
    found = cxc_metrics(images, texts, ids, ratings, samples=samples, seed=seed)
    owners = {"i": list(range(len(images))), "t": ids.caption_to_image.tolist()}
    between = DotScores(images, texts)
    right = image_text_positives(ratings, ids)
    ranked = {
        "i2t": ranks(between, right),
        "t2i": ranks(between.T, right.T),
        "t2t": ranks(DotScores(texts, texts), text_text_positives(ratings, ids), exclude_self=True),
        "i2i": ranks(DotScores(images, images), image_image_positives(ratings, ids), exclude_self=True),
    }
    for task, places in ranked.items():
        asked = [(o, r) for o, r in zip(owners[task[0]], places.tolist(), strict=True) if r != NO_POSITIVE]
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)))
        drawn = []
        for _ in range(samples):
            row = generator.integers(0, len(images), size=len(images)).tolist()
            drawn.append([r for image in row for o, r in asked if o == image] or [r for _, r in asked])
        measures = {
            "r1": lambda each: 100 * sum(rank <= 1 for rank in each) / len(each),
            "r5": lambda each: 100 * sum(rank <= 5 for rank in each) / len(each),
            "median_rank": statistics.median,
            "mean_rank": statistics.fmean,
        }
        for name, measure in measures.items():
            expected = np.quantile([measure(each) for each in drawn], [0.025, 0.975])
            assert found.intervals[f"{task}_{name}"].to_json() == pytest.approx(expected), (task, name)
    assert found.to_json()["intervals"]["t2t_r5"] == found.intervals["t2t_r5"].to_json()


def test_correlations_depend_on_the_seed_alone():
    """The same seed gives the same figures, another one others; what agrees with the ratings correlates fully."""
    ids, ratings, images, texts = random_case(1)
    once, again, other = (cxc_metrics(images, texts, ids, ratings, samples=20, seed=seed) for seed in (4, 4, 5))
    assert once == again
    assert once.correlations["sts"].mean != other.correlations["sts"].mean
    queries = np.arange(50) % 20
    human = np.random.default_rng(0).permutation(50) / 10
    for sign in (1, -1):
        full = sampled_correlation(queries, sign * human**3, human, samples=5)
        assert (full.mean, full.deviation) == (pytest.approx(100 * sign), pytest.approx(0, abs=1e-9))
    assert sampled_correlation(queries, np.ones(50), human, samples=5).mean == 0


def test_an_ensemble_of_equal_members_changes_nothing():
    """Any scores can be measured, and the JSON says what a correlation is."""
    ids, ratings, images, texts = random_case(2)
    single = CxcScores(DotScores(images, texts), DotScores(images, images), DotScores(texts, texts))
    mean = CxcScores(*(MeanScores([each, each]) for each in (single.image_text, single.image_image, single.text_text)))
    results: list[CxcMetrics] = [cxc_metrics_of_scores(each, ids, ratings, samples=3) for each in (single, mean)]
    assert results[0] == results[1]
    content = results[0].to_json()
    assert content["correlation_definition"] == CORRELATION
    assert set(content["correlations"]) == {"sts", "sis", "sits"}


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("sis", "", "sis_test.csv: columns '', expected image1,image2,agg_score first"),
        (
            "sits",
            "image,caption,agg_score,x\n",
            "columns 'image,caption,agg_score,x', expected caption,image,agg_score",
        ),
        ("sis", "image1,image2,agg_score,sampling_method\n", "no rated pair"),
        ("sis", "image1,image2,agg_score,m\na.jpg,b.jpg,2\n", "sis_test.csv:2: 3 values for 4 columns"),
        ("sis", "image1,image2,agg_score,m\n\na.jpg,b.jpg,high,x\n", "sis_test.csv:3: agg_score is 'high'"),
        ("sis", "image1,image2,agg_score,m\na.jpg,b.jpg,nan,x\n", "agg_score is 'nan', expected a number from 0 to 5"),
        ("sis", "image1,image2,agg_score,m\na.jpg,b.jpg,5.1,x\n", "agg_score is '5.1'"),
        ("sis", "image1,image2,agg_score,m\n,b.jpg,5,x\n", "image1 is '', expected an id like COCO_val2014_0"),
        (
            "sts",
            "caption1,caption2,agg_score,m\n10,x:sentid:11,5,x\n",
            "caption1 is '10', expected an id like COCO_val",
        ),
        ("sts", "caption1,caption2,agg_score,m\nx:sentid:1,x:sentid:b,5,x\n", "caption2 is 'x:sentid:b'"),
        ("sis", "image1,image2,agg_score,m\n" + "a" * 200_000 + ",b,1,x\n", "not CSV"),
    ],
)
def test_malformed_tables_are_refused_in_one_line(tmp_path, task, text, message):
    """An error names the file, the line and what was expected."""
    with pytest.raises(InputError) as caught:
        read_cxc(write_tables(tmp_path, **{task: text}))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cxc_refuses_mismatched_inputs(tmp_path):
    """Items without ids, vectors of another number, NaN, too few ratings and impossible options are named."""
    with pytest.raises(InputError, match=r"sts_test\.csv does not exist, nor does sts_test\.csv\.gz"):
        read_cxc(tmp_path)
    ratings = read_cxc(write_tables(tmp_path))
    fewer = CocoIds(IDS.files[:3], IDS.image_ids[:3], IDS.sentids[:3])
    with pytest.raises(InputError, match=r"SIS rates 'd\.jpg', which the ids do not have \(1 such items\)"):
        image_image_positives(ratings, fewer)
    ids, ratings, images, texts = random_case(0)
    with pytest.raises(InputError, match=r"STS rates \d+, which the ids do not have \(\d+ such items\)"):
        cxc_metrics(images[:4], texts[:8], IDS, ratings)
    with pytest.raises(InputError, match=r"scores of shape \(9, \d+\): 10 images and \d+ captions need \(10, "):
        cxc_metrics(images[:9], texts, ids, ratings)
    texts[3, 1] = np.nan
    with pytest.raises(InputError, match=r"texts\[3\] holds NaN"):
        cxc_metrics(images, texts, ids, ratings)
    with pytest.raises(InputError, match="3 rated left items: expected at least 4"):
        sampled_correlation(np.arange(3), np.arange(3.0), np.arange(3.0))
    with pytest.raises(InputError, match="samples 0 and seed 0"):
        sampled_correlation(np.arange(9), np.arange(9.0), np.arange(9.0), samples=0)
    with pytest.raises(InputError, match="samples 1000 and seed -1"):
        cxc_metrics(images, images[ids.caption_to_image], ids, ratings, seed=-1)
