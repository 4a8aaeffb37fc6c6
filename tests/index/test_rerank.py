"""Re-rank the results of a search: order, pages, ties, files that cannot be read, and a time limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.index.examples import entry

from vse.errors import InputError
from vse.index import rerank as module
from vse.index.rerank import PairReranker, search_reranked
from vse.index.results import Result, SearchResults
from vse.index.types import Item
from vse.models.protocols import Capabilities

COUNT = 30


def items() -> list[Result]:
    """Thirty results, the first stage's scores falling."""
    found = []
    for number in range(COUNT):
        made = entry(f"{number:03}.jpg", np.eye(4, dtype=np.float32)[0])
        found.append(Result(Item(number + 1, made.file, None, None), 1 - number / 100, None))
    return found


def pages(results: list[Result]) -> Callable[[int, int], SearchResults]:
    return lambda k, offset: SearchResults(
        "a dog", True, tuple(results[offset : offset + k]), offset, len(results) > offset + k
    )


class ByName:
    """Scores an image by a function of its number; remembers what it was asked."""

    name = "by name"

    def __init__(self, score: Callable[[int], float]) -> None:
        self.one = score
        self.asked: list[int] = []

    def score(self, images, text):
        assert text == "a dog"
        numbers = [int(Path(image).stem) for image in images]
        self.asked += numbers
        if 7 in numbers:
            raise InputError("007.jpg: not an image")
        return np.array([self.one(number) for number in numbers])


def numbers_of(found: SearchResults) -> list[int]:
    return [each.id - 1 for each in found.results]


@pytest.mark.parametrize("depth", [0, 1, 5, 20, 30, 1000])
def test_pages_of_a_reranked_search_are_one_order(depth):
    """Whatever the pages, they are the first ``depth`` results by new score, ties by old rank, then the others."""
    head = list(range(min(depth, COUNT)))
    readable = sorted((each for each in head if each != 7), key=lambda each: -(each % 3))
    wanted = [*readable, *([7] if 7 in head else []), *range(len(head), COUNT)]
    for size in (4, 30):
        found = []
        for offset in range(0, COUNT, size):
            page = search_reranked(
                pages(items()), ByName(lambda n: n % 3), ["a dog"], k=size, offset=offset, depth=depth
            )
            assert page.more == (offset + size < COUNT)
            assert page.reranking.complete
            assert page.reranking.depth == depth
            for each in page.results:
                again = each.id - 1 in readable
                assert each.rerank_score == ((each.id - 1) % 3 if again else None)
                assert each.score == 1 - (each.id - 1) / 100  # the first stage's score stays
            found += numbers_of(page)
        assert found == wanted


def test_candidates_after_the_time_limit_keep_their_order(monkeypatch):
    """The clock is asked between blocks: what is not scored stands behind what is, and the result says so."""
    ticks = iter([0.0, 0.0, 5.0, 20.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    reranker = ByName(lambda n: n)
    found = search_reranked(pages(items()), reranker, ["a dog"], k=30, depth=30, seconds=10)
    done = 2 * module.TOGETHER
    assert numbers_of(found) == [*(n for n in reversed(range(done)) if n != 7), 7, *range(done, COUNT)]
    assert found.reranking == module.Reranking("by name", 30, done - 1, 1, complete=False)
    assert found.to_json()["reranking"]["complete"] is False
    assert "rerank_score" not in found.to_json()["results"][-1]


def test_known_scores_are_not_computed_again():
    """The second page of a search asks for nothing new."""
    known: dict = {}
    cache = SimpleNamespace(get=known.get, put=known.__setitem__)
    reranker = ByName(lambda n: -n)
    for offset in (0, 10):
        search_reranked(pages(items()), reranker, ["a dog"], k=10, offset=offset, depth=20, known=cache)
    again = [number for number in reranker.asked if number != 7]
    assert sorted(set(again)) == [number for number in range(20) if number != 7]
    assert len(known) == 19


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 1001}, "depth 1001: expected a whole number from 0 to 1,000"),
        ({"depth": -1}, "depth -1"),
        ({"seconds": 0}, "a time limit of 0 s: expected a number above 0"),
        ({"texts": ()}, "this query has none: add one, or do not re-rank"),
    ],
)
def test_reranking_out_of_range_is_one_line(options, message):
    texts = options.pop("texts", ["a dog"])
    with pytest.raises(InputError, match=message):
        search_reranked(pages(items()), ByName(float), texts, k=3, **options)


def test_models_that_cannot_rerank_a_search_are_refused():
    """A model of embeddings, one of features and one without a vocabulary: each says why."""

    def scorer(**able: bool):
        abilities = Capabilities(
            **({"images": True, "texts": True} | able), videos=False, evidence=False, features=True
        )
        empty = dict.fromkeys(("score_pairs", "architecture", "fingerprint"), lambda *_, **__: None)
        return SimpleNamespace(capabilities=abilities, tokenizer=None, no_vectors="", reads_graphs=False, **empty)

    assert PairReranker(scorer(), "ok").name == "ok"
    with pytest.raises(InputError, match="plain: a model with one embedding per image and text"):
        PairReranker(SimpleNamespace(capabilities=scorer().capabilities), "plain")
    with pytest.raises(InputError, match="regions takes features of images and cannot read image files"):
        PairReranker(scorer(images=False), "regions")
    with pytest.raises(InputError, match="mute: without a vocabulary"):
        PairReranker(scorer(texts=False), "mute")
