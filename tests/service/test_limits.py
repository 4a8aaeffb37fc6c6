"""Limits of requests and time: 429 for one client, 503 for all, and recovery from both."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.hostile.images import many_chunks
from tests.service.support import API, application, assert_problem, service, soon

from vse.service import Limits
from vse.service.context import Workers
from vse.service.problems import ProblemError
from vse.service.state import LoadedCollection


def run_alone(scene):
    """Run a coroutine in a thread of its own: that of the tests has a loop while a browser is open."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(scene())).result()


@pytest.fixture
def held(monkeypatch):
    """Makes searches wait until this event is set."""
    released = threading.Event()
    ask = LoadedCollection.encode

    def waiting(self, query):
        assert released.wait(20)
        return ask(self, query)

    monkeypatch.setattr(LoadedCollection, "encode", waiting)
    yield released
    released.set()


async def refused(workers: Workers, client: str) -> tuple[int, str]:
    """The status and Retry-After of a function that is not admitted."""
    with pytest.raises(ProblemError) as error:
        await workers.run(client, lambda: None)
    assert error.value.headers
    return error.value.status_code, error.value.headers["Retry-After"]


def test_worker_admission_limits():
    """One client gets 429 beyond ``per_client`` while others are served; all get 503 beyond ``waiting``."""

    async def scene() -> None:
        workers, released = Workers(Limits(threads=1, waiting=5, per_client=3)), threading.Event()
        under_way = [asyncio.create_task(workers.run("a", released.wait)) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert (await refused(workers, "a"))[0] == 429
        under_way += [asyncio.create_task(workers.run("b", released.wait)) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert (await refused(workers, "b"))[0] == 503
        assert (await refused(workers, "c"))[0] == 503
        released.set()
        assert await asyncio.gather(*under_way) == [True] * 5
        assert await workers.run("a", lambda: 7) == 7
        assert (workers.admitted, dict(workers.clients)) == (0, {})
        workers.close()

    run_alone(scene)


def test_worker_timeout():
    """503 at once; the slot is free when the function has returned, and queued functions never run."""

    async def scene() -> None:
        workers, released, done = Workers(Limits(threads=1, waiting=3, seconds=0.1)), threading.Event(), []

        def work() -> None:
            assert released.wait(20)
            done.append("long")

        tasks = [
            asyncio.create_task(workers.run("a", work)),
            asyncio.create_task(workers.run("a", lambda: done.append(1))),
        ]
        for task in tasks:
            with pytest.raises(ProblemError) as error:
                await task
            assert error.value.status_code == 503
            assert "0.1 s" in error.value.detail
        assert workers.admitted == 1
        released.set()
        for _ in range(100):
            await asyncio.sleep(0.01)
            if not workers.admitted:
                break
        assert (workers.admitted, dict(workers.clients)) == (0, {})
        assert done == ["long"]
        assert await workers.run("a", lambda: 7) == 7
        workers.close()

    run_alone(scene)


def test_worker_error_frees_its_slot():
    """The exception is raised to the caller."""

    async def scene() -> None:
        workers = Workers(Limits(per_client=1))
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await workers.run("a", lambda: 1 / 0)
        assert workers.admitted == 0
        workers.close()

    run_alone(scene)


def test_client_limit_over_http(home, held):
    """429 with Retry-After while its searches are in progress; health, page and metrics respond meanwhile."""
    with application(home.index, limits={"per_client": 2, "threads": 1}) as client, ThreadPoolExecutor(2) as pool:
        under_way = [pool.submit(client.get, f"{API}/search?q=snow") for _ in range(2)]
        workers = client.app.state.service.workers
        while workers.admitted < 2:
            time.sleep(0.01)
        response = client.get(f"{API}/items")
        assert_problem(response, 429, "2 of your requests")
        assert response.headers["retry-after"] == "1"
        for path in ("/healthz", "/", "/static/app.js", "/metrics"):
            assert client.get(path).status_code == 200
        held.set()
        assert [task.result().status_code for task in under_way] == [200, 200]
        assert client.get(f"{API}/items").status_code == 200


def test_timeout_over_http(home, held):
    """503 with Retry-After while the work continues; afterwards the service works as before."""
    with application(home.index, limits={"seconds": 0.1, "waiting": 2, "threads": 1}) as client:
        for _ in range(2):
            response = client.get(f"{API}/search?q=snow")
            assert_problem(response, 503, "longer than 0.1 s")
            assert response.headers["retry-after"] == "5"
        workers = client.app.state.service.workers
        assert workers.admitted == 1  # the second was cancelled before it started
        held.set()
        for _ in range(200):
            if client.get(f"{API}/search?q=snow").status_code == 200:
                break
            time.sleep(0.01)
        assert client.get(f"{API}/items").status_code == 200
        assert workers.admitted == 0


def test_total_connections_are_limited(home, tmp_path):
    """A new connection beyond the limit is closed at once, and open ones continue."""
    import socket

    import httpx2

    with service(home.index, tmp_path, limits={"connections": 4}) as served:
        assert served.client.get("/healthz").status_code == 200
        others = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(3)]
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{served.address}healthz", trust_env=False)
        assert served.client.get("/healthz").status_code == 200
        for each in others:
            each.close()
        for _ in range(100):
            try:
                assert httpx2.get(f"{served.address}healthz", trust_env=False).status_code == 200
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        else:
            pytest.fail("no connection was accepted again")


def test_hostile_uploads_leave_text_search_alone(home):
    """While uploads that take too long are in progress, texts are searched; afterwards every place is free again."""
    slow = {"image": ("a.png", many_chunks(800_000))}
    limits = {"seconds": 2.5, "threads": 1, "upload_threads": 1}
    with application(home.index, limits=limits) as client, ThreadPoolExecutor(4) as pool:
        workers = client.app.state.service.workers
        under_way = [pool.submit(client.post, f"{API}/search", files=slow) for _ in range(4)]
        while not workers.admitted:
            time.sleep(0.01)
        assert client.get(f"{API}/search?q=snow").status_code == 200
        assert {task.result().status_code for task in under_way} <= {422, 503}
        assert soon(lambda: workers.admitted == 0)
        ordinary = {"image": ("a.png", (home.photos / "a.png").read_bytes())}
        assert client.post(f"{API}/search", files=ordinary).status_code == 200


def test_lanes_have_limits_of_their_own():
    """A client that has reached the limit of one lane is admitted to another."""

    async def scene() -> None:
        workers, released = Workers(Limits(upload_threads=1, per_client=1)), threading.Event()
        upload = asyncio.create_task(workers.run("a", released.wait, "upload"))
        await asyncio.sleep(0.05)
        with pytest.raises(ProblemError):
            await workers.run("a", lambda: None, "upload")
        assert await workers.run("a", lambda: 7) == 7
        assert await workers.run("a", lambda: 8, "media") == 8
        assert dict(workers.clients) == {"a": 1}
        released.set()
        assert await upload
        workers.close()

    run_alone(scene)
