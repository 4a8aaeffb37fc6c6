"""The page in a real browser, with its console messages and requests recorded."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, sync_playwright

FOCUSED = "() => { const each = document.activeElement; return each.id || each.dataset.index || each.tagName; }"
CHANGED = "() => document.querySelector('#results > :first-child:not([data-old])') !== null"
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
"""Leaves no other host within reach. Intercepting requests instead would switch off the browser's cache."""
SETTLED = "() => ![...document.images].some((image) => image.loading === 'eager' && !image.complete)"


@dataclass
class Visit:
    """An open page; ``messages`` are those of its console, ``foreign`` its requests to other hosts."""

    page: Page
    address: str
    messages: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    @property
    def foreign(self) -> list[str]:
        own = (self.address, f"blob:{self.address}")
        return [request.url for request in self.requests if not request.url.startswith(own)]

    def search(self, words: str) -> None:
        """Type a query and wait for its results."""
        self.changing(lambda: self.page.fill("#words", words))

    def changing(self, act: Callable[[], Any]) -> None:
        """Perform an action and wait until new results are shown."""
        self.page.evaluate("() => document.getElementById('results').firstElementChild?.setAttribute('data-old', '')")
        act()
        self.page.wait_for_function(CHANGED)

    def names(self) -> list[str]:
        """The file names of the results, in order."""
        return self.page.locator(".tile .name").all_text_contents()

    def asked(self, path: str = "search") -> list[list[tuple[str, str]]]:
        """The parameters of all requests to a route, in order."""
        found = [urlsplit(request.url) for request in self.requests]
        return [parse_qsl(each.query) for each in found if each.path == f"/api/v1/{path}"]

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def focused(self) -> str:
        """The id of the focused element, or the index of the focused tile."""
        found: str = self.page.evaluate(FOCUSED)
        return found

    def closed(self, selector: str) -> None:
        """Wait until a dialog is closed and its handlers have run."""
        self.page.wait_for_selector(selector, state="hidden")
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def box(self, selector: str) -> dict[str, float]:
        found = self.page.locator(selector).bounding_box()
        assert found, f"{selector} is not shown"
        return {**found, "right": found["x"] + found["width"], "bottom": found["y"] + found["height"]}

    def open_first(self, words: str) -> None:
        """Search, and open the best result."""
        self.search(words)
        self.page.locator("[data-index='0']").click()
        self.page.wait_for_selector("#viewer[open]")

    def open_named(self, words: str, name: str) -> None:
        """Search, and open the result with this name."""
        self.search(words)
        self.page.locator(f".tile button[aria-label^={json.dumps(name, ensure_ascii=False)}]").first.click()
        self.page.wait_for_selector("#viewer[open]")

    def described(self) -> None:
        """Wait until the page shows something and knows its collection."""
        self.page.wait_for_selector("#results > *")
        self.page.wait_for_function("() => document.title !== 'vse'")

    def reload(self) -> None:
        """Load the page again, and wait for it."""
        self.page.reload()
        self.described()

    def settle(self) -> None:
        """Wait until all visible images are loaded."""
        self.page.wait_for_function(SETTLED)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The installed Chromium; tests are skipped without one."""
    program = "/usr/bin/chromium" if os.access("/usr/bin/chromium", os.X_OK) else shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium in PATH: install it to test the page")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", ALONE])
        yield browser
        browser.close()


def changed_response(page: Page, path: str, change: Callable[[Any], Any]) -> None:
    """Let ``change`` replace the JSON of a route: what another server, or one with other data, responds."""

    def fulfill(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json=change(response.json()))

    page.route(re.compile(f"/api/v1/{path.replace('*', '[^/]+')}([?]|$)"), fulfill)


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """A new browser context."""
    context = browser.new_context(**{"viewport": {"width": 1024, "height": 680}, "locale": "en-GB"} | options)
    context.set_default_timeout(15_000)
    return context


def visit(context: BrowserContext, address: str, path: str = "", *, wait: bool = True) -> Visit:
    """Open the page and, with ``wait``, wait until it shows something."""
    made = Visit(context.new_page(), address)
    made.page.on("console", lambda message: made.messages.append(message.text))
    made.page.on("pageerror", lambda error: made.messages.append(str(error)))
    made.page.on("request", lambda request: made.requests.append(request))  # noqa: PLW0108 (Playwright marks handlers)
    made.page.goto(address + path)
    if wait:
        made.page.wait_for_selector("#results > *")
    return made
