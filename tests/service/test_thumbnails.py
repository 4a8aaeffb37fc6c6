"""Thumbnails: upright, without EXIF data, and cached only while they are accurate."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from PIL import Image
from tests.inputs.video.clips import number_of, write_clip
from tests.service.support import API, CAMERA, application, assert_problem, id_of, painted

IMMUTABLE = "private, max-age=31536000, immutable"
REVALIDATED = "private, no-cache"


def opened(response) -> Image.Image:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "image/jpeg"
    image = Image.open(io.BytesIO(response.content))
    assert image.format == "JPEG"
    image.load()
    return image


def address(client, name: str, what: str = "thumbnail") -> str:
    return client.get(f"{API}/items/{id_of(client, name)}").json()[what]


@pytest.mark.parametrize("side", [160, 320, 640])
def test_thumbnail_sizes(client, side):
    """The longer side is at most the requested size, proportions stay, and nothing is enlarged."""
    found = opened(client.get(address(client, "a.png"), params={"size": side}))
    expected = min(side, 500)
    assert found.size == (expected, round(expected * 300 / 500))
    assert opened(client.get(address(client, "a.png", "preview"))).size == (500, 300)


@pytest.mark.parametrize("size", ["0", "161", "1600", "-160", "160.0", "x", "1_60", "", "9" * 5000])
def test_unsupported_thumbnail_size_gets_422(client, size):
    assert_problem(client.get(f"{API}/items/1/thumbnail", params={"size": size}), 422, "size: ", "160, 320 or 640")


@pytest.mark.parametrize("what", ["thumbnail", "preview"])
def test_thumbnail_is_upright_and_carries_no_exif(client, home, what):
    """Colours in place; no EXIF data, above all no location, is left in the bytes."""
    stored = (home.photos / "b.jpg").read_bytes()
    assert CAMERA.encode() in stored
    response = client.get(address(client, "b.jpg", what))
    image = opened(response)
    assert image.height > image.width
    pixels = np.asarray(image)
    assert pixels[: image.height // 3, :, 0].mean() > 180 > pixels[: image.height // 3, :, 2].mean()
    assert pixels[-image.height // 3 :, :, 2].mean() > 180
    assert not image.getexif()
    for word in (b"Exif", b"ICC_PROFILE", b"http://ns.adobe.com", CAMERA.encode(), b"2024:05:17"):
        assert word not in response.content


def test_video_thumbnail_is_the_middle_frame(client, home):
    """The frame in the middle of the moment."""
    results = client.get(f"{API}/search", params={"q": "snow", "type": "video", "all_moments": True}).json()["results"]
    assert len(results) > 1
    for result in results:
        frame = np.asarray(opened(client.get(result["thumbnail"])))
        middle = (result["start"] + min(result["end"], 12)) / 2
        assert number_of(frame) / 5 == pytest.approx(middle, abs=0.5)


def test_matching_entity_tag_gets_304(client):
    """The tag alone, weak, among others or ``*``; another tag gets the image."""
    where = address(client, "a.png")
    first = client.get(where)
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get(where, headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert (again.headers["etag"], again.headers["cache-control"]) == (tag, IMMUTABLE)
    assert client.get(where, headers={"if-none-match": '"other"'}).content == first.content
    tags = {client.get(where, params={"size": size}).headers["etag"] for size in (160, 320, 640)}
    assert len(tags) == 3
    assert client.get(address(client, "a.png", "preview")).headers["etag"] not in tags


def test_cache_control_of_thumbnails(client):
    """Cached forever if the URL names the full version, otherwise revalidated; by browsers only."""
    where = address(client, "a.png")
    plain, version = where.split("?v=")
    assert client.get(where).headers["cache-control"] == IMMUTABLE
    for other in ("", version[:1], version[:-1], version + "0", "x" * 16):
        assert client.get(plain, params={"v": other}).headers["cache-control"] == REVALIDATED
    assert client.get(address(client, "a.png", "preview")).headers["cache-control"] == REVALIDATED


def test_changed_file_is_not_cached(own):
    """The current content is shown, without a tag and with no-store, until it is indexed again."""
    with application(own.index) as client:
        where = address(client, "a.png")
        old = client.get(where)
        Image.fromarray(painted(9)).save(own.photos / "a.png")
        for headers in ({}, {"if-none-match": old.headers["etag"]}, {"if-none-match": "*"}):
            new = client.get(where, headers=headers)
            assert new.status_code == 200
            assert new.content != old.content
            assert "etag" not in new.headers
            assert new.headers["cache-control"] == "no-store"
        own.indexed()
        again = client.get(address(client, "a.png"))
        assert again.content == new.content
        assert again.headers["cache-control"] == IMMUTABLE
        assert again.headers["etag"] != old.headers["etag"]


def test_change_with_same_size_and_time_is_noticed(own):
    """The digest decides: nothing is cached under a digest that it does not have."""
    file = own.photos / "a.png"
    before = file.stat()
    with application(own.index) as client:
        Image.fromarray(painted(9, 200, 300)).save(own.folder / "other.png")
        other = (own.folder / "other.png").read_bytes()
        file.write_bytes(other.ljust(before.st_size, b"\0"))
        assert file.stat().st_size == before.st_size
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        response = client.get(address(client, "a.png"))
        assert "etag" not in response.headers
        assert response.headers["cache-control"] == "no-store"


def test_touched_file_keeps_its_tag(own):
    """Its content is what was indexed."""
    with application(own.index) as client:
        where = address(client, "a.png")
        old = client.get(where)
        os.utime(own.photos / "a.png")
        new = client.get(where)
        assert (new.content, new.headers["etag"]) == (old.content, old.headers["etag"])


def test_changed_video_is_not_cached(own):
    """As for images."""
    with application(own.index) as client:
        where = address(client, "clip.mp4")
        old = client.get(where)
        assert old.headers["cache-control"] == IMMUTABLE
        write_clip(own.photos / "clip.mp4", seconds=5, rate=10)
        new = client.get(where, headers={"if-none-match": old.headers["etag"]})
        assert new.content != old.content
        assert "etag" not in new.headers
        evidence = client.get(f"{API}/search?q=snow&type=video").json()
        item = evidence["results"][0]["id"]
        response = client.get(f"{API}/items/{item}/evidence", params={"query": evidence["query_id"]})
        assert_problem(response, 409, "has changed")


@pytest.mark.parametrize("name", ["a.png", "clip.mp4"])
def test_missing_file_gets_404(own, name):
    """With the reason, even if it is cached here or at the client; the item says so as well."""
    with application(own.index) as client:
        where = address(client, name)
        tag = client.get(where).headers["etag"]
        (own.photos / name).unlink()
        for headers in ({}, {"if-none-match": tag}):
            assert_problem(client.get(where, headers=headers), 404, "file not found")
        found = client.get(f"{API}/items/{id_of(client, name)}").json()
        assert found["available"] is False
        assert_problem(client.get(found["preview"]), 404, "file not found")


@pytest.mark.parametrize("name", ["a.png", "clip.mp4"])
def test_undecodable_file_gets_404(own, name):
    """With the reason: neither the request nor the service is at fault."""
    (own.photos / name).write_bytes(b"words")
    with application(own.index) as client:
        detail = assert_problem(client.get(address(client, name)), 404, "cannot be read")
        assert str(own.folder) not in detail
        assert "/proc" not in detail
