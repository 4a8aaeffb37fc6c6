"""Search a collection: consistent pages, cutoffs, groups, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.index.examples import directions, entry, picture
from tests.index.support import create
from tests.support_models import SIZE, build

from vse.errors import InputError
from vse.index.calibration import write_coefficients
from vse.index.filters import Filter
from vse.index.item_search import DEPTH, search
from vse.index.query import Query, encode_query
from vse.index.results import SearchResults, clock
from vse.index.store import EmbeddedCollection, approximate
from vse.index.types import Entry, Moment
from vse.models.coefficients import Coefficients, shipped_coefficients

COUNT = 700
VECTORS = directions(COUNT, SIZE, seed=30)
VECTORS[400:] = VECTORS[100:400]  # ties, ordered by id, on both sides of the depth


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCollection]:
    """Seven hundred images in ten folders, every other one with a date."""
    with create(tmp_path_factory.mktemp("search") / "c", SIZE, build().fingerprint()) as made:
        made.add(
            [
                entry(f"{row % 10}/{row:03}.jpg", vector, taken=float(row) if row % 2 else None)
                for row, vector in enumerate(VECTORS)
            ]
        )
        yield made


def ids_of(results: SearchResults) -> list[int]:
    return [result.id for result in results.results]


def naive_order(collection: EmbeddedCollection, vector: np.ndarray) -> list[int]:
    """Return all ids by descending score, ties by id."""
    found = []
    for ids, vectors in collection.all_vectors():
        scores = np.float32(vectors.astype(np.float64) @ vector.astype(np.float64))
        found += [(-float(score), int(each)) for each, score in zip(ids, scores, strict=True)]
    return [each for _, each in sorted(found)]


def test_the_best_in_order(collection):
    """Ids, scores and files equal those of a brute-force comparison in double precision."""
    found = search(collection, Query(like=(5,)), 20)
    order = naive_order(collection, VECTORS[4])
    assert order[0] == 5
    assert ids_of(found) == order[1:21]
    assert found.exact
    assert found.more
    for result in found.results:
        row = result.id - 1
        assert result.path == f"/photos/{row % 10}/{row:03}.jpg"
        assert result.score == pytest.approx(float(VECTORS[row] @ VECTORS[4]), abs=1e-6)
        assert result.taken == (float(row) if row % 2 else None)
    sure = [result.confidence for result in found.results]
    assert sure == sorted(sure, reverse=True)


@pytest.mark.parametrize("threshold", [None, 0.97])
def test_search_excludes_items_of_like_query(collection, threshold):
    """Exactly those items are excluded; pages keep their length, and copies stay."""
    like = (7, 150, 7, 451)
    vector = encode_query(Query(like=like), None, collection).vector
    expected = [each for each in naive_order(collection, vector) if each not in like]
    found = search(collection, Query(like=like), 300, group_duplicates=threshold)
    if threshold is None:
        assert ids_of(found) == expected[:300]
    else:
        assert len(found.results) == 300
        assert {450, 151} <= {each for result in found.results for each in (result.id, *result.group)}
    assert not set(like) & {each for result in found.results for each in (result.id, *result.group)}
    everything = Query(like=range(1, COUNT + 1))
    assert search(collection, everything, where=Filter(folder="3")).results == ()


def test_search_encodes_text(collection):
    """The model encodes the text; unknown words are returned with the results."""
    model = build()
    found = search(collection, "a zebra in the snow", 3, model=model)
    assert ids_of(found) == naive_order(collection, model.encode_texts(["a zebra in the snow"])[0])[:3]
    assert (found.query, found.unknown) == ("a zebra in the snow", ("zebra",))


@given(
    like=st.integers(1, COUNT),
    cuts=st.lists(st.integers(1, COUNT), max_size=5),
    threshold=st.sampled_from([None, 0.6, 0.97]),
    cutoff=st.sampled_from([None, 0.01, 0.2]),
    folder=st.sampled_from([None, "3"]),
)
@settings(max_examples=25)
def test_search_pages_are_consistent(collection, like, cuts, threshold, cutoff, folder):
    """Concatenated pages of any sizes equal one long page, even across the depth; only the last has no more."""
    where = Filter(folder=folder)

    def page(offset: int, k: int) -> SearchResults:
        return search(
            collection, Query(like=(like,)), k, offset=offset, where=where, cutoff=cutoff,
            group_duplicates=threshold,
        )  # fmt: skip

    whole = page(0, COUNT)
    assert not whole.more
    bounds = [0, *sorted(set(cuts)), COUNT + 1]
    parts = [page(start, stop - start) for start, stop in pairwise(bounds)]
    assert [each for part in parts for each in ids_of(part)] == ids_of(whole)
    for part, stop in zip(parts, bounds[1:], strict=True):
        assert part.more == (len(whole.results) > stop)
    by_id = {result.id: result for result in whole.results}
    for part in parts:
        for result in part.results:
            assert (result.score, result.confidence) == (by_id[result.id].score, by_id[result.id].confidence)


def test_pages_over_an_approximate_index(tmp_path, monkeypatch):
    """The exact search beyond the depth continues the approximate one without duplicates or gaps."""
    assert DEPTH <= approximate.MAX_RESULTS
    monkeypatch.setattr(approximate, "HNSW_FROM", 500)
    monkeypatch.setattr(approximate, "POOL", 280)
    with create(tmp_path / "c", SIZE) as writer:
        writer.add([entry(f"{row}.jpg", vector) for row, vector in enumerate(VECTORS)])
    with EmbeddedCollection.open(tmp_path / "c") as reader:
        query = Query(like=(9,))
        pages = [search(reader, query, 90, offset=offset) for offset in range(0, COUNT, 90)]
        assert not pages[0].exact
        ids = [each for page in pages for each in ids_of(page)]
        assert sorted([*ids, 9]) == list(range(1, COUNT + 1))
        assert ids == ids_of(search(reader, query, COUNT))


def test_a_filter_leaves_confidence_as_it_is(collection):
    """A filter changes which items are found, not their confidence."""
    everything = {result.id: result for result in search(collection, Query(like=(5,)), COUNT).results}
    found = search(collection, Query(like=(5,)), 50, where=Filter(folder="3", after=100.0))
    assert found.results
    for result in found.results:
        assert result == everything[result.id]
        assert result.path.startswith("/photos/3/")
        assert result.taken is not None
        assert result.taken >= 100


def test_a_cut_off_ends_the_results(collection):
    """All results with at least that confidence remain."""
    whole = search(collection, Query(like=(5,)), COUNT)
    bound = whole.results[7].confidence
    found = search(collection, Query(like=(5,)), COUNT, cutoff=bound)
    assert found.results == tuple(result for result in whole.results if result.confidence >= bound)
    assert search(collection, Query(like=(5,)), 3, cutoff=1.0).results == ()


def test_search_groups_duplicates(collection):
    """Near-duplicates are grouped under the best of them; together they are all hits."""
    alone = search(collection, Query(like=(150,)), 256)
    joined = search(collection, Query(like=(150,)), 200, group_duplicates=0.97)
    first = joined.results[0]
    assert (first.id, first.group) == (450, ())  # its duplicate is the query itself
    pairs = [result for result in joined.results[1:50] if 100 < result.id <= 400]
    assert len(pairs) > 10
    for result in pairs:
        assert result.group == (result.id + 300,)
        assert result.alike == (collection.items([result.id + 300])[0].file.path.join(["/photos/", ""]),)
    rank = {each: number for number, each in enumerate(ids_of(alone))}
    for result in joined.results:
        for other in result.group:
            assert VECTORS[other - 1] @ VECTORS[result.id - 1] >= 0.97
            assert rank.get(other, 256) > rank.get(result.id, 256) or result.id not in rank
    seen = [each for result in joined.results for each in (result.id, *result.group)]
    assert len(seen) == len(set(seen))


def test_search_result_of_video_has_seconds(tmp_path):
    """A moment of a video has start and end; an image has neither."""
    with create(tmp_path / "c", SIZE, build().fingerprint()) as made:
        clip = Entry(picture("c.mp4", kind="video"), (Moment(VECTORS[0], 0.0, 2.5), Moment(VECTORS[1], 2.5, 70.0)))
        made.add([clip, entry("p.jpg", VECTORS[2])])
        found = search(made, Query(like=(1,)))
    moment = next(result for result in found.results if result.kind == "video")
    assert (moment.id, moment.start, moment.end) == (2, 2.5, 70.0)
    still = next(result for result in found.results if result.kind == "image")
    assert (still.start, still.end) == (None, None)


def test_search_result_json(collection):
    """The documented keys, plain values, no NaN."""
    told = search(collection, Query(like=(5,)), 2).to_json()
    assert {"query", "exact", "results"} <= told.keys()
    assert told["query"] == "like 5"
    for result in told["results"]:
        assert {"id", "path", "score", "confidence", "start", "end"} <= result.keys()
        assert 0 <= result["confidence"] <= 1
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_search_groups_name_some_files(tmp_path):
    """A group names the files of its first items."""
    with create(tmp_path / "c", SIZE) as made:
        made.add([entry("a.jpg", VECTORS[0]), *(entry(f"x/{row}\n.jpg", VECTORS[1]) for row in range(6))])
        spans = tuple(Moment(VECTORS[2], second, second + 1.0) for second in (0.0, 1.0, 2.0))
        made.add([Entry(picture("clip.mp4", kind="video"), spans)])
        found = search(made, Query(like=(1,)), group_duplicates=0.9)
    assert sorted(result.alike for result in found.results) == [
        ("/photos/clip.mp4", "/photos/clip.mp4"),
        ("/photos/x/1\n.jpg", "/photos/x/2\n.jpg", "/photos/x/3\n.jpg"),
    ]
    told = [result["group"] for result in found.to_json()["results"]]
    assert sorted(told) == [[3, 4, 5, 6, 7], [9, 10]]
    assert "alike" not in found.to_json()["results"][0]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "0:00.0"), (59.94, "0:59.9"), (59.96, "1:00.0"), (61.5, "1:01.5"), (3600, "60:00.0")]
)
def test_search_result_clock_times(seconds, shown):
    """Sixty seconds are a minute, even after rounding."""
    assert clock(seconds) == shown


def test_the_vector_of_the_query(collection):
    """Results hold the query embedding, which affects neither JSON nor equality."""
    found = search(collection, Query(like=(5,)), 2)
    assert found.vector is not None
    np.testing.assert_allclose(
        collection.vectors(ids_of(found)) @ found.vector, [r.score for r in found.results], atol=1e-6
    )
    assert "vector" not in found.to_json()
    assert found == search(collection, Query(like=(5,)), 2)


def test_an_empty_collection_has_no_results(tmp_path):
    with create(tmp_path / "c", SIZE, build().fingerprint()) as made:
        found = search(made, "a dog", model=build())
    assert (found.results, found.more, found.exact) == ((), False, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 0}, "k 0"),
        ({"k": 2.5}, r"k 2\.5"),
        ({"k": "10"}, "k 10: expected a whole number"),
        ({"offset": 1.5}, r"offset 1\.5"),
        ({"cutoff": "high"}, "cutoff high"),
        ({"group_duplicates": "yes"}, "group_duplicates yes"),
        ({"offset": -1}, "offset -1"),
        ({"cutoff": 1.5}, r"cutoff 1\.5"),
        ({"cutoff": float("nan")}, "cutoff nan"),
        ({"group_duplicates": 0.0}, r"group_duplicates 0\.0"),
    ],
)
def test_search_names_invalid_values(collection, options, words):
    """Each error quotes its value in one line."""
    with pytest.raises(InputError, match=words) as caught:
        search(collection, Query(like=(1,)), **options)
    assert "\n" not in str(caught.value)


def test_search_names_invalid_query_type(collection):
    """The error states the type and what was expected."""
    with pytest.raises(InputError, match="query is list, expected a text or a Query"):
        search(collection, ["a dog"])


@pytest.mark.parametrize("dimensions", [8, SIZE])
def test_search_refuses_another_model_even_of_equal_width(tmp_path: Path, dimensions: int):
    """Fingerprints are compared, not widths."""
    refused = pytest.raises(InputError, match=r"holds embeddings of model old \(models/old\), not of")
    with create(tmp_path / "c", dimensions) as made, refused:
        search(made, "a dog", model=build())


def test_search_loads_the_model_of_the_collection_once(tmp_path: Path, monkeypatch):
    """From the source that the collection records, with the confidence coefficients beside it."""
    model, folder = build(), tmp_path / "model"
    model.save(folder)
    coefficients = Coefficients(-1.0, 0.5, 0.25, 0.125, "a test")
    write_coefficients(folder, coefficients)
    options = {"model": model.fingerprint(), "model_source": str(folder), "dimensions": SIZE}
    with EmbeddedCollection.create(tmp_path / "c", **options) as made:
        made.add([entry(f"{row}.jpg", vector) for row, vector in enumerate(VECTORS[:20])])
        found = search(made, "a dog")
        monkeypatch.setattr("vse.models.sources.load_towers", lambda source: pytest.fail("loaded twice"))
        again = search(made, "a dog")
        assert found == again == search(made, "a dog", model=model, coefficients=coefficients)
        bundled = search(made, "a dog", coefficients=shipped_coefficients())
    assert found.results[0].confidence != bundled.results[0].confidence
