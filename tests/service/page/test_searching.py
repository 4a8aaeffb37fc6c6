"""Searching and filtering on the page."""

from __future__ import annotations

import pytest
from tests.service.page.support import MARKUP, SCENES, SHAPES


def names(found):
    return [result["name"] for result in found["results"]]


def test_results_appear_while_typing(page, served):
    """The tiles are the results of the API in order; each is labelled with its name, moment and rank."""
    page.search("red")
    found = served.get("search", ("q", "red"), ("k", 48))
    assert page.names() == names(found)
    assert page.text("#status").startswith("48 results so far")
    label = page.page.locator("[data-index='0']").get_attribute("aria-label")
    assert label.split(", ") == ["lights.mp4", "video", "from 0:00 to 0:04", "3 moments", "rank 1"]
    assert page.text("[data-index='0'] .rank") == "#1"
    assert page.page.locator(".tile img").first.get_attribute("alt") == ""
    assert not page.page.locator("#notice").is_visible()
    assert not page.page.locator("#remark").is_visible()


def test_name_appears_on_hover_and_focus(page):
    """Otherwise only the images are visible."""
    page.search("red")
    below = page.page.locator("[data-index='1'] .name")
    shown = "element => getComputedStyle(element).opacity"
    assert below.evaluate(shown) == "0"
    page.page.locator("[data-index='1']").hover()
    page.page.wait_for_function(
        "() => getComputedStyle(document.querySelector('[data-index=\"1\"] .name')).opacity === '1'"
    )
    page.page.mouse.move(0, 0)
    page.page.focus("#words")
    page.page.keyboard.press("ArrowDown")
    page.page.wait_for_function(
        "() => getComputedStyle(document.querySelector('[data-index=\"0\"] .name')).opacity === '1'"
    )


def test_typing_is_debounced(visiting):
    """A search starts 130 ms after the last key press, not before."""
    page = visiting(locale="en-GB")  # the clock belongs to a whole context
    page.page.clock.install(time="2024-05-17T12:00:00")
    page.page.reload()
    page.page.wait_for_selector(".tile")
    page.page.clock.pause_at("2024-05-17T13:00:00")
    for letter in "red":
        page.page.locator("#words").press(letter)
        page.page.clock.run_for(100)
    assert page.asked() == []
    page.page.clock.run_for(31)
    page.page.wait_for_url("**/?q=red")
    page.page.wait_for_function("() => document.querySelector('.name').textContent === 'lights.mp4'")
    assert [dict(each)["q"] for each in page.asked()] == ["red"]


def test_new_query_aborts_the_previous_request(page):
    """The response of the previous query is never shown."""
    page.page.route("**/api/v1/search?q=red*", lambda route: None)  # never responds
    failed = []
    page.page.on("requestfailed", lambda request: failed.append((request.url, request.failure)))
    with page.page.expect_request("**/api/v1/search?q=red*"):
        page.page.fill("#words", "red")
    page.page.wait_for_selector("body.busy")
    page.search("blue")
    assert page.names()[1] == "plainblue.png"
    assert [reason for url, reason in failed if "q=red" in url] == ["net::ERR_ABORTED"]
    assert not page.page.locator("body.busy").count()


def test_responses_are_cached(page):
    """Switching between two queries takes two requests."""
    for words in ("red", "blue", "red", "blue"):
        page.search(words)
    assert [dict(each)["q"] for each in page.asked()] == ["red", "blue"]


def test_empty_query_lists_newest_first(page, served):
    """At the start, and after the text is cleared."""
    newest = names(served.get("items", ("k", 48)))
    assert page.names() == newest
    assert page.text("#status").endswith("newest first")
    page.search("red")
    page.search("")
    assert page.names() == newest


def test_url_holds_the_query(page):
    """A reload repeats it; going back leads to the previous query, not to one letter less."""
    start = page.names()
    page.search("green")  # an intermediate query
    page.search("red")
    assert page.page.url.endswith("/?q=red")
    page.changing(lambda: page.page.keyboard.press("Enter"))
    page.search("blue")
    page.changing(lambda: page.page.keyboard.press("Enter"))
    page.changing(lambda: page.page.check("#group"))
    assert page.page.url.endswith("/?q=blue&group=1")
    grouped = page.names()
    page.page.reload()
    page.page.wait_for_selector(".tile")
    assert page.names() == grouped
    assert page.page.input_value("#words") == "blue"
    page.changing(page.page.go_back)
    assert not page.page.is_checked("#group")
    page.changing(page.page.go_back)
    assert page.page.input_value("#words") == "red"
    assert page.names()[1] == "plainred.png"
    page.changing(page.page.go_back)
    assert page.page.input_value("#words") == ""
    assert page.names() == start
    page.changing(page.page.go_forward)
    assert page.names()[1] == "plainred.png"


@pytest.mark.parametrize("way", ["field", "minus"])
def test_words_are_excluded(page, served, way):
    """The field and the minus sign send the same request, and what is excluded comes last."""
    if way == "field":
        page.search("green")
        page.changing(lambda: page.page.fill("#exclude", "red"))
    else:
        page.search("green -red")
    assert [each for each in page.asked()[-1] if each[0] != "k"] == [("q", "green"), ("not", "red")]
    found = served.get("search", ("q", "green"), ("not", "red"), ("k", 48))
    assert page.names() == names(found)
    assert page.names()[0] in ("lights.mp4", "plaingreen.png")
    assert page.names().index("scene-06.jpg") < page.names().index("halves.png")


def test_excluded_words_alone_do_not_search(page):
    """All files stay visible, and the page says why."""
    page.search("-red")
    assert page.asked() == []
    assert "once you search" in page.text("#remark")


def test_unknown_words_are_reported_on_the_page(page):
    """Next to known words they are listed; alone they give no results, which is not an error."""
    page.search("red zyx")
    assert "unknown words: zyx" in page.text("#status")
    found = page.names()
    page.changing(lambda: page.page.fill("#exclude", "xyz"))
    assert "unknown words: zyx, xyz" in page.text("#status")
    assert page.names() == found
    page.search("zyx")
    assert "The model does not know any of these words." in page.text("#results")
    assert not page.page.locator("#notice").is_visible()
    assert page.page.locator(".tile").count() == 0


def test_filters_narrow_search_and_browsing(page):
    """By type and folder; an active filter is highlighted."""
    page.changing(lambda: page.page.locator(".segments").get_by_text("Videos").click())
    assert set(page.names()) == {"lights.mp4", "sunset.webm"}
    page.search("green")
    assert [page.names()[0], page.text("[data-index='0'] .badge >> nth=0")] == ["lights.mp4", "▶ 0:04 – 0:08"]
    page.changing(lambda: page.page.locator(".segments").get_by_text("Images").click())
    page.page.click("#folder-open")
    page.page.click("[data-value='2024'] .twist")
    page.changing(lambda: page.page.click("[data-value='2024/beach']"))
    assert len(page.names()) == SCENES // 4
    assert all(name.startswith("scene-") for name in page.names())
    assert "set" in page.page.locator("#folder-open").get_attribute("class")
    assert page.text("#folder-shown") == "2024/beach"
    page.page.reload()
    page.page.wait_for_selector(".tile")
    assert page.page.input_value("#folder") == "2024/beach"
    assert len(page.names()) == SCENES // 4


def test_date_filter(page):
    """Months in a popover: the last one is inclusive, their order does not matter, and the button shows both."""
    assert page.text("#dates-open").endswith("Any time")
    page.page.click("#dates-open")
    page.changing(lambda: page.page.fill("#after", "2024-05"))
    assert page.text("#dates-shown") == "Since May 2024"
    page.changing(lambda: page.page.fill("#before", "2024-03"))
    assert page.text("#dates-shown") == "Mar 2024 – May 2024"
    assert dict(page.asked("items")[-1]) == {"after": "2024-03", "before": "2024-06", "k": "48"}
    months = {1 + number % 12 for number in range(SCENES) if not number % 2} & {3, 4, 5}
    assert len(page.names()) == sum(1 for number in range(0, SCENES, 2) if 1 + number % 12 in months)
    page.page.keyboard.press("Escape")
    assert not page.page.locator("#dates").is_visible()
    page.page.click("#dates-open")
    page.changing(lambda: page.page.click("#dates-clear"))
    assert page.text("#dates-shown") == "Any time"
    assert page.focused() == "dates-open"


def test_duplicates_are_grouped(page):
    """The copies are removed from the grid, and their number is shown."""
    page.search("pink")
    before = len(page.names())
    page.changing(lambda: page.page.check("#group"))
    assert "+2 duplicates" in page.page.locator(".badge").all_text_contents()
    assert len(page.names()) <= before


def test_file_names_are_not_markup(page):
    """They are shown literally in the grid, in the viewer, and in accessible names."""
    alerts = []
    page.page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    page.open_named("pink", MARKUP)
    assert page.text("#viewer-name") == MARKUP
    assert page.page.locator("#media img").get_attribute("alt") == MARKUP
    assert page.page.locator("img[src='x']").count() == 0
    assert alerts == []


def test_plain_colours_rank_first(page):
    """The plain image of a colour is among the first two results, whatever its aspect ratio."""
    for colour in SHAPES:
        page.search(colour)
        assert f"plain{colour}.png" in page.names()[:2]
