"""Words beside embeddings: the fused ranking, compared with the two rankings it is made of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.index.examples import DIMENSIONS, directions, entry, picture
from tests.index.support import create, database
from tests.support_models import SIZE, build

from vse.errors import InputError
from vse.index.filters import Filter
from vse.index.fusion import word_weights
from vse.index.item_search import DEPTH, search, search_encoded
from vse.index.query import Query, QueryVector
from vse.index.results import SearchResults
from vse.index.store import EmbeddedCollection
from vse.index.types import Entry, Moment
from vse.index.words import texts_of
from vse.models.coefficients import RelevanceCoefficients, encode_reference, shipped_coefficients

COUNT = 600
VECTORS = directions(COUNT + 30, DIMENSIONS, seed=21)
QUERY = directions(1, DIMENSIONS, seed=22)[0]
COSINES = VECTORS[:COUNT] @ QUERY
LAST = int(np.argmin(COSINES))
NAMES = ("beach", "mountain", "garden", "market", "harbour")


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCollection]:
    """Images in folders with captions, a frequent word in each name, and videos; one caption names somebody."""
    entries = []
    with create(tmp_path_factory.mktemp("fusion") / "c") as made:
        for row in range(COUNT):
            captions = [f"{NAMES[row % 5]} at noon"] if row % 7 == 0 else []
            captions += ["Aunt Mathilda in Quito"] if row == LAST else ["Quito"] if row % 50 == 3 else []
            values = {"captions": tuple(captions), "taken": float(row) if row % 2 else None, "modified": row * 10**9}
            entries.append(entry(f"{row % 10}/img_{row:03}.jpg", VECTORS[row], **values))
        for number in range(6):
            own = VECTORS[COUNT + 5 * number : COUNT + 5 * number + 5]
            moments = tuple(Moment(vector, float(at), at + 1.0) for at, vector in enumerate(own))
            entries.append(Entry(picture(f"films/parade {number}.mp4", kind="video"), moments))
        made.add(entries)
        yield made


def found(
    collection: EmbeddedCollection, text: str, k: int = 20, exclude: tuple[str, ...] = (), **options: object
) -> SearchResults:
    query = QueryVector(QUERY, text, words_only=True, texts=(text,) if text else (), unwanted=exclude)
    return search_encoded(collection, query, k, **options)  # type: ignore[arg-type]


def ids_of(results: SearchResults) -> list[int]:
    return [result.id for result in results.results]


def naive_order(collection: EmbeddedCollection, text: str, where: Filter | None = None) -> list[int]:
    """Return the fused order, from the two rankings and the documented formula."""
    by_vector = collection.search(QUERY, COUNT + 30, where=where).ids.tolist()
    words = collection.search_words(word_weights(collection, [text]), QUERY, 256, where=where)
    scores = {each: float(VECTORS[each - 1] @ QUERY) for each in by_vector}
    points = {each: 1 / (60 + rank) for rank, each in enumerate(by_vector[:DEPTH], 1)}
    for rank, (each, share) in enumerate(zip(words.ids.tolist(), words.shares.tolist(), strict=True), 1):
        points[each] = points.get(each, 0.0) + share**3 / (20 + rank)
    first = sorted(points, key=lambda each: (-points[each], -scores[each], each))
    return first + [each for each in by_vector if each not in points]


def test_the_captioned_image_comes_first(collection):
    """Though its embedding fits least of all; the result says which text matched."""
    best = found(collection, "Aunt Mathilda Quito").results[0]
    assert best.id == LAST + 1
    assert best.matched == ("caption",)
    assert found(collection, "a photo of aunt MATHILDA").results[0] == best


@pytest.mark.parametrize("text", ["two submarines under ice", "the of a", "3 7", "…", "img jpg"])
def test_ranking_is_unchanged_where_no_word_matches(collection, text):
    """Bit for bit: words of no file, common words, short numbers, and words of nearly every file."""
    plain = found(collection, "", COUNT, coefficients=shipped_coefficients())
    assert found(collection, text, COUNT, coefficients=shipped_coefficients()).results == plain.results
    assert all(result.matched == () for result in plain.results)


WHERES = st.sampled_from([None, Filter(folder="3"), Filter(kind="image", after=50.0), Filter(words=("quito",))])
TEXTS = st.lists(
    st.sampled_from([*NAMES, "quito", "mathilda", "noon", "parade", "films", "submarine", "a", "jpg", "img_003"]),
    min_size=1,
    max_size=4,
).map(" ".join)


@given(text=TEXTS, where=WHERES)
@settings(max_examples=40, deadline=None)
def test_fused_order_follows_the_formula(collection, text, where):
    """Reciprocal ranks of both rankings, recomputed naively, for all results; filters apply to both."""
    whole = found(collection, text, COUNT + 30, where=where)
    assert ids_of(whole) == naive_order(collection, text, where)
    assert not whole.more
    scores = [result.score for result in whole.results]
    np.testing.assert_allclose(scores, [VECTORS[each - 1] @ QUERY for each in ids_of(whole)], atol=1e-6)


@given(
    text=TEXTS,
    where=WHERES,
    cuts=st.lists(st.integers(1, COUNT), max_size=4),
    threshold=st.sampled_from([None, 0.9]),
    videos=st.booleans(),
    cutoff=st.sampled_from([None, 0.001]),
    sort=st.sampled_from(["relevance", "date"]),
)
@settings(max_examples=30, deadline=None)
def test_pages_with_words_are_consistent(collection, text, where, cuts, threshold, videos, cutoff, sort):
    """Pages of any sizes add up to one long page, grouped or not, cut or not."""

    def page(offset: int, k: int) -> SearchResults:
        return found(
            collection, text, k, offset=offset, where=where, group_duplicates=threshold, group_videos=videos,
            cutoff=cutoff, coefficients=shipped_coefficients(), sort=sort,
        )  # fmt: skip

    whole = page(0, 2 * COUNT)
    bounds = [0, *sorted(set(cuts)), 2 * COUNT]
    parts = [page(start, stop - start) for start, stop in pairwise(bounds)]
    shown = [(result.id, result.score, result.matched) for part in parts for result in part.results]
    assert shown == [(result.id, result.score, result.matched) for result in whole.results]
    assert [part.more for part in parts] == [len(whole.results) > stop for stop in bounds[1:]]
    if videos:
        paths = [result.path for result in whole.results]
        assert len(paths) == len(set(paths))


def test_words_of_a_video_count_for_its_best_moment(collection):
    """Its other moments keep their places."""
    whole = ids_of(found(collection, "parade 3", COUNT + 30))
    own = range(COUNT + 16, COUNT + 21)
    best = max(own, key=lambda each: float(VECTORS[each - 1] @ QUERY))
    leading = whole[:6]
    assert best in leading
    assert not set(own) - {best} & set(leading)
    grouped = found(collection, "parade 3", 6, group_videos=True)
    assert {result.path for result in grouped.results} == {f"/photos/films/parade {n}.mp4" for n in range(6)}
    assert all("name" in result.matched for result in grouped.results)


def test_minima_do_not_cut_what_words_find(collection):
    """A file that holds the words stays, whatever its confidence; one that holds few of them does not."""
    sure = shipped_coefficients()
    assert ids_of(found(collection, "Mathilda", cutoff=1.0, coefficients=sure)) == [LAST + 1]
    assert ids_of(found(collection, "Mathilda dancing happily on ice", cutoff=1.0, coefficients=sure)) == []
    nothing = found(collection, "submarine", cutoff=1.0, coefficients=sure)
    assert (nothing.results, nothing.empty_reason.condition) == ((), "confidence")
    strict = RelevanceCoefficients(-50.0, 1.0, 0.0, 0.0, DIMENSIONS, encode_reference(VECTORS[:5]), "a test")
    kept = found(collection, "Mathilda", min_relevance=0.5, relevance=strict)
    assert ids_of(kept) == [LAST + 1]
    assert kept.results[0].relevance < 0.5


def test_filters_apply_to_words(collection):
    """A file that does not pass is not found by its words either; an empty page names the filter."""
    where = Filter(folder=str((LAST + 1) % 10))
    assert LAST + 1 not in ids_of(found(collection, "Mathilda", COUNT, where=where))
    here = found(collection, "Mathilda", where=Filter(folder=str(LAST % 10), words=("aunt mathilda",)))
    assert ids_of(here) == [LAST + 1]
    nothing = found(collection, "Mathilda", where=Filter(words=("uncle mathilda",)))
    assert (nothing.results, nothing.empty_reason.condition) == ((), "words")


def test_excluded_words_drop_files_that_hold_them(collection):
    """In captions and names, even without relevance; a word of the folder does not count, nor do articles."""
    everything = set(ids_of(found(collection, "", COUNT + 30)))
    kept = ids_of(found(collection, "", COUNT + 30, exclude=("the Quito",)))
    dropped = {row + 1 for row in range(COUNT) if row % 50 == 3} | {LAST + 1}
    assert set(kept) == everything - dropped
    assert LAST + 1 not in ids_of(found(collection, "Mathilda", COUNT, exclude=("quito",)))
    assert set(ids_of(found(collection, "", COUNT + 30, exclude=("photos", "the")))) == everything
    assert set(ids_of(found(collection, "", COUNT + 30, exclude=("quito mathilda",)))) == everything


def test_sorting_by_date(collection):
    """The same results, newest first: when taken, else when changed."""
    whole = found(collection, "quito", 400)
    dated = found(collection, "quito", 400, sort="date")
    everything = found(collection, "quito", COUNT + 30, sort="date")
    age = {result.id: result.taken if result.taken is not None else result.item.file.modified / 1e9
           for result in everything.results}  # fmt: skip
    ages = [age[result.id] for result in everything.results]
    assert ages == sorted(ages, reverse=True)
    assert set(ids_of(everything)) == set(ids_of(found(collection, "quito", COUNT + 30)))
    assert ids_of(dated) == ids_of(everything)[:400]
    assert ids_of(dated) != ids_of(whole)
    with pytest.raises(InputError, match="sort"):
        found(collection, "quito", sort="size")


@given(text=st.text(max_size=40) | st.text('"*():^-+{}[]\\NEARORAND dog', max_size=40))
@settings(max_examples=80, deadline=None)
def test_no_text_is_read_as_a_query_of_the_database(collection, text):
    """Operators of FTS5 are neither errors nor conditions, in queries, filters and exclusions."""
    assert len(found(collection, text, 5, exclude=(f"{text} x",)).results) == 5
    weights = word_weights(collection, [text])
    assert abs(sum(weights.values()) - 1) < 1e-9 or not weights
    try:
        where = Filter(words=(text,), name=text)
    except InputError:
        return
    assert set(collection.search(QUERY, 5, where=where).ids.tolist()) <= set(range(1, COUNT + 31))


@pytest.mark.parametrize(
    ("file", "texts"),
    [
        ({"captions": ("Ärger im Café",)}, ["arger", "CAFÉ", "A\u0308rger"]),
        ({"title": "東京タワー"}, ["東京", "京"]),
        ({"keywords": ("महोत्सव",)}, ["महोत्सव"]),
        ({"place": "Łódź, Polska"}, ["Łódź"]),
        ({"ocr": "NO ENTRY"}, ["entry"]),
    ],
)
def test_words_of_any_script_are_found(tmp_path, file, texts):
    with create(tmp_path / "c") as made:
        made.add([entry(f"{row}.jpg", VECTORS[row]) for row in range(40)])
        made.add([entry("x.jpg", -QUERY, **file)])
        for text in texts:
            results = found(made, text, 30).results
            assert [result.matched for result in results if result.id == 41] == [tuple(f.rstrip("s") for f in file)]
            if "ocr" not in file:
                assert results[0].id == 41


def test_words_weigh_by_rarity(tmp_path):
    """A rare word weighs more than a frequent one, and a word in no file half as much as one could."""
    with create(tmp_path / "c") as made:
        captions = [("dog cat",) if row < 2 else ("dog",) if row < 20 else ("day",) for row in range(100)]
        made.add([entry(f"{row}.jpg", VECTORS[row], captions=captions[row]) for row in range(100)])
        weights = word_weights(made, ["a dog and a cat with a submarine", "on a day"])
        assert list(weights) == ["dog", "cat", "submarine"]  # "day" is in most files
        assert weights["cat"] > weights["submarine"] > weights["dog"]
        idf = {word: np.log1p((100.5 - count) / (count + 0.5)) for word, count in (("dog", 20), ("cat", 2))}
        assert weights["dog"] / weights["cat"] == pytest.approx(idf["dog"] / idf["cat"])
        assert word_weights(made, ["day"]) == word_weights(made, ["submarine"]) == word_weights(made, []) == {}


def test_a_collection_without_word_tables_is_searched_by_embedding(tmp_path, monkeypatch):
    """A reader of an older collection finds the same as before; a writer adds the tables."""
    folder = tmp_path / "c"
    with create(folder) as made:
        made.add([entry(f"{row}.jpg", VECTORS[row], captions=("Mathilda",) if row == 3 else ()) for row in range(30)])
        plain = ids_of(found(made, ""))
        assert found(made, "Mathilda").results[0].id == 4
    with closing(sqlite3.connect(database(folder), isolation_level=None)) as connection:
        connection.executescript(
            "DROP TRIGGER words_added; DROP TRIGGER words_removed; DROP TABLE word_index; DROP TABLE words; "
            "DROP TABLE details; PRAGMA user_version = 0"
        )
    files = iter(range(30))

    def interrupted(file):
        if next(files) == 20:
            raise KeyboardInterrupt
        return texts_of(file)

    for attempt in range(2):
        with EmbeddedCollection.open(folder) as reader:
            assert ids_of(found(reader, "Mathilda", exclude=("Mathilda",))) == plain
            with pytest.raises(InputError, match="before words were indexed"):
                found(reader, "Mathilda", where=Filter(words=("Mathilda",)))
        if not attempt:  # a writer that is interrupted while it adds them leaves none
            with monkeypatch.context() as patched:
                patched.setattr("vse.index.store.words.texts_of", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    EmbeddedCollection.open(folder, write=True)
    with EmbeddedCollection.open(folder, write=True) as writer:
        assert found(writer, "Mathilda").results[0].id == 4
        assert writer.verify().ok


def test_words_that_only_files_know_are_searched_there(tmp_path):
    """A name that the model does not know finds its file, alone or beside other texts; elsewhere it is an error."""
    model = build()
    with create(tmp_path / "c", SIZE, model.fingerprint()) as made:
        vectors = directions(30, SIZE, seed=3)
        made.add([entry(f"{row}.jpg", vectors[row], captions=("Mathilda",) if row == 3 else ()) for row in range(30)])
        options = {"model": model, "cutoff": 0.99, "coefficients": shipped_coefficients()}
        alone = search(made, "Mathilda", **options)
        assert [(each.id, each.score, each.confidence, each.matched) for each in alone.results] == [
            (4, 0.0, None, ("caption",))
        ]
        assert (alone.unknown, alone.vector, alone.more) == (("mathilda",), None, False)
        beside = search(made, Query(texts=("a dog", "Mathilda"), weights=(1, 3)), 30, model=model)
        dog = search(made, "a dog", 30, model=model)
        assert beside.results[0].id == 4
        assert beside.unknown == ("mathilda",)
        assert sorted((each.id, each.score) for each in beside.results) == sorted(
            (each.id, each.score) for each in dog.results
        )
        kept = search(made, Query(texts=("a dog",), exclude=("Mathilda",)), 30, model=model)
        assert [each.id for each in kept.results] == [each.id for each in dog.results if each.id != 4]
        for query in ("zanzibar", Query(texts=("a dog",), exclude=("zanzibar",))):
            with pytest.raises(InputError, match="knows none of its words"):
                search(made, query, model=model)
