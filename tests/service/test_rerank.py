"""Re-ranking over HTTP: a client asks for it, and never names a model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service.support import API, Home, assert_problem, soon

from vse.service import Limits, ServiceSettings, create_app
from vse.service.state import Reloader, load_collection


class Smallest:
    """Prefers small files, and counts what it reads."""

    name = "smallest"

    def __init__(self) -> None:
        self.read = 0

    def score(self, images, text):
        self.read += len(images)
        return np.array([-float(len(image)) if isinstance(image, bytes) else -1e9 for image in images])


@pytest.fixture(scope="module")
def reranked(home: Home) -> Iterator[tuple[TestClient, Smallest]]:
    reranker = Smallest()
    app = create_app(Reloader(lambda: load_collection(str(home.index))), ServiceSettings(), reranker=reranker)
    with TestClient(app, "http://127.0.0.1:8080", raise_server_exceptions=False, client=("127.0.0.1", 5)) as client:
        yield client, reranker


def test_client_asks_the_service_to_rerank(reranked, home):
    """Results are ordered by the re-ranker, both scores are shown, and the next page computes nothing again."""
    client, reranker = reranked
    assert client.get(f"{API}/collection").json()["model"]["capabilities"]["rerank"] is True
    asked = {"q": "a dog", "type": "image", "k": 3}
    plain = client.get(f"{API}/search", params=asked).json()
    assert plain["reranking"] is None
    assert {each["rerank_score"] for each in plain["results"]} == {None}
    assert reranker.read == 0
    found = client.get(f"{API}/search", params={**asked, "rerank": "true", "depth": 20}).json()
    how, read = found["reranking"], reranker.read
    assert how == {"model": "smallest", "depth": 20, "scored": read, "unreadable": 0, "complete": True}
    sizes = sorted(path.stat().st_size for path in home.photos.rglob("*") if path.suffix in {".png", ".jpg"})
    assert [-each["rerank_score"] for each in found["results"]] == sizes[:3]
    assert all(each["score"] is not None for each in found["results"])
    following = client.get(f"{API}/search", params={"cursor": found["cursor"]}).json()
    assert not {each["id"] for each in following["results"]} & {each["id"] for each in found["results"]}
    assert reranker.read == read


def test_reranking_that_a_service_cannot_do_is_a_problem(reranked, client):
    """No re-ranker, too deep, no text, by date: one line each; a client cannot name a model."""
    with_one, _ = reranked
    assert client.get(f"{API}/collection").json()["model"]["capabilities"]["rerank"] is False
    without = client.get(f"{API}/search", params={"q": "a dog", "rerank": "true"})
    assert_problem(without, 422, "no re-ranker")
    for given, words in (
        ({"depth": 201}, "depth"),
        ({"sort": "date"}, "sort by relevance to re-rank"),
        ({"rerank": "some/model"}, "rerank"),
    ):
        response = with_one.get(f"{API}/search", params={"q": "a dog", "rerank": "true", **given})
        assert_problem(response, 422, words)
    like = with_one.get(f"{API}/items", params={"k": 1}).json()["results"][0]["id"]
    assert_problem(with_one.get(f"{API}/search", params={"like": like, "rerank": "true"}), 422, "has none")


def test_stuck_reranking_leaves_text_search_alone(home: Home):
    """Re-ranked pages take no place of a text search or a thumbnail, however long they take."""
    started, released = threading.Semaphore(0), threading.Event()

    class Stuck(Smallest):
        def score(self, images, text):
            started.release()
            assert released.wait(20)
            return super().score(images, text)

    limits = Limits(threads=1, media_threads=1, rerank_threads=2)
    app = create_app(
        Reloader(lambda: load_collection(str(home.index))), ServiceSettings(limits=limits), reranker=Stuck()
    )
    asked = {"q": "snow", "k": 2}
    with (
        TestClient(app, "http://127.0.0.1:8080", client=("127.0.0.1", 5)) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        under_way = [pool.submit(client.get, f"{API}/search", params={**asked, "rerank": "true"}) for _ in range(4)]
        assert started.acquire(timeout=20)
        assert started.acquire(timeout=20)
        found = client.get(f"{API}/search", params=asked)
        assert found.status_code == 200
        assert client.get(found.json()["results"][0]["thumbnail"]).status_code == 200
        released.set()
        cursors = [task.result().json()["cursor"] for task in under_way]
        assert client.get(f"{API}/search", params={"cursor": cursors[0]}).json()["reranking"]["complete"]
        assert soon(lambda: app.state.service.workers.admitted == 0)
