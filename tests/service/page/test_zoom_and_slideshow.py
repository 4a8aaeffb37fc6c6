"""Enlarging and moving the open image, swiping through the results, and the slideshow."""

from __future__ import annotations

import pytest
from tests.service.page.library import CLIP

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SCALE = "() => new DOMMatrix(getComputedStyle(document.querySelector('.frame')).transform).a"
MOVED = "() => new DOMMatrix(getComputedStyle(document.querySelector('.frame')).transform).e"


def scale(page):
    return page.page.evaluate(SCALE)


def middle(page):
    box = page.box("#stage")
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_zoom_by_buttons_and_keys(desk):
    """They enlarge by steps up to 800 %, say how much, and arrows then move the image instead of changing it."""
    desk.open_named("red", "large.png")
    keys = desk.page.keyboard
    assert desk.page.locator("#zoom-out").get_attribute("aria-disabled") == "true"
    desk.page.get_by_role("button", name="Zoom in").click()
    keys.press("+")
    assert scale(desk) == pytest.approx(1.4**2, rel=0.01)
    assert desk.text("#zoom-fit") == "196%"
    keys.press("-")
    assert scale(desk) == pytest.approx(1.4, rel=0.01)
    before, name = desk.page.evaluate(MOVED), desk.text("#viewer-name")
    keys.press("ArrowRight")
    assert desk.page.evaluate(MOVED) < before
    assert desk.text("#viewer-name") == name
    for _ in range(9):
        keys.press("+")
    assert scale(desk) == 8
    assert desk.page.locator("#zoom-in").get_attribute("aria-disabled") == "true"
    desk.page.get_by_role("button", name="Fit the image").click()
    assert scale(desk) == 1
    keys.press("ArrowRight")
    assert desk.text("#viewer-name") != name


def test_zoom_by_wheel_double_click_and_drag(desk):
    """The point below the pointer stays, dragging moves the image but never off the stage, and the next one fits."""
    desk.open_named("red", "large.png")
    x, y = middle(desk)
    desk.page.mouse.move(x, y)
    desk.page.mouse.wheel(0, -400)
    desk.page.wait_for_function(f"() => ({SCALE})() > 2")
    desk.page.mouse.down()
    desk.page.mouse.move(x + 60, y, steps=3)
    desk.page.mouse.up()
    assert desk.page.evaluate(MOVED) == pytest.approx(60, abs=2)
    desk.page.mouse.down()
    desk.page.mouse.move(x + 4000, y, steps=3)
    desk.page.mouse.up()
    image, stage = desk.box("#media img"), desk.box("#stage")
    assert image["x"] <= stage["x"] + 1
    desk.page.mouse.dblclick(x, y)
    assert scale(desk) == 1
    desk.page.mouse.dblclick(x, y)
    assert scale(desk) == 2.5
    desk.page.click("#viewer-next")
    assert scale(desk) == 1
    assert desk.page.locator("#viewer").is_visible()


def touching(page):
    """Touches the screen at given points, as fingers would."""
    session = page.page.context.new_cdp_session(page.page)

    def touch(kind, *points):
        at = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})

    return touch


def test_pinch_and_swipe_on_a_phone(entering):
    """Two fingers enlarge; one finger moves an enlarged image, and otherwise goes to the next or previous result."""
    page = entering(**PHONE)
    page.open_named("red", "strong-03.jpg")
    x, y = middle(page)
    touch = touching(page)
    name, index = page.text("#viewer-name"), page.names().index("strong-03.jpg")
    touch("touchStart", (x + 80, y))
    touch("touchMove", (x - 40, y))
    touch("touchEnd")
    page.page.wait_for_function(f"() => document.getElementById('viewer-name').textContent !== '{name}'")
    assert page.text("#viewer-name") == page.names()[index + 1]
    touch("touchStart", (x - 60, y))
    touch("touchMove", (x + 60, y))
    touch("touchEnd")
    page.page.wait_for_function(f"() => document.getElementById('viewer-name').textContent === '{name}'")
    assert not page.page.locator("#zoom").evaluate("each => Number(getComputedStyle(each).opacity)")
    touch("touchStart", (x - 20, y), (x + 20, y))
    touch("touchMove", (x - 60, y), (x + 60, y))
    touch("touchEnd")
    page.page.wait_for_function(f"() => ({SCALE})() > 2")
    touch("touchStart", (x, y))
    touch("touchMove", (x - 100, y))
    touch("touchEnd")
    assert page.text("#viewer-name") == name
    page.page.wait_for_function(f"() => ({MOVED})() < -50")


def test_videos_are_not_zoomed(desk):
    """They have controls of their own."""
    desk.open_named("red", CLIP)
    assert not desk.page.locator("#zoom").is_visible()
    desk.page.keyboard.press("+")
    assert (
        desk.page.locator("#media video").evaluate("each => getComputedStyle(each.parentElement).transform") == "none"
    )


def at_noon(entering, path, **options):
    """A page whose clock the test turns."""
    page = entering(path, **({"locale": "en-GB"} | options))
    page.page.clock.install(time="2024-05-17T12:00:00")
    page.reload()
    page.page.wait_for_selector(".match")
    page.page.clock.pause_at("2024-05-17T13:00:00")
    return page


def test_slideshow_shows_results_in_turn(entering):
    """Each for four seconds, without the panel; it pauses and resumes, and Escape ends it and then the viewer."""
    page = at_noon(entering, "?q=green")
    page.page.locator("[data-index='0']").click()
    page.page.wait_for_selector("#viewer[open]")
    names = page.names()
    page.page.keyboard.press("s")
    assert not page.page.locator("#facts").is_visible()
    assert page.focused() == "slides-pause"
    shown = "() => document.getElementById('viewer-name').textContent"
    page.page.clock.run_for(4100)
    assert page.page.evaluate(shown) == names[1]
    page.page.keyboard.press("Enter")
    assert page.page.locator("#slides-pause").get_attribute("aria-label") == "Resume the slideshow"
    page.page.clock.run_for(20_000)
    assert page.page.evaluate(shown) == names[1]
    page.page.click("#slides-pause")
    page.page.clock.run_for(4100)
    assert page.page.evaluate(shown) == names[2]
    page.page.keyboard.press("ArrowRight")
    page.page.clock.run_for(2000)
    assert page.page.evaluate(shown) == names[3]  # its time starts when it is shown
    page.page.keyboard.press("Escape")
    assert page.page.locator("#facts").is_visible()
    assert page.focused() == "slides-start"
    page.page.clock.run_for(20_000)
    assert page.page.evaluate(shown) == names[3]
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("#viewer", state="hidden")


def test_slideshow_ends_with_the_results_on_a_phone(entering):
    """It fills the screen, can be ended by a tap, and stops after the last result."""
    page = at_noon(entering, '?q=green+folder:"albums/03 snow"', **PHONE)
    page.page.locator("[data-index='0']").tap()
    page.page.wait_for_selector("#viewer[open]")
    page.page.tap("#slides-start")
    assert page.box("#stage")["height"] == pytest.approx(844, abs=1)
    page.page.tap("#slides-stop")
    assert page.page.locator("#facts").is_visible()
    page.page.tap("#slides-start")
    page.page.clock.run_for(30_000)
    assert page.page.locator("#facts").is_visible()
    assert page.text("#viewer-place") == "3 of 3"
