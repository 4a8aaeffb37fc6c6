"""What the page shows while the user types."""

from __future__ import annotations

import pytest

# Records every message that the grid shows in place of results.
SAYING = """() => {
  window.said = [];
  const wall = document.getElementById("results");
  const note = () => said.push(...[...wall.querySelectorAll(".empty h2")].map((each) => each.textContent));
  new MutationObserver(note).observe(wall, { childList: true });
}"""


@pytest.fixture
def paused(visiting):
    """The results for "red", on a page with a paused clock."""
    page = visiting(locale="en-GB")  # the clock belongs to a whole context
    page.page.clock.install(time="2024-05-17T12:00:00")
    page.page.goto(f"{page.address}?q=red")
    page.page.wait_for_selector(".tile")
    page.page.clock.pause_at("2024-05-17T13:00:00")
    page.page.evaluate(SAYING)
    return page


def type_unknown(page, words):
    """Type an unknown word, and advance the clock until the response has arrived."""
    page.page.fill("#words", words)
    page.page.clock.run_for(131)
    page.page.wait_for_selector("body.busy")


@pytest.mark.parametrize("words", ["two", "blue"])
def test_typing_sends_each_prefix_without_errors(page, words):
    """Every incomplete word is searched for, and none is an error, on the page or in its console."""
    for at in range(1, len(words) + 1):
        with page.page.expect_response(f"**/api/v1/search?q={words[:at]}&*") as received:
            page.page.locator("#words").press(words[at - 1])
        assert received.value.status == 200
        assert received.value.json()["unknown"] == ([words[:at]] if at < len(words) else [])
    page.page.wait_for_function("() => document.getElementById('status').textContent.startsWith('48 results')")
    assert not page.page.locator("#notice").is_visible()
    assert page.messages == []


def test_incomplete_excluded_word_is_ignored(page):
    """It is reported as unknown and ignored until it is complete."""
    page.search("green")
    found = page.names()
    for half in ("r", "re"):
        page.changing(lambda half=half: page.page.fill("#exclude", half))
        assert f"unknown words: {half}" in page.text("#status")
        assert page.names() == found
    page.changing(lambda: page.page.fill("#exclude", "red"))
    assert "unknown" not in page.text("#status")
    assert page.names() != found


def test_results_stay_for_600_ms_after_an_incomplete_word(paused):
    """They are dimmed, and removed if nothing else is typed by then."""
    type_unknown(paused, "bl")
    assert paused.names()[1] == "plainred.png"
    paused.page.clock.run_for(599)
    assert paused.names()[1] == "plainred.png"
    paused.page.clock.run_for(2)
    paused.page.wait_for_selector(".empty")
    assert paused.names() == []
    assert not paused.page.locator("body.busy").count()


def test_another_letter_restarts_the_delay(paused):
    """Even if it is typed just before the results would be removed."""
    type_unknown(paused, "bl")
    paused.page.clock.run_for(550)
    type_unknown(paused, "blu")
    paused.page.clock.run_for(550)
    paused.page.fill("#words", "blue")
    paused.page.clock.run_for(131)
    paused.page.wait_for_function("() => document.querySelectorAll('.name')[1].textContent === 'plainblue.png'")
    paused.page.clock.run_for(2000)
    assert paused.page.evaluate("() => said") == []


def test_enter_shows_no_results_at_once(paused):
    """Enter ends the query, so there is no delay."""
    type_unknown(paused, "bl")
    paused.page.keyboard.press("Enter")
    paused.page.wait_for_selector(".empty")
