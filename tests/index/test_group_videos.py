"""A video is one result: its best moment, with the number of moments that match; pages stay consistent."""

from __future__ import annotations

import numpy as np
import pytest
from tests.index.examples import DIMENSIONS, directions, picture
from tests.index.support import create

from vse.index.item_search import search_encoded
from vse.index.query import QueryVector
from vse.index.types import Entry, Moment

VIDEOS, MOMENTS = 7, 5


@pytest.fixture
def collection(tmp_path):
    vectors = directions(VIDEOS * MOMENTS + 4, DIMENSIONS, seed=3)
    with create(tmp_path / "c") as made:
        for number in range(VIDEOS):
            own = vectors[number * MOMENTS : (number + 1) * MOMENTS]
            moments = tuple(Moment(vector, float(at), at + 1.0) for at, vector in enumerate(own))
            made.add([Entry(picture(f"{number}.mp4", kind="video"), moments)])
        for number, vector in enumerate(vectors[-4:]):
            made.add([Entry(picture(f"{number}.jpg"), (Moment(vector),))])
        yield made


def found(collection, k=100, offset=0, **options):
    query = QueryVector(directions(1, DIMENSIONS, seed=5)[0], "x")
    return search_encoded(collection, query, k, offset=offset, **options)


def test_best_moment_stands_for_its_video(collection):
    """The naive rule: the first result of each file, in order, and how often the file occurs."""
    each = found(collection).results
    firsts = {}
    for result in each:
        firsts.setdefault(result.path, result.id)
    grouped = found(collection, group_videos=True)
    assert [result.id for result in grouped.results] == list(firsts.values())
    assert {result.path: result.moments for result in grouped.results} == {
        path: sum(result.path == path for result in each) for path in firsts
    }
    assert grouped.results[0].to_json()["moments"] == grouped.results[0].moments
    assert all(result.moments == 1 for result in each)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pages_of_grouped_videos_are_consistent(collection, k):
    """Pages of any size add up to the whole, and the last one ends."""
    whole = found(collection, group_videos=True)
    ids, offset, more = [], 0, True
    while more:
        page = found(collection, k, offset, group_videos=True)
        ids += [result.id for result in page.results]
        offset, more = offset + k, page.more
    assert ids == [result.id for result in whole.results]


def test_grouped_videos_go_with_duplicates(collection):
    """Near-duplicates are grouped among the best moments."""
    copy = collection.vectors([found(collection).results[0].id])[0]
    collection.add([Entry(picture("copy.jpg"), (Moment(np.array(copy)),))])
    results = found(collection, group_videos=True, group_duplicates=0.99).results
    assert len(results) == VIDEOS + 4
    assert len(results[0].group) == 1
