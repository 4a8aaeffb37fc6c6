"""Only files of the collection can be reached, not by crafted URLs and not through replaced files."""

from __future__ import annotations

import os
import shutil
import threading

import pytest
from tests.service.support import API, application, assert_problem, id_of, service

from vse.index.types import MediaFile
from vse.service.media import ServedRoots, open_media, serving
from vse.service.problems import ProblemError

SECRET = b"root:x:0:0:the secret"
RAW = [
    "/static/../../../../../../etc/passwd",
    "/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/static/..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/static/%252e%252e/%252e%252e/etc/passwd",
    "/static/..%5c..%5cetc%5cpasswd",
    "/static//etc/passwd",
    "/static/app.js%00.css",
    "/static/%00",
    "/static/%ff%fe",
    "/static/" + "a" * 5000,
    f"{API}/items/..%2f..%2fetc%2fpasswd/media",
    f"{API}/items/%2e%2e/thumbnail",
    f"{API}/items/1%00/preview",
    f"{API}/items/1/media/../../../../etc/passwd",
    f"{API}/items//etc/passwd/media",
    f"{API}/items/-1/media",
    f"{API}/items/1;2/media",
]


@pytest.mark.parametrize("path", RAW)
def test_url_traversal_is_rejected(served, path):
    """Dots, slashes, backslashes and NULs, encoded once, twice or not at all: 404 or 422 as a problem."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    assert response.status in (404, 422), (path, response.status)
    assert response.getheader("content-type") == "application/problem+json"
    assert b"root:" not in content


def secret_beside(own):
    (own.folder / "secret").mkdir()
    for name in ("a.png", "clip.mp4", "c.png", "d.png"):
        (own.folder / "secret" / name).write_bytes(SECRET)
    return own.folder / "secret"


def link_to_file(own, name):
    target = secret_beside(own) / name
    (own.photos / name).unlink()
    (own.photos / name).symlink_to(target)


def link_back_to_itself(own, name):
    shutil.copy(own.photos / name, own.folder / "moved")
    (own.photos / name).unlink()
    (own.photos / name).symlink_to(own.folder / "moved")


def pipe(own, name):
    (own.photos / name).unlink()
    os.mkfifo(own.photos / name)


def folder(own, name):
    (own.photos / name).unlink()
    (own.photos / name).mkdir()


def loop(own, name):
    (own.photos / name).unlink()
    (own.photos / name).symlink_to(own.photos / name)


def socket_file(own, name):
    import socket

    (own.photos / name).unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(own.photos / name))  # socket paths must be short


@pytest.mark.parametrize("swap", [link_to_file, link_back_to_itself, pipe, folder, loop, socket_file])
@pytest.mark.parametrize("name", ["a.png", "clip.mp4"])
def test_replaced_file_is_not_opened(own, name, swap):
    """A link, even to the same image, a pipe, a folder: 404, its content is not revealed, and nothing blocks."""
    with application(own.index, limits={"seconds": 3}) as client:
        item = id_of(client, name)
        query = client.get(f"{API}/search?q=snow").json()["query_id"]
        swap(own, name)
        for what in ("thumbnail", "preview", "media", f"evidence?query={query}"):
            response = client.get(f"{API}/items/{item}/{what}")
            assert response.status_code == 404
            assert SECRET not in response.content
        assert client.get(f"{API}/items/{item}").json()["available"] is False


def test_linked_folder_is_not_followed(own):
    """Links are not followed on the way to the file either."""
    with application(own.index) as client:
        items = [id_of(client, name) for name in ("c.png", "d.png")]
        shutil.copytree(own.photos / "sea", own.folder / "elsewhere")
        shutil.rmtree(own.photos / "sea")
        (own.photos / "sea").symlink_to(own.folder / "elsewhere")
        for item in items:
            assert_problem(client.get(f"{API}/items/{item}/thumbnail"), 404, "file not found")


@pytest.mark.parametrize(
    "path", ["../secret", "a/../../secret", "/etc/passwd", "a//b", "./a", "", "a\0b", "a/./b", ".."]
)
def test_paths_with_dots_are_not_opened(tmp_path, path):
    """Even if a corrupt index contains them."""
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(SECRET)
    file = MediaFile(str(tmp_path / "root"), path, "image", 1, 1, "d", 1, 1)
    with serving(ServedRoots("", [file.root])), pytest.raises(ProblemError) as error:
        open_media(file)
    assert error.value.status_code == 404


def test_link_swapped_in_during_requests_is_not_followed(own, tmp_path):
    """While a link comes and goes: the image or 404, never the secret."""
    target = secret_beside(own) / "a.png"
    original = (own.photos / "a.png").read_bytes()
    going = threading.Event()

    def swap() -> None:
        while not going.is_set():
            for make in (lambda place: place.symlink_to(target), lambda place: place.write_bytes(original)):
                make(own.folder / "new")
                (own.folder / "new").replace(own.photos / "a.png")

    with service(own.index, tmp_path) as served:
        item = id_of(served.client, "a.png")
        thread = threading.Thread(target=swap)
        thread.start()
        try:
            statuses = [served.client.get(f"{API}/items/{item}/thumbnail").status_code for _ in range(150)]
        finally:
            going.set()
            thread.join()
    assert set(statuses) == {200, 404}
