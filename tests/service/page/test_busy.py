"""How the page behaves while the server is busy."""

from __future__ import annotations

import re

import pytest

THUMBNAIL = re.compile(r"/api/v1/items/(\d+)/thumbnail")
BUSY = {"status": 503, "headers": {"Retry-After": "1"}, "json": {"detail": "too many requests are waiting"}}


@pytest.fixture
def busy_page(visiting):
    """Opens the page with requests routed to ``reject``. The console may report those only."""
    page = visiting(locale="en-GB")  # the clock belongs to a whole context

    def opened(pattern, reject, path="", *, paused=False):
        page.page.route(pattern, reject)
        if paused:
            page.page.clock.install(time="2024-05-17T12:00:00")
            page.page.clock.pause_at("2024-05-17T13:00:00")
        page.page.goto(f"{page.address}{path}")
        page.page.wait_for_selector("#results > *, #notice:not([hidden])")
        return page

    yield opened
    assert all("503" in message or "429" in message for message in page.messages)
    page.messages.clear()


def reject_first(times, response=BUSY, asked=None):
    """A route handler that rejects the first requests for each URL."""
    counts = asked if asked is not None else {}

    def reject(route):
        counts[route.request.url] = counts.get(route.request.url, 0) + 1
        if counts[route.request.url] <= times:
            route.fulfill(**response)
        else:
            route.continue_()

    return reject


def test_results_do_not_wait_for_the_collection(busy_page):
    """They are shown before the description of the collection arrives."""
    page = busy_page("**/api/v1/collection", lambda route: None, "?q=red")  # never responds
    page.page.wait_for_selector(".tile")
    assert page.names()[1] == "plainred.png"
    assert page.page.title() == "vse"


def test_busy_server_is_retried(busy_page):
    """After the time in Retry-After; the page says so meanwhile, and the collection is described in the end."""
    asked: dict[str, int] = {}
    page = busy_page(re.compile(r"/api/v1/(collection|search)"), reject_first(1, asked=asked), "?q=red")
    assert "too many requests are waiting" in page.text("#notice")
    assert "Retrying…" in page.text("#notice")
    page.page.wait_for_selector(".tile")
    assert not page.page.locator("#notice").is_visible()
    page.page.wait_for_function("() => document.title === 'scenes.vse · vse'")
    assert set(asked.values()) == {2}


def test_next_page_is_retried(busy_page, served):
    """The results before it stay."""
    page = busy_page("**/api/v1/search?*offset=*", reject_first(1, {**BUSY, "status": 429}), "?q=red")
    page.page.wait_for_selector(".tile")
    first = page.names()
    page.page.click("#more")
    page.page.wait_for_selector("[data-index='48']")
    assert page.names()[:48] == first
    assert page.names() == [each["name"] for each in served.get("search", ("q", "red"), ("k", 200))["results"]]


@pytest.mark.parametrize("times", [2, 99])
def test_thumbnails_are_retried(busy_page, times):
    """After one second, and again after a longer pause; then they are marked as not available."""
    asked: dict[str, int] = {}
    page = busy_page(THUMBNAIL, reject_first(times, asked=asked), "?type=video", paused=True)
    for number, pause in enumerate((1000, 2500), 1):
        page.page.wait_for_function("() => [...document.images].every((each) => each.complete)")
        page.page.clock.run_for(pause - 1)
        assert list(asked.values()) == [number, number]
        assert page.page.locator(".broken").count() == 0
        with page.page.expect_response(THUMBNAIL), page.page.expect_response(THUMBNAIL):
            page.page.clock.run_for(1)
    shown = "[...document.images].filter((each) => each.complete && each.naturalWidth > 0).length"
    if times == 2:
        page.page.wait_for_function(f"() => {shown} === 2")
    else:
        page.page.wait_for_selector(".broken")
        page.page.wait_for_selector(".tile:not(.broken)", state="detached")
    page.page.clock.run_for(60_000)
    assert page.page.locator(".broken").count() == (0 if times == 2 else 2)
    assert list(asked.values()) == [3, 3]


def test_preview_is_retried(busy_page):
    """The image is shown, and not reported as moved or deleted."""
    page = busy_page("**/preview", reject_first(1), "?q=red")
    page.page.wait_for_selector(".tile")
    page.page.locator("[data-index='1']").click()
    page.page.wait_for_function("() => document.querySelector('#media img')?.naturalWidth > 0")
