"""Invalid parameters and uploads are rejected with a reason, before they cost anything."""

from __future__ import annotations

import contextlib
import http.client
import io
import struct
import zlib

import pytest
from PIL import Image
from tests.service.support import API, assert_problem, service

ROOM = 60_000_000
"""Bytes of memory that a refused request may take at most, above what was there before."""


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("q=snow&k=0", "k: "),
        ("q=snow&k=1000000000", "k: "),
        ("q=snow&k=-1", "k: "),
        ("q=snow&k=1.5", "k: "),
        ("q=snow&offset=-1", "offset: "),
        ("q=snow&offset=1000000000", "offset: "),
        ("q=snow&min_confidence=nan", "min_confidence: "),
        ("q=snow&min_confidence=inf", "min_confidence: "),
        ("q=snow&min_confidence=-0.1", "min_confidence: "),
        ("q=snow&weight=nan", "weight.0: "),
        ("q=snow&weight=inf", "weight.0: "),
        ("q=snow&weight=0", "weight.0: "),
        ("q=snow&weight=-1", "weight.0: "),
        ("q=snow&weight=1&weight=1", "2 weights for 1"),
        ("q=" + "x" * 2001, "2000 characters"),
        ("&".join(["q=snow"] * 9), "q: "),
        ("q=%20%20", "is empty"),
        ("not=snow", "empty query"),
        ("like=0", "like.0: "),
        ("like=99999999999999999999", "like.0: "),
        ("like=a", "like.0: "),
        ("q=snow&near=nan,nan", "near"),
        ("q=snow&near=91,0", "near"),
        ("q=snow&near=1", "near"),
        ("q=snow&near=0,0&within=inf", "within: "),
        ("q=snow&near=0,0&within=-1", "within: "),
        ("q=snow&within=5", "within"),
        ("q=snow&after=yesterday", "after"),
        ("q=snow&after=2024-13", "after"),
        ("q=snow&after=2025&before=2024", "nothing lies between"),
        ("q=snow&folder=../..", "leads out"),
        ("q=snow&folder=nowhere", "no file lies in folder"),
        ("q=snow&type=audio", "type: "),
        ("q=snow&group=perhaps", "group: "),
    ],
)
def test_invalid_parameters_get_422(client, asked, words):
    """The response names the parameter and what is wrong with it; the next request works."""
    detail = assert_problem(client.get(f"{API}/search?{asked}"), 422, words)
    assert len(detail) < 400
    assert client.get(f"{API}/search?q=snow").status_code == 200


def bomb(width: int, height: int) -> bytes:
    """A PNG of this many black pixels of one bit, compressed to almost nothing."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    row = b"\0" * (1 + (width + 7) // 8)
    press = zlib.compressobj(9)
    rows = b"".join(press.compress(row) for _ in range(height)) + press.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def truncated() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (400, 300), (9, 99, 200)).save(stream, "JPEG")
    return stream.getvalue()[:600]


@pytest.fixture(scope="module")
def measured(home, tmp_path_factory):
    """A warmed-up service, so that the memory of a request can be measured."""
    with service(home.index, tmp_path_factory.mktemp("measured")) as made:
        for _ in range(3):
            post(made, (home.photos / "a.png").read_bytes())
        yield made


def post(served, content: bytes, **data: object):
    return served.client.post(f"{API}/search", files=[("image", ("a.png", content))], data=data)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"just some words", "no known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "no known format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no known format"),
        (None, "truncated"),
        ((50_000, 50_000), "2,500,000,000 pixels"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 100, "not an image"),
    ],
    ids=["nothing", "text", "postscript", "svg", "truncated", "bomb", "broken"],
)
def test_invalid_uploads_get_422(measured, content, words):
    """With the reason; a decompression bomb is not decoded; the next request works."""
    content = bomb(*content) if isinstance(content, tuple) else truncated() if content is None else content
    before = measured.peak_memory()
    assert_problem(post(measured, content), 422, words)
    assert measured.peak_memory() - before < ROOM
    assert measured.client.get(f"{API}/search?q=snow").status_code == 200


def test_large_upload_uses_bounded_memory(home, tmp_path):
    """Within the limit it is searched with, in memory proportional to the limit."""
    pixels = 9_000_000
    with service(home.index, tmp_path, limits={"pixels": pixels}) as served:
        post(served, (home.photos / "a.png").read_bytes())
        before = served.peak_memory()
        assert post(served, bomb(3000, 3000)).status_code == 200
        assert served.peak_memory() - before < 12 * pixels + ROOM
        assert_problem(post(served, bomb(3001, 3000)), 422, "9,000,000")


def test_too_many_uploaded_images_get_422(measured, home):
    """Four are allowed, not five."""
    content = (home.photos / "a.png").read_bytes()
    files = [("image", ("a.png", content))] * 5
    assert measured.client.post(f"{API}/search", files=files[:4]).status_code == 200
    assert_problem(measured.client.post(f"{API}/search", files=files), 422, "image: ")


def test_long_text_is_rejected(measured, home):
    """A megabyte of query: 431 in the URL, 422 or 400 in a body; little memory, and the next request works."""
    before = measured.peak_memory()
    content = (home.photos / "a.png").read_bytes()
    connection = http.client.HTTPConnection("127.0.0.1", measured.port, timeout=10)
    with contextlib.suppress(OSError):  # not all of it is read
        connection.request("GET", f"{API}/search?q={'x' * 1_000_000}")
    assert connection.sock.recv(100).startswith(b"HTTP/1.1 431 ")
    connection.close()
    assert_problem(measured.client.get("/healthz", headers={"x-long": "x" * 1_000_000}), 431, "too long")
    assert_problem(post(measured, content, q="x" * 1_000_000), 422, "2000 characters")
    assert_problem(post(measured, content, q="x" * 1_100_000), 400, "maximum size")
    assert_problem(post(measured, content, **{f"x{n}": "x" for n in range(1001)}), 400, "fields")
    assert measured.peak_memory() - before < ROOM
    assert measured.client.get(f"{API}/search?q=snow").status_code == 200


def test_malformed_http_gets_a_problem(measured):
    """Whatever bytes arrive: a problem and a closed connection, never a line in the log."""
    import socket

    for sent in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET /\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", measured.port), 10) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"application/problem+json" in head.lower()
        assert b"content-security-policy" in head.lower()
        assert b'"status":400' in body
    assert not [line for line in measured.lines() if "logger" in line]
    upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-key": "x", "sec-websocket-version": "13"}
    assert measured.client.get("/healthz", headers=upgrade).status_code == 200
