"""HEAD: the status and headers of GET, and no body."""

from __future__ import annotations

import pytest
from tests.service.support import API, id_of

PATHS = (
    "/", "/healthz", "/openapi.json", "/static/app.js", f"{API}/search?q=snow", f"{API}/search", f"{API}/items",
    f"{API}/items/{{item}}", f"{API}/items/{{item}}/thumbnail", f"{API}/items/{{video}}/media", f"{API}/items/9999",
    "/nowhere",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_head_equals_get_without_body(served, path):
    """Status and headers are the same, for errors too."""
    items = {"item": id_of(served.client, "b.jpg"), "video": id_of(served.client, "clip.mp4")}
    where = path.format(**items)
    whole, head = served.client.get(where), served.client.head(where)
    assert head.status_code == whole.status_code
    assert head.content == b""
    assert head.headers["content-type"] == whole.headers["content-type"]
    if "search" not in path:  # which returns the time it took
        assert head.headers.get("content-length") == whole.headers.get("content-length")


def test_video_with_matching_tag_gets_304(client):
    """And its file is closed."""
    where = f"{API}/items/{id_of(client, 'clip.mp4')}/media"
    tag = client.get(where).headers["etag"]
    again = client.get(where, headers={"if-none-match": f'"other", {tag}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(where, headers={"if-none-match": '"other"'}).status_code == 200
