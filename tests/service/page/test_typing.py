"""What is seen between two letters."""

from __future__ import annotations

import pytest

# Notes everything that the wall says in place of results.
SAYING = """() => {
  window.said = [];
  const wall = document.getElementById("results");
  const note = () => said.push(...[...wall.querySelectorAll(".empty h2")].map((each) => each.textContent));
  new MutationObserver(note).observe(wall, { childList: true });
}"""


@pytest.fixture
def paused(visiting):
    """The results for "red", on a page whose clock goes on when it is told to."""
    page = visiting(locale="en-GB")  # the clock is that of a whole visitor
    page.page.clock.install(time="2024-05-17T12:00:00")
    page.page.goto(f"{page.address}?q=red")
    page.page.wait_for_selector(".tile")
    page.page.clock.pause_at("2024-05-17T13:00:00")
    page.page.evaluate(SAYING)
    return page


def type_half(page, words):
    """Type what the model does not know, and let the clock go on until the answer is there."""
    page.page.fill("#words", words)
    page.page.clock.run_for(131)
    page.page.wait_for_selector("body.busy")


@pytest.mark.parametrize("words", ["two", "blue"])
def test_letter_by_letter(page, words):
    """Every half word is asked for and is no error, neither on the page nor in its console."""
    for at in range(1, len(words) + 1):
        with page.page.expect_response(f"**/api/v1/search?q={words[:at]}&*") as answered:
            page.page.locator("#words").press(words[at - 1])
        assert answered.value.status == 200
        assert answered.value.json()["unknown"] == ([words[:at]] if at < len(words) else [])
    page.page.wait_for_function("() => document.getElementById('status').textContent.startsWith('48 results')")
    assert not page.page.locator("#notice").is_visible()
    assert page.messages == []


def test_half_a_word_to_leave_out(page):
    """It is named and ignored until it is whole."""
    page.search("green")
    found = page.names()
    for half in ("r", "re"):
        page.changing(lambda half=half: page.page.fill("#exclude", half))
        assert f"words the model does not know: {half}" in page.text("#status")
        assert page.names() == found
    page.changing(lambda: page.page.fill("#exclude", "red"))
    assert "does not know" not in page.text("#status")
    assert page.names() != found


def test_results_outlast_half_a_word(paused):
    """They stay for 600 ms, paler, and go if nothing else is typed by then."""
    type_half(paused, "bl")
    assert paused.names()[1] == "plain red.png"
    paused.page.clock.run_for(599)
    assert paused.names()[1] == "plain red.png"
    paused.page.clock.run_for(2)
    paused.page.wait_for_selector(".empty")
    assert paused.names() == []
    assert not paused.page.locator("body.busy").count()


def test_another_letter_keeps_the_results_longer(paused):
    """Also when it comes just before they would go."""
    type_half(paused, "bl")
    paused.page.clock.run_for(550)
    type_half(paused, "blu")
    paused.page.clock.run_for(550)
    paused.page.fill("#words", "blue")
    paused.page.clock.run_for(131)
    paused.page.wait_for_function("() => document.querySelectorAll('.name span')[1].textContent === 'plain blue.png'")
    paused.page.clock.run_for(2000)
    assert paused.page.evaluate("() => said") == []


def test_enter_does_not_wait(paused):
    """Whoever ends the question is told at once that nothing was found."""
    type_half(paused, "bl")
    paused.page.keyboard.press("Enter")
    paused.page.wait_for_selector(".empty")
