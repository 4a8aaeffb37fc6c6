"""What a page of another site may have its visitor's browser do here: open a link, and nothing else."""

from __future__ import annotations

import pytest
from tests.service.support import API, assert_problem, id_of

FOREIGN = [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}]


@pytest.mark.parametrize("headers", FOREIGN)
def test_requests_on_behalf_of_another_page(client, headers):
    """403 before anything is read or computed, for searches, uploads and images."""
    item = id_of(client, "b.jpg")
    for path in (
        f"{API}/search?q=snow",
        f"{API}/items/{item}/thumbnail",
        f"{API}/collection",
        "/metrics",
        "/static/app.js",
    ):
        assert_problem(client.get(path, headers=headers), 403, "another site")
    files = [("image", ("a.png", b"no picture"))]
    assert_problem(client.post(f"{API}/search", files=files, headers=headers), 403, "another site")
    assert_problem(client.post("/", headers=headers), 403, "another site")


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_link_to_the_page(client, headers):
    """From anywhere it leads to the page, whose own requests then are those of this site."""
    assert client.get("/?q=snow", headers=headers).status_code == 200
    assert client.head("/", headers=headers).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}])
def test_own_requests(client, headers):
    """Programs say nothing about it; the page and the address bar say that it is their own."""
    assert client.get(f"{API}/search?q=snow", headers=headers).status_code == 200
