"""Access with a key, as a bearer token or, for the page, as a cookie."""

from __future__ import annotations

import pytest
from tests.service.support import API, KEY, application, assert_problem

from vse.errors import InputError
from vse.service import ServiceSettings, auth
from vse.service.auth import Guesses, cookie_name
from vse.service.problems import ProblemError

PROTECTED = [f"{API}/search?q=snow", f"{API}/items", f"{API}/items/1/thumbnail", f"{API}/collection", "/metrics"]
PROTECTED += ["/openapi.json", f"{API}/nothing", "/healthz/", "/static", "/metrics?x=/healthz"]


@pytest.fixture(scope="module")
def service(home):
    with application(home.index, key=KEY) as made:
        yield made


@pytest.fixture
def locked(service):
    """A service with a key that has not counted wrong keys yet."""
    service.app.state.guesses = Guesses()
    return service


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("path", PROTECTED)
def test_requests_without_the_key_get_401(locked, path, monkeypatch):
    """The response says how to send it, for existing and unknown paths alike."""
    monkeypatch.setattr(auth, "GUESSES", 1000)
    for headers in ({}, bearer("wrong"), bearer(""), bearer(KEY[:-1]), bearer(KEY + "x"), bearer("ä" * 20)):
        sent = {name: value.encode("latin-1") for name, value in headers.items()}
        response = locked.get(path, headers=sent, follow_redirects=False)
        assert_problem(response, 401, "Authorization: Bearer")
        assert response.headers["www-authenticate"] == "Bearer"
        assert KEY not in response.text


def test_bearer_token_is_accepted(locked):
    """Whatever the case of the scheme."""
    for scheme in ("Bearer", "bearer", "BEARER"):
        response = locked.get(f"{API}/search?q=snow", headers={"authorization": f"{scheme} {KEY}"})
        assert response.status_code == 200
    assert locked.get("/metrics", headers=bearer(KEY)).status_code == 200


def test_public_paths_need_no_key(locked):
    """The page, its files and /healthz, which reveal nothing of the collection."""
    for path in ("/", "/static/app.js", "/healthz"):
        assert locked.get(path).status_code == 200
    assert locked.get("/static/../api/v1/items").status_code in (401, 404)
    assert locked.get("/static/%2e%2e/%2e%2e/metrics").status_code == 404


def test_guesses_at_the_key_are_limited(home):
    """After ten wrong keys a client waits, with the right key too; open sessions and bearer tokens go on."""
    with application(home.index, key=KEY) as client:
        for number in range(10):
            assert_problem(
                client.post(f"{API}/session", json={"key": f"a wrong key, number {number}"}), 401, "wrong key"
            )
        for key in ("one more wrong key", KEY):
            refused = client.post(f"{API}/session", json={"key": key})
            assert_problem(refused, 429, "10 wrong keys")
            assert int(refused.headers["retry-after"]) > 0
        assert client.get(f"{API}/items", headers=bearer(KEY)).status_code == 200


@pytest.mark.parametrize("way", ["bearer", "cookie"])
def test_guesses_without_a_session_are_limited(home, way):
    """Wrong tokens and cookies count like keys of a session; no key is no guess, and the right one always passes."""
    right = bearer(KEY) if way == "bearer" else {"cookie": f"{cookie_name(KEY)}={auth.cookie_value(KEY)}"}
    with application(home.index, key=KEY) as client:
        for number in range(12):
            wrong = f"a wrong key, number {number}"
            sent = bearer(wrong) if way == "bearer" else {"cookie": f"{cookie_name(KEY)}={number}"}
            response = client.get(f"{API}/items", headers=sent)
            assert_problem(response, *((401, "missing or wrong key") if number < 10 else (429, "10 wrong keys")))
        assert int(response.headers["retry-after"]) > 0
        assert client.get(f"{API}/items").status_code == 401
        assert client.get(f"{API}/items", headers=right).status_code == 200
        assert client.post(f"{API}/session", json={"key": "one more wrong key"}).status_code == 429


def test_guesses_are_forgotten_after_a_while():
    """The wait ends by itself, and other clients are not concerned."""
    now = [0.0]
    guesses = Guesses(lambda: now[0])
    for _ in range(10):
        guesses.check("a")
        guesses.count("a")
    with pytest.raises(ProblemError):
        guesses.check("a")
    guesses.check("b")
    now[0] = 61.0
    guesses.check("a")


def test_session_cookie(home):
    """The right key gives a cookie that scripts cannot read and other sites cannot send, without the key in it."""
    with application(home.index, key=KEY) as client:
        assert_problem(client.post(f"{API}/session", json={"key": "a wrong one"}), 401, "wrong key")
        assert client.get(f"{API}/items").status_code == 401
        opened = client.post(f"{API}/session", json={"key": KEY})
        assert opened.status_code == 204
        cookie = opened.headers["set-cookie"]
        value, *flags = [part.strip().lower() for part in cookie.split(";")]
        assert {"httponly", "samesite=strict", "path=/"} <= set(flags)
        assert "secure" not in flags
        assert KEY not in cookie
        assert client.get(f"{API}/items").status_code == 200
        client.cookies.clear()
        others = 'theme={"dark": true}; bad cookie; =; ' + value
        assert client.get(f"{API}/items", headers={"cookie": others}).status_code == 200
        assert client.get(f"{API}/items", headers={"cookie": value[:-1]}).status_code == 401
    with application(home.index, key="another-key-of-many-letters") as client:
        assert client.get(f"{API}/items", headers={"cookie": value}).status_code == 401


def test_session_cookie_is_secure_over_https(home):
    """A page loaded over TLS gets a cookie that is sent over TLS only."""
    with application(home.index, key=KEY) as client:
        opened = client.post("https://127.0.0.1:8080/api/v1/session", json={"key": KEY})
        assert "secure" in opened.headers["set-cookie"].lower()


def test_keys_are_compared_in_constant_time(locked, monkeypatch):
    """Token and cookie go through hmac.compare_digest in full."""
    import hmac

    seen = []
    compare = hmac.compare_digest
    monkeypatch.setattr("hmac.compare_digest", lambda one, other: seen.append(one) or compare(one, other))
    locked.get(f"{API}/items", headers={**bearer("a guess"), "cookie": f"{cookie_name(KEY)}=another"})
    locked.post(f"{API}/session", json={"key": "a third"})
    assert seen == [b"a guess", b"another", b"a third"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0"}, "VSE_API_KEY"),
        ({"host": "::"}, "set a key"),
        ({"host": "192.168.1.5"}, "set a key"),
        ({"host": ""}, "set a key"),
        ({"host": "photos.example"}, "set a key"),
        ({"key": "short"}, "16"),
        ({"key": "a key with some spaces"}, "spaces"),
        ({"key": "schlüssel-schlüssel"}, "ASCII"),
        ({"port": 70000}, "65535"),
    ],
)
def test_invalid_service_settings_are_rejected(settings, words):
    """A public address without a key, and keys that are weak or cannot be sent."""
    with pytest.raises(InputError, match=words):
        ServiceSettings(**settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_needs_no_key(host):
    assert ServiceSettings(host=host).key is None
