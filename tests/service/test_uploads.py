"""Large uploads and slow clients are rejected within the limits, in bounded memory."""

from __future__ import annotations

import socket
import time
from io import BytesIO

import pytest
from PIL import Image
from tests.service.support import API, assert_problem, id_of, service, soon

MB = 1_000_000
SMALL = {"receive_seconds": 1.0, "header_seconds": 0.8, "seconds": 5.0}
HEAD = f"POST {API}/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
PART = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'


@pytest.fixture(scope="module")
def hasty(home, tmp_path_factory):
    """A service with short timeouts."""
    with service(home.index, tmp_path_factory.mktemp("hasty"), limits=SMALL) as made:
        files = [("image", ("a.png", (home.photos / "a.png").read_bytes()))]
        assert made.client.post(f"{API}/search", files=files).status_code == 200
        yield made


def connected(served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), 15)


def everything(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    found = b""
    try:
        while block := connection.recv(65536):
            found += block
    except ConnectionResetError:  # the server did not read everything
        pass
    return found


def assert_refused(received: bytes, status: int, words: bytes) -> None:
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), received[:300]
    assert b"content-type: application/problem+json" in head.lower()
    assert b"content-security-policy: " in head.lower()
    assert b"connection: close" in head.lower()
    assert words in body


def test_declared_size_is_checked_before_reading(hasty):
    """10 GB get 413 by their header, before anything is read, also with Expect: 100-continue."""
    before = hasty.peak_memory()
    for more in ("", "Expect: 100-continue\r\n"):
        with connected(hasty) as connection:
            connection.sendall(f"{HEAD}Content-Length: 10000000000\r\n{more}\r\n".encode())
            assert_refused(everything(connection), 413, b"24,000,000 bytes")
    assert hasty.peak_memory() - before < 10 * MB
    assert hasty.client.get(f"{API}/search?q=snow").status_code == 200


def test_chunked_upload_is_cut_off_at_the_limit(hasty):
    """413 at the limit, however long the client continues; nothing of it is stored."""
    before, block, sent = hasty.peak_memory(), b"\0" * 60_000, 0
    with connected(hasty) as connection:
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        connection.sendall(b"%x\r\n%s\r\n" % (len(PART), PART))
        try:
            while sent < 200 * MB:
                connection.sendall(b"%x\r\n%s\r\n" % (len(block), block))
                sent += len(block)
        except OSError:
            pass
        received = everything(connection)
    assert 23 * MB < sent < 60 * MB
    assert_refused(received, 413, b"24,000,000 bytes")
    assert hasty.peak_memory() - before < 40 * MB
    assert hasty.client.get(f"{API}/search?q=snow").status_code == 200


def test_client_that_reads_late_gets_the_response(hasty):
    """A client that sends everything before reading gets the 413, not a broken connection."""
    response = hasty.client.post(f"{API}/search", files=[("image", ("a.png", b"\0" * 30 * MB))])
    assert_problem(response, 413, "send a smaller image")


def test_slow_body_gets_408(hasty):
    """Though something arrives all the time."""
    with connected(hasty) as connection:
        connection.sendall(f"{HEAD}Content-Length: 100000\r\n\r\n".encode() + PART)
        began = time.monotonic()
        try:
            while time.monotonic() - began < 5:
                connection.sendall(b"x")
                time.sleep(0.1)
        except OSError:
            pass
        assert_refused(everything(connection), 408, b"longer than 1 s")
    assert time.monotonic() - began < 4


def test_missing_body_gets_408(hasty):
    """408 too."""
    with connected(hasty) as connection:
        connection.sendall(f"{HEAD}Content-Length: 100000\r\n\r\n".encode())
        assert_refused(everything(connection), 408, b"longer than 1 s")


@pytest.mark.parametrize(
    "beginning", [b"", b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"]
)
def test_slow_headers_close_the_connection(hasty, beginning):
    """Without a response, whatever has arrived, and others are served meanwhile."""
    with connected(hasty) as connection:
        began = time.monotonic()
        connection.sendall(beginning)
        assert hasty.client.get("/healthz").status_code == 200
        try:
            while time.monotonic() - began < 5 and beginning:
                connection.sendall(b"X-More: x\r\n")
                time.sleep(0.1)
        except OSError:
            pass
        assert everything(connection) == b""
    assert time.monotonic() - began < 4


def test_pipelined_and_kept_alive_requests_are_answered(hasty):
    """Several on one connection, at once or later than the header timeout."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(hasty) as connection:
        connection.sendall(request * 3)
        found = b""
        while found.count(b'{"status":"ok"}') < 3:
            found += connection.recv(65536)
        time.sleep(1.0)
        connection.sendall(request)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_idle_connections_do_not_block(hasty):
    """A hundred clients hold connections, and another one is served."""
    idle = [connected(hasty) for _ in range(100)]
    try:
        assert hasty.client.get(f"{API}/search?q=snow").status_code == 200
        for each in idle:
            assert everything(each) == b""
    finally:
        for each in idle:
            each.close()
    assert hasty.client.get("/healthz").status_code == 200


@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-7", '"puny\\code"', "rot13"])
def test_unsupported_charset_gets_415(hasty, charset):
    """At once: some codecs take quadratic time, and would block everybody else."""
    field = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n' + b"a-" * 200_000 + b"\r\n--x--\r\n"
    headers = {"content-type": f"multipart/form-data; boundary=x; charset={charset}"}
    assert_problem(hasty.client.post(f"{API}/search", content=field, headers=headers), 415, "UTF-8")
    fine = {"content-type": "multipart/form-data; boundary=x; charset=UTF-8"}
    assert hasty.client.post(f"{API}/search", content=field, headers=fine).status_code == 422


def test_too_many_concurrent_uploads(home, tmp_path):
    """429 for one client, 503 for all, before a byte of the body is read; searches are answered meanwhile."""
    limits = {"bodies": 3, "bodies_per_client": 2}
    with service(home.index, tmp_path, limits=limits) as served:
        begun = [connected(served) for _ in range(2)]
        for each in begun:
            each.sendall(f"{HEAD}Content-Length: 100000\r\n\r\n".encode() + PART)
        time.sleep(0.5)
        response = served.client.post(f"{API}/search", files=[("image", ("a.png", b"x" * 1000))])
        assert_problem(response, 429, "2 of your uploads")
        assert served.client.get(f"{API}/search?q=snow").status_code == 200
        for each in begun:
            each.close()
        time.sleep(0.5)
        again = served.client.post(f"{API}/search", files=[("image", ("a.png", (home.photos / "a.png").read_bytes()))])
        assert again.status_code == 200


def test_public_body_is_limited_to_16_kb(home, tmp_path):
    """Clients without a key cannot fill the memory through the one route that accepts a body from everybody."""
    with service(home.index, tmp_path, key="a-key-of-many-letters") as served:
        before = served.peak_memory()
        response = served.client.post(f"{API}/session", content=b"[" + b"{}," * 3_000_000 + b"{}]")
        assert_problem(response, 413, "16,384 bytes")
        assert served.peak_memory() - before < 10 * MB


def test_total_pixels_are_limited(hasty):
    """The pixels of all uploads are counted from their headers; nothing is decoded."""
    image = BytesIO()
    Image.new("1", (5000, 4000)).save(image, "PNG")
    before = hasty.peak_memory()
    files = [("image", ("a.png", image.getvalue()))] * 3
    assert_problem(hasty.client.post(f"{API}/search", files=files), 422, "60,000,000 pixels", "50,000,000")
    assert hasty.peak_memory() - before < 10 * MB


def test_client_that_reads_nothing_is_disconnected(own, tmp_path):
    """After a timeout, though the response is incomplete, and its file is closed."""
    with (own.photos / "clip.mp4").open("ab") as file:
        file.truncate(60_000_000)
    with service(own.index, tmp_path, limits={"send_seconds": 1.0}) as served:
        where = f"{API}/items/{id_of(served.client, 'clip.mp4')}/media"
        before = served.descriptors()
        with connected(served) as connection:
            connection.sendall(f"GET {where} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert soon(lambda: served.descriptors() > before)
            assert soon(lambda: served.descriptors() <= before)
        assert served.client.get("/healthz").status_code == 200


def test_connections_per_client_are_limited(home, tmp_path):
    """Those beyond the limit are closed at once, and the others continue."""
    with service(home.index, tmp_path, limits={"connections_per_client": 5}) as served:
        assert served.client.get("/healthz").status_code == 200
        held = [connected(served) for _ in range(8)]
        closed = 0
        for each in held:
            each.settimeout(1)
            try:
                closed += each.recv(10) == b""
            except ConnectionResetError:
                closed += 1
            except TimeoutError:
                pass
            each.close()
        assert closed == 4  # one of the five connections is the first client's
        assert served.client.get("/healthz").status_code == 200
