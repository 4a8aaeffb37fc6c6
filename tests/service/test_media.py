"""Streaming videos, whole and by range, without leaking files when clients disconnect."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from tests.service.support import API, application, assert_problem, id_of, service, soon


@pytest.fixture(scope="module")
def video(client, home):
    """The URL of the video, and its bytes."""
    return f"{API}/items/{id_of(client, 'clip.mp4')}/media", (home.photos / "clip.mp4").read_bytes()


def test_media_whole_file(client, video):
    """All bytes, media type and length, and Accept-Ranges; clients must revalidate."""
    where, content = video
    response = client.get(where)
    assert (response.status_code, response.content) == (200, content)
    assert response.headers["content-type"] == "video/mp4"
    assert response.headers["content-length"] == str(len(content))
    assert response.headers["accept-ranges"] == "bytes"
    assert response.headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("0-0", slice(0, 1)),
        ("100-199", slice(100, 200)),
        ("500-", slice(500, None)),
        ("0-", slice(0, None)),
        ("-10", slice(-10, None)),
        ("7-999999999999", slice(7, None)),
        ("-999999999999", slice(0, None)),
    ],
)
def test_media_byte_range(client, video, asked, part):
    """206 with exactly these bytes and their position."""
    where, content = video
    response = client.get(where, headers={"range": f"bytes={asked}"})
    assert response.status_code == 206
    assert response.content == content[part]
    start, end, size = part.indices(len(content))[0], part.indices(len(content))[1], len(content)
    assert response.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    assert response.headers["content-length"] == str(end - start)


def test_media_range_beyond_the_end_gets_416(client, video):
    """With the size, as a problem."""
    where, content = video
    for asked in (f"{len(content)}-", f"{len(content) + 5}-{len(content) + 9}", "-0", "9-5"):
        response = client.get(where, headers={"range": f"bytes={asked}"})
        assert_problem(response, 416, f"{len(content):,} bytes")
        assert response.headers["content-range"] == f"bytes */{len(content)}"


@pytest.mark.parametrize(
    "asked", ["bytes=0-1,5-6", "bytes=-", "lines=1-2", "bytes=a-b", "bytes 1-2", "", f"bytes={'9' * 5000}-"]
)
def test_media_unsupported_range_gets_the_whole_file(client, video, asked):
    """Several ranges, other units and nonsense mean the whole file, as RFC 9110 allows."""
    where, content = video
    response = client.get(where, headers={"range": asked})
    assert (response.status_code, response.content) == (200, content)


def test_media_if_range(own):
    """A range is sent only if the video is still the one that the client started with."""
    with application(own.index) as client:
        where = f"{API}/items/{id_of(client, 'clip.mp4')}/media"
        tag = client.get(where).headers["etag"]
        asked = {"range": "bytes=10-19", "if-range": tag}
        assert client.get(where, headers=asked).status_code == 206
        os.utime(own.photos / "clip.mp4")
        assert client.get(where, headers=asked).status_code == 200


def test_media_of_an_image_gets_404(client):
    """The original may contain a location; its preview does not."""
    assert_problem(client.get(f"{API}/items/{id_of(client, 'b.jpg')}/media"), 404, "preview")


def test_media_closes_files_of_disconnected_clients(own, tmp_path):
    """In the middle, before the first byte, and after a rejected range: no file stays open, and others are served."""
    with (own.photos / "clip.mp4").open("ab") as file:
        file.truncate(60_000_000)  # more than socket buffers hold
    with service(own.index, tmp_path) as served:
        where = f"{API}/items/{id_of(served.client, 'clip.mp4')}/media"
        assert served.client.head(where).headers["content-length"] == "60000000"
        before = served.descriptors()
        for number in range(12):
            with socket.create_connection(("127.0.0.1", served.port), 20) as connection:
                connection.sendall(f"GET {where} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                if number % 2:
                    assert connection.recv(1000)
            served.client.get(where, headers={"range": "bytes=99999999-"})
        assert soon(lambda: served.descriptors() <= before)
        assert len(served.client.get(where).content) == 60_000_000
        assert served.peak_memory() - served.memory() < 50_000_000  # the file is read as fast as it is sent


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # raised when Python closes it
def test_media_closes_file_after_timeout(own):
    """A video opened after the request has timed out is closed all the same."""
    import threading

    from vse.service.state import LoadedCollection

    release = threading.Event()
    original = LoadedCollection.item

    def slow(self, item_id):
        release.wait(5)
        return original(self, item_id)

    with application(own.index, limits={"seconds": 0.05}) as client:
        where = f"{API}/items/{id_of(client, 'clip.mp4')}/media"
        before = len(list(Path("/proc/self/fd").iterdir()))
        LoadedCollection.item = slow  # type: ignore[method-assign]
        try:
            responses = [client.get(where).status_code for _ in range(5)]
        finally:
            LoadedCollection.item = original  # type: ignore[method-assign]
            release.set()
        assert responses == [503] * 5
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_media_file_truncated_while_sending(own, tmp_path):
    """The client sees that bytes are missing, the service continues, and the log stays JSON."""
    video = own.photos / "clip.mp4"
    with video.open("ab") as file:
        file.truncate(40_000_000)
    with service(own.index, tmp_path) as served:
        where = f"{API}/items/{id_of(served.client, 'clip.mp4')}/media"
        with socket.create_connection(("127.0.0.1", served.port), 20) as connection:
            connection.sendall(f"GET {where} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            received = len(connection.recv(1000))
            os.truncate(video, 1000)
            while block := connection.recv(1 << 20):
                received += len(block)
        assert received < 40_000_000
        assert served.client.get("/healthz").status_code == 200
        assert served.lines()
