"""Pages of other sites can link to the page, and nothing else."""

from __future__ import annotations

import pytest
from tests.service.support import API, assert_problem, id_of

FOREIGN = [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}]


@pytest.mark.parametrize("headers", FOREIGN)
def test_requests_from_other_sites_get_403(client, headers):
    """Before anything is read or computed, for searches, uploads and images."""
    item = id_of(client, "b.jpg")
    for path in (
        f"{API}/search?q=snow",
        f"{API}/items/{item}/thumbnail",
        f"{API}/collection",
        "/metrics",
        "/static/app.js",
    ):
        assert_problem(client.get(path, headers=headers), 403, "another site")
    files = [("image", ("a.png", b"not an image"))]
    assert_problem(client.post(f"{API}/search", files=files, headers=headers), 403, "another site")
    assert_problem(client.post("/", headers=headers), 403, "another site")


@pytest.mark.parametrize("headers", FOREIGN)
def test_links_from_other_sites_open_the_page(client, headers):
    """Its own requests are same-origin then."""
    assert client.get("/?q=snow", headers=headers).status_code == 200
    assert client.head("/", headers=headers).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}])
def test_same_origin_requests_are_allowed(client, headers):
    """Programs send no Sec-Fetch-Site; the page and the address bar send same-origin or none."""
    assert client.get(f"{API}/search?q=snow", headers=headers).status_code == 200
