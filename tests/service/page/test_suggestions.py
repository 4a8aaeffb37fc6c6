"""Recent searches, examples from the collection, results that load while scrolling, and similar images."""

from __future__ import annotations

import re

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def recent(page):
    return page.page.locator("#recent button").all_text_contents()


def test_recent_searches_are_offered_and_forgotten(entering):
    """Completed ones, newest first, once each; a click repeats one, and they can be cleared."""
    page = entering(locale="en-GB")
    assert not page.page.locator("#recent-part").is_visible()
    for words in ("red", "green", "red"):
        page.search(words)
        page.page.keyboard.press("Enter")
    page.search("blu")  # not completed
    page.search("")
    assert page.page.locator("#recent-part").is_visible()
    assert recent(page) == ["red", "green"]
    page.changing(lambda: page.page.get_by_role("group", name="Recent").get_by_role("button", name="green").click())
    assert page.page.input_value("#words") == "green"
    assert page.page.url.endswith("?q=green")
    assert not page.page.locator("#suggest").is_visible()
    page.search("")
    assert recent(page) == ["green", "red"]
    page.page.reload()
    page.page.wait_for_selector("#recent button")
    page.page.get_by_role("button", name="Clear", exact=True).click()
    assert recent(page) == []
    assert page.focused() == "words"
    assert page.page.evaluate("() => localStorage.length") == 0


def test_storage_of_another_version_is_ignored(entering):
    """Neither what is no list nor what is no text breaks the page."""
    page = entering(locale="en-GB")
    for stored, shown in (("{", []), ('{"a": 1}', []), ('[1, "red", null]', ["red"])):
        page.page.evaluate("(text) => localStorage.setItem('vse.recent', text)", stored)
        page.page.reload()
        page.page.wait_for_selector(".tile")
        assert recent(page) == shown


def test_examples_come_from_the_collection(desk):
    """Its places, last years, largest folder and cameras, six of them; a click searches with that filter."""
    group = desk.page.get_by_role("group", name="Try")
    assert group.get_by_role("button").all_text_contents() == [
        "place Quito, Pichincha, Ecuador", "place Brooklyn, New York, United States", "year 2024", "year 2023",
        "folder albums", "camera Canon EOS R6",
    ]  # fmt: skip
    desk.changing(lambda: group.get_by_role("button", name="year 2023").click())
    assert desk.page.input_value("#words") == "after:2023 before:2024"
    assert desk.page.locator("#typed .chip").all_text_contents() == ["after: 2023", "before: 2024"]
    assert all("2023" in each for each in desk.page.locator(".heading").all_text_contents())
    desk.search("")
    desk.changing(lambda: group.get_by_role("button", name=re.compile("^place Quito")).click())
    assert desk.page.input_value("#words") == 'place:"Quito, Pichincha, Ecuador"'
    assert len(desk.names()) == 16


def test_suggestions_on_a_phone(entering):
    """One line that scrolls sideways, and nothing else does."""
    page = entering(**PHONE)
    row = page.box("#examples-part")
    assert row["height"] < 60
    assert page.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    page.changing(lambda: page.page.locator("#examples button").nth(1).tap())
    assert page.page.locator(".tile").count() > 0


def test_results_load_while_scrolling(entering):
    """The next page follows before the end is reached, keeps the weaker ones together, and says how many there are."""
    page = entering("?q=red", **PHONE)
    page.page.wait_for_selector(".match")
    assert page.page.locator(".tile").count() == 48
    page.page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    page.page.wait_for_function("() => document.querySelectorAll('.tile').length === 51")
    assert page.page.locator(".heading").all_text_contents() == ["Good matches", "Weaker matches"]
    assert page.text("#status").startswith("51 results")
    assert not page.page.locator("#more").is_visible()
    page.page.tap("#to-top")
    assert page.page.evaluate("() => scrollY") == 0
    assert page.focused() == "words"


def test_reload_and_back_return_to_the_position(entering):
    """With as many results as there were."""
    page = entering("?q=red", locale="en-GB", viewport={"width": 700, "height": 500})
    page.page.wait_for_selector(".match")
    page.page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    page.page.wait_for_function("() => document.querySelectorAll('.tile').length === 51")
    page.page.evaluate("() => scrollTo(0, document.body.scrollHeight - 900)")
    page.page.wait_for_function("() => history.state?.top > 500 && history.state.count === 51")
    top = page.page.evaluate("() => scrollY")
    page.page.reload()
    page.page.wait_for_function(
        f"() => Math.abs(scrollY - {top}) < 2 && document.querySelectorAll('.tile').length === 51"
    )
    page.page.evaluate("() => document.querySelector('[data-index=\"40\"]').scrollIntoView()")
    page.search("green")
    page.page.wait_for_function("() => scrollY === 0")
    page.page.go_back()
    page.page.wait_for_function("() => scrollY > 500")


def test_button_loads_more_for_the_keyboard(desk):
    """It is focused by Tab after the results, and the first new result gets the focus."""
    desk.page.set_viewport_size({"width": 700, "height": 300})
    desk.page.evaluate("() => { IntersectionObserver.prototype.observe = () => {}; }")  # as far above as can be
    desk.search("red")
    desk.page.locator("#more").focus()
    desk.page.keyboard.press("Enter")
    desk.page.wait_for_function("() => document.querySelectorAll('.tile').length === 51")
    desk.page.wait_for_function("() => document.activeElement.dataset.index === '48'")


def test_viewer_loads_further_results(desk):
    """Stepping to the last one loads the next page."""
    desk.page.evaluate("() => { IntersectionObserver.prototype.observe = () => {}; }")
    desk.search("red")
    desk.page.locator("[data-index='45']").click()
    desk.page.wait_for_selector("#viewer[open]")
    desk.page.keyboard.press("ArrowRight")
    desk.page.wait_for_function("() => document.getElementById('viewer-place').textContent === '47 of 51'")


def test_similar_images_fill_the_panel(desk):
    """Up to nine; one opens in place of the result, without its numbers, and "previous" leads back."""
    desk.open_named("red", "strong-03.jpg")
    desk.page.wait_for_selector("#viewer-similar:not([hidden])")
    buttons = desk.page.locator("#viewer-similar button")
    assert buttons.count() == 9
    name = buttons.nth(1).get_attribute("aria-label").removeprefix("Show ")
    place = desk.text("#viewer-place")
    buttons.nth(1).click()
    assert desk.text("#viewer-name") == name
    assert not desk.page.locator("#viewer-meter").is_visible()
    assert desk.text("#viewer-place") == f"Similar to {place.split()[0]}"
    back = desk.page.get_by_role("button", name="Back to the result")
    assert back.get_attribute("aria-disabled") == "false"
    back.click()
    assert desk.text("#viewer-name") == "strong-03.jpg"
    assert desk.text("#viewer-place") == place
    assert desk.page.locator("#viewer-meter").is_visible()
