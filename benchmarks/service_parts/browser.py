"""Measure the page in Chromium: first paint, first result, and the delay from a key to results.

Each visit is a separate browser context with an empty cache. It opens the page with a query in its address and a text
that was never searched:

- first paint: the browser's own ``first-contentful-paint``;
- first image: from the start of the navigation until the thumbnail of the first result has loaded;
- last key: another text is typed; from the event of the last key until the frame with the first of its results. The
  page's debounce is part of it.

All times are taken inside the page, by its clock.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service_parts.figures import spread, with_range
from service_parts.server import Server
from service_parts.texts import sentence

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

VISITS, QUICK_VISITS, WARM, KEY_DELAY = 10, 2, 1, 30
FIRST = 300_000
NAMES = ("chromium", "chromium-browser", "google-chrome")
MEASURES = {
    "paint": "first contentful paint",
    "picture": "first result's image loaded",
    "key": "last key to first result shown",
}
NOTED = """
window.noted = { key: null, picture: null, shown: null, asked: null };
document.addEventListener("load", (event) => {
  const first = document.querySelector(".tile img");
  if (event.target === first && noted.picture === null) noted.picture = performance.now();
}, true);
document.addEventListener("input", (event) => {
  if (event.target.id === "words") noted.key = event.timeStamp;
}, true);
const frame = (done) => requestAnimationFrame(() => setTimeout(done));
new MutationObserver((changes) => {
  const wanted = document.getElementById("words")?.value;
  const asked = new URLSearchParams(location.search).get("q");
  if (noted.key === null || asked !== wanted || noted.asked === asked) return; // results of a part of the text
  if (!changes.some((change) => [...change.addedNodes].some((node) => node.matches?.(".tile")))) return;
  noted.asked = asked;
  noted.shown = null;
  frame(() => { if (noted.asked === asked) noted.shown = performance.now(); });
}).observe(document, { childList: true, subtree: true });
"""


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return seconds of each measure, or why there are none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {"skipped": "no playwright here: pip install playwright"}
    visits = QUICK_VISITS if options.quick else VISITS
    with sync_playwright() as playwright:
        program = chromium(playwright)
        if program is None:
            return {"skipped": "no Chromium here: make browser"}
        browser = playwright.chromium.launch(executable_path=program)
        with Server(options.collection) as server:
            found = [visit(browser, server.address, number) for number in range(WARM + visits)][WARM:]
        version = browser.version
        browser.close()
    measured = {name: spread([each[name] for each in found]) for name in MEASURES}
    return {"visits": visits, "chromium": version, **measured}


def lines(result: dict[str, Any]) -> list[str]:
    """Return a Markdown table with a row for each measure."""
    if "skipped" in result:
        return [f"Browser: skipped, {result['skipped']}"]
    return [
        f"| the page, Chromium {result['chromium']} | median of {result['visits']} visits (middle half) |",
        "|---|---:|",
        *(f"| {told} | {with_range(result[name], 1e3, 0)} ms |" for name, told in MEASURES.items()),
    ]


def failures(result: dict[str, Any]) -> list[str]:
    return []


def chromium(playwright: Playwright) -> str | None:
    """Return the executable: playwright's, or one of the system."""
    brought = playwright.chromium.executable_path
    return brought if Path(brought).exists() else next(filter(None, map(shutil.which, NAMES)), None)


def visit(browser: Browser, address: str, number: int) -> dict[str, float]:
    """Return the seconds of one visit with an empty cache."""
    opened, typed = (sentence(FIRST + 2 * number + each) for each in (0, 1))
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script(NOTED)
    page = context.new_page()
    page.goto(f"{address}?q={opened.replace(' ', '+')}")
    picture = noted(page, "picture")
    paints = page.evaluate("performance.getEntriesByType('paint').map(({ name, startTime }) => [name, startTime])")
    page.fill("#words", "")
    page.wait_for_timeout(500)  # until the page without a query is shown
    page.focus("#words")
    page.keyboard.type(typed, delay=KEY_DELAY)
    shown = noted(page, "shown", f"noted.asked === {typed!r}")
    key = page.evaluate("noted.key")
    context.close()
    return {"paint": dict(paints)["first-contentful-paint"] / 1e3, "picture": picture / 1e3, "key": (shown - key) / 1e3}


def noted(page: Any, name: str, also: str = "true") -> float:
    """Return what the page has recorded, as soon as it has."""
    for _ in range(600):
        found = page.evaluate(f"{also} ? noted.{name} : null")
        if found is not None:
            return float(found)
        page.wait_for_timeout(50)
    raise SystemExit(f"the page did not come to {name!r} within 30 s")
