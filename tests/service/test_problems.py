"""Errors are RFC 9457 problems with a reason, and every response has the security headers."""

from __future__ import annotations

import pytest
from tests.service.support import API, KEY, application, assert_problem

from vse.service.middleware import HEADERS
from vse.service.state import LoadedCollection

JSON = {"content-type": "application/json"}
IMAGE = {"content-type": "multipart/form-data; boundary=x"}
WRONG = [
    ("GET", "/nothing", {}, 404, "/openapi.json"),
    ("GET", f"{API}/nothing", {}, 404, "/openapi.json"),
    ("GET", "/static/nothing.js", {}, 404, "/openapi.json"),
    ("GET", f"{API}/items/999999", {}, 404, "999999"),
    ("GET", f"{API}/items/999999/thumbnail", {}, 404, "999999"),
    ("GET", f"{API}/search?like=999999", {}, 404, "999999"),
    ("DELETE", f"{API}/items/1", {}, 405, "Method Not Allowed"),
    ("POST", "/static/app.js", {}, 405, "Method Not Allowed"),
    ("POST", f"{API}/search", {"headers": IMAGE, "content": b"--y\r\nno part of it"}, 400, ""),
    ("POST", f"{API}/search", {"headers": {"content-type": "multipart/form-data"}, "content": b"--x"}, 400, "boundary"),
    ("POST", f"{API}/session", {"headers": JSON, "content": b"{"}, 422, "JSON"),
    ("POST", f"{API}/session", {"headers": JSON, "content": b"[]"}, 422, "request: "),
    ("POST", f"{API}/session", {"content": b" " * 20_000}, 413, "16,384 bytes"),
    ("GET", f"{API}/search", {}, 422, "empty query"),
    ("GET", f"{API}/search?q=snow&unknown=1", {}, 422, "unknown"),
    ("GET", f"{API}/search?q=snow&query=" + "x" * 65, {}, 422, "query: "),
    ("GET", f"{API}/items/no-number", {}, 422, "item_id"),
    ("GET", f"{API}/collection", {"headers": {"host": "evil.example"}}, 421, "host name"),
]


@pytest.fixture(scope="module")
def strict(home):
    """An application with a small body limit."""
    with application(home.index, limits={"body": 1000}) as made:
        yield made


@pytest.mark.parametrize(("method", "path", "options", "status", "words"), WRONG)
def test_errors_are_problems(strict, method, path, options, status, words):
    """Type, title, status and one line of detail, as application/problem+json, not cached; 405 lists the methods."""
    response = strict.request(method, path, **options)
    assert_problem(response, status, words)
    assert response.headers["cache-control"] == "no-store"
    if status == 405:
        assert "GET" in response.headers["allow"]


GOOD = [
    "/",
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/static/app.js",
    f"{API}/search?q=snow",
    f"{API}/items/1/preview",
]


@pytest.mark.parametrize(
    "path", [*GOOD, *(path for method, path, options, *_ in WRONG if method == "GET" and not options)]
)
def test_every_response_has_the_security_headers(strict, path):
    """Success or error: no other origin can run, frame or read it, and there is no CORS."""
    headers = strict.get(path).headers
    for name in HEADERS.keys() - {"Cache-Control"}:
        assert headers[name] == HEADERS[name]
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "cache-control" in headers
    assert not [name for name in headers if name.startswith("access-control")]
    assert "server" not in headers


def test_unexpected_error_gets_500(home, monkeypatch, caplog):
    """As a problem with the headers; the log has the place, and neither reveals the query."""

    def broken(*_: object) -> None:
        raise KeyError("the words that were asked for")

    monkeypatch.setattr(LoadedCollection, "encode", broken)
    with application(home.index) as client, caplog.at_level("ERROR", "vse.service"):
        response = client.get(f"{API}/search?q=snow")
    assert_problem(response, 500, "log")
    assert response.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "KeyError" in line
    assert "routes/search.py" in line
    assert "words that were asked for" not in line + response.text


def test_errors_do_not_reveal_folders(models, tmp_path):
    """They name the collection, not its path, even below a folder with spaces."""
    from tests.service.support import Home, make_home

    home: Home = make_home(tmp_path / "anna b", models / "old")
    (home.photos / "captions.csv").write_text("path,caption\n")
    home.indexed()
    with application(home.index) as client:
        detail = assert_problem(client.get(f"{API}/captions?q=snow"), 422, "photos.vse holds no captions")
    assert "/" not in detail.replace("captions.csv", "")
    assert "anna" not in detail


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "localhost.evil", "[::2]"]
)
def test_unknown_host_names_get_421(home, host):
    """DNS rebinding gets nothing, whatever the path, not even /healthz."""
    with application(home.index) as client:
        for path in ("/", "/healthz", f"{API}/search?q=snow", "/static/app.js"):
            assert_problem(client.get(path, headers={"host": host}), 421)
        for good in ("localhost", "LOCALHOST:99", "127.0.0.1:8080", "[::1]:8080"):
            assert client.get("/healthz", headers={"host": good}).status_code == 200


def test_allowed_host_names(home):
    """``names`` are added to the local ones; with a key and no names, any is allowed."""
    with application(home.index, host="0.0.0.0", key=KEY, names=("Photos.Example",)) as client:
        assert client.get("/healthz", headers={"host": "photos.example:443"}).status_code == 200
        assert client.get("/healthz", headers={"host": "127.0.0.1"}).status_code == 200
        assert client.get("/healthz", headers={"host": "other.example"}).status_code == 421
    with application(home.index, host="0.0.0.0", key=KEY) as client:
        assert client.get("/healthz", headers={"host": "any.example"}).status_code == 200
