"""Bodies without end and clients without haste: refused within the limits, in bounded memory."""

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
    """A service with little patience."""
    with service(home.index, tmp_path_factory.mktemp("hasty"), limits=SMALL) as made:
        files = [("image", ("a.png", (home.photos / "a.png").read_bytes()))]
        assert made.client.post(f"{API}/search", files=files).status_code == 200
        yield made


def connected(served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), 15)


def everything(connection: socket.socket) -> bytes:
    """What arrives until the other side closes."""
    found = b""
    try:
        while block := connection.recv(65536):
            found += block
    except ConnectionResetError:  # what was sent meanwhile was not read
        pass
    return found


def assert_refused(received: bytes, status: int, words: bytes) -> None:
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), received[:300]
    assert b"content-type: application/problem+json" in head.lower()
    assert b"content-security-policy: " in head.lower()
    assert b"connection: close" in head.lower()
    assert words in body


def test_an_upload_that_announces_its_size(hasty):
    """10 GB are refused by their header: 413, before anything is read, also for who waits to be asked for it."""
    before = hasty.peak_memory()
    for more in ("", "Expect: 100-continue\r\n"):
        with connected(hasty) as connection:
            connection.sendall(f"{HEAD}Content-Length: 10000000000\r\n{more}\r\n".encode())
            assert_refused(everything(connection), 413, b"24,000,000 bytes")
    assert hasty.peak_memory() - before < 10 * MB
    assert hasty.client.get(f"{API}/search?q=snow").status_code == 200


def test_an_upload_that_does_not(hasty):
    """In pieces without end: 413 after the limit, however long the client would go on; nothing of it is kept."""
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


def test_a_client_of_a_library_sees_the_reason(hasty):
    """Who sends all at once and reads then gets the answer, and not a broken connection."""
    answer = hasty.client.post(f"{API}/search", files=[("image", ("a.png", b"\0" * 30 * MB))])
    assert_problem(answer, 413, "send a smaller picture")


def test_a_body_that_trickles(hasty):
    """408 when it has taken too long, though something arrives all the time."""
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


def test_a_body_that_never_comes(hasty):
    """408 too."""
    with connected(hasty) as connection:
        connection.sendall(f"{HEAD}Content-Length: 100000\r\n\r\n".encode())
        assert_refused(everything(connection), 408, b"longer than 1 s")


@pytest.mark.parametrize(
    "beginning", [b"", b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"]
)
def test_headers_that_trickle(hasty, beginning):
    """The connection is closed without an answer, whatever has arrived, and others are served meanwhile."""
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


def test_requests_behind_each_other(hasty):
    """Several on one connection, sent at once or later than a first one may take, are all answered."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(hasty) as connection:
        connection.sendall(request * 3)
        found = b""
        while found.count(b'{"status":"ok"}') < 3:
            found += connection.recv(65536)
        time.sleep(1.0)
        connection.sendall(request)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_many_that_do_nothing(hasty):
    """A hundred clients that hold connections, and one that asks."""
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
def test_a_form_in_a_strange_encoding(hasty, charset):
    """415 at once: some codecs need the square of the length, and nobody else would be answered meanwhile."""
    field = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n' + b"a-" * 200_000 + b"\r\n--x--\r\n"
    headers = {"content-type": f"multipart/form-data; boundary=x; charset={charset}"}
    assert_problem(hasty.client.post(f"{API}/search", content=field, headers=headers), 415, "UTF-8")
    fine = {"content-type": "multipart/form-data; boundary=x; charset=UTF-8"}
    assert hasty.client.post(f"{API}/search", content=field, headers=fine).status_code == 422


def test_too_many_uploads_at_once(home, tmp_path):
    """One client is told 429, everybody 503, before a byte of the body is read; questions are answered meanwhile."""
    limits = {"bodies": 3, "bodies_per_client": 2}
    with service(home.index, tmp_path, limits=limits) as served:
        begun = [connected(served) for _ in range(2)]
        for each in begun:
            each.sendall(f"{HEAD}Content-Length: 100000\r\n\r\n".encode() + PART)
        time.sleep(0.5)
        answer = served.client.post(f"{API}/search", files=[("image", ("a.png", b"x" * 1000))])
        assert_problem(answer, 429, "2 of your uploads")
        assert served.client.get(f"{API}/search?q=snow").status_code == 200
        for each in begun:
            each.close()
        time.sleep(0.5)
        again = served.client.post(f"{API}/search", files=[("image", ("a.png", (home.photos / "a.png").read_bytes()))])
        assert again.status_code == 200


def test_a_body_that_needs_no_key_is_small(home, tmp_path):
    """Whoever has no key cannot fill the memory with the one address that takes a body from everybody."""
    with service(home.index, tmp_path, key="a-key-of-many-letters") as served:
        before = served.peak_memory()
        answer = served.client.post(f"{API}/session", content=b"[" + b"{}," * 3_000_000 + b"{}]")
        assert_problem(answer, 413, "16,384 bytes")
        assert served.peak_memory() - before < 10 * MB


def test_pictures_that_are_too_large_together(hasty):
    """The pixels of all pictures in a request are counted, by their headers: nothing of them is decoded."""
    picture = BytesIO()
    Image.new("1", (5000, 4000)).save(picture, "PNG")
    before = hasty.peak_memory()
    files = [("image", ("a.png", picture.getvalue()))] * 3
    assert_problem(hasty.client.post(f"{API}/search", files=files), 422, "60,000,000 pixels", "50,000,000")
    assert hasty.peak_memory() - before < 10 * MB


def test_a_client_that_does_not_read(own, tmp_path):
    """Its connection is closed after a while, though it would have more to get, and its file with it."""
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


def test_too_many_connections_of_one_client(home, tmp_path):
    """Those beyond the limit are closed at once, and the others go on."""
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
        assert closed == 4  # one of the five is the client's that asked first
        assert served.client.get("/healthz").status_code == 200
