"""The request log and the Prometheus metrics; neither reveals queries unless configured to."""

from __future__ import annotations

import json
import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.service.support import API, KEY, application, id_of, service, soon

from vse.service.auth import cookie_name

FIELDS = {"time", "request_id", "method", "route", "status", "milliseconds", "bytes"}


@pytest.fixture
def lines(caplog):
    """The log of requests so far."""
    caplog.set_level(logging.INFO, "vse.service")
    return lambda: [json.loads(record.getMessage()) for record in caplog.records if record.name == "vse.service"]


def figures(client, **headers: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Metric samples by name and label values, read with the Prometheus parser."""
    text = client.get("/metrics", headers=headers).text
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return {
        (sample.name, tuple(sample.labels[name] for name in sorted(sample.labels))): sample.value for sample in samples
    }


def test_request_log_line(home, lines):
    """Route template, status, time and size; no query, no id, no file name, no address."""
    with application(home.index) as client:
        item = id_of(client, "b.jpg")
        before = len(lines())
        asked = [f"{API}/search?q=snow&not=dog", f"{API}/items/{item}/thumbnail", f"{API}/items/{item}?x=1"]
        asked += ["/secret/place", "/static/app.js", "/", f"{API}/captions?q=%00"]
        responses = [client.get(path) for path in asked]
        found = lines()[before:]
    assert [line["status"] for line in found] == [response.status_code for response in responses]
    routes = [
        f"{API}/search",
        f"{API}/items/{{item_id}}/thumbnail",
        f"{API}/items/{{item_id}}",
        "other",
        "/static",
        "/",
    ]
    assert [line["route"] for line in found] == [*routes, f"{API}/captions"]
    for line, response in zip(found, responses, strict=True):
        assert set(line) == FIELDS
        assert line["bytes"] == len(response.content)
        assert line["milliseconds"] >= 0
    logged = json.dumps(found)
    for word in ("snow", "dog", "secret", "b.jpg", str(home.folder), "testclient", "127.0.0.1"):
        assert word not in logged


def test_log_queries_option(home, lines):
    """Those in URLs as they came, those in bodies as text."""
    with application(home.index, log_queries=True) as client:
        client.get(f"{API}/search?q=a+dog")
        image = (home.photos / "a.png").read_bytes()
        client.post(f"{API}/search", data={"q": "red chair"}, files=[("image", ("name.png", image))])
        first, second = lines()
    assert first["query"] == "q=a+dog"
    assert second["query"].startswith("red chair, image")
    assert set(first) == set(second) == {*FIELDS, "query"}


def test_keys_are_not_logged(home, tmp_path):
    """Right and wrong ones, however they were sent; every line on stderr is JSON."""
    wrong = "a-wrong-key-that-somebody-mistyped"
    with service(home.index, tmp_path, key=KEY, log_queries=True) as served:
        for key in (KEY, wrong):
            served.client.get(f"{API}/items", headers={"authorization": f"Bearer {key}"})
            served.client.post(f"{API}/session", json={"key": key})
            served.client.get(f"{API}/items")
            served.client.post(f"{API}/session", json={"key": key * 100})
        assert soon(lambda: len(served.lines()) == 8)  # a line is written after its response
        found = served.lines()
        assert [line["status"] for line in found] == [200, 204, 200, 422, 200, 401, 200, 422]  # the cookie stays
        log = served.log.read_text()
    assert KEY not in log
    assert wrong not in log
    assert served.client.cookies[cookie_name(KEY)] not in log


def test_key_in_a_query_string_is_not_logged(home, lines):
    """Neither as a parameter of any name, nor within the text of a query; what was asked for is still there."""
    headers = {"authorization": f"Bearer {KEY}"}
    with application(home.index, key=KEY, log_queries=True) as client:
        for name in ("key", "api_key", "Token"):
            client.get(f"{API}/search", params={"q": "a dog", name: KEY}, headers=headers)
        client.get(f"{API}/search", params={"q": f"my key is {KEY}"}, headers=headers)
        client.get(f"{API}/search", params={"q": "a dog", "key": KEY})
        client.get("/nowhere", params={"key": KEY}, headers=headers)
        found = [line["query"] for line in lines()]
    assert found == [*["q=a+dog"] * 3, "q=my+key+is+%2A%2A%2A", "", ""]


def test_metrics_count_requests(home):
    """By method, route and status; seconds by route; the size of the collection; requests in progress."""
    with application(home.index) as client:
        item = id_of(client, "b.jpg")
        before = figures(client)
        for _ in range(3):
            client.get(f"{API}/search?q=snow")
        client.get(f"{API}/search")
        client.get(f"{API}/items/{item}/thumbnail")
        client.get("/nowhere")
        client.request("PURGE", "/elsewhere")
        client.get("/", headers={"host": "evil.example"})
        after = figures(client)
        info = client.get(f"{API}/collection").json()

    def grown(*labels: str) -> float:
        key = ("vse_requests_total", labels)
        return after.get(key, 0) - before.get(key, 0)

    assert grown("GET", f"{API}/search", "200") == 3
    assert grown("GET", f"{API}/search", "422") == 1
    assert grown("GET", f"{API}/items/{{item_id}}/thumbnail", "200") == 1
    assert grown("GET", "other", "404") == 1
    assert grown("other", "other", "404") == 1
    assert grown("GET", "other", "421") == 1
    assert grown("GET", "/metrics", "200") == 1
    assert after["vse_request_seconds_count", (f"{API}/search",)] == 4
    assert after["vse_request_seconds_sum", (f"{API}/search",)] > 0
    assert after["vse_requests_under_way", ()] == 1  # this one
    name = (home.index.name,)
    assert after["vse_collection_items", name] == info["items"]
    assert after["vse_collection_files", name] == info["files"]
    assert after["vse_collection_bytes", name] > 10_000
    assert after["vse_collection_cache_lag", name] == 0
    assert 0 <= after["vse_collection_changed_seconds", name] < 86_400
    assert not [key for key in after if "nowhere" in str(key) or "PURGE" in str(key)]


def test_metric_series_are_bounded(home):
    """Clients cannot fill the memory with labels: arbitrary paths, methods and queries share a few series."""
    with application(home.index) as client:
        for number in range(3):
            client.request(f"M{number}", f"/path{number}")
            client.get(f"{API}/items/{number + 50}")
            client.get(f"{API}/nothing{number}?q={number}")
        figures(client)  # /metrics is a series too
        before = len(figures(client))
        for number in range(3, 20):
            client.request(f"M{number}", f"/path{number}")
            client.get(f"{API}/items/{number + 50}")
            client.get(f"{API}/nothing{number}?q={number}")
        assert len(figures(client)) == before
