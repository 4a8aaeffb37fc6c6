"""Browser history and the viewer."""

from __future__ import annotations

import pytest

LENGTH = "history.length"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def two_queries(page):
    """Search red, then blue, as two history entries."""
    page.search("red")
    page.changing(lambda: page.page.keyboard.press("Enter"))
    page.search("blue")


def test_back_closes_the_viewer(visiting):
    """The results stay without another request, and the next step back leaves them."""
    page = visiting(**PHONE)
    two_queries(page)
    asked, names = len(page.asked()), page.names()
    page.page.tap("[data-index='1']")
    page.page.wait_for_selector("#viewer[open]")
    assert page.page.url.endswith("/?q=blue")
    page.page.go_back()
    page.closed("#viewer")
    assert page.focused() == "1"
    assert page.names() == names
    assert len(page.asked()) == asked
    page.changing(page.page.go_back)
    assert page.page.input_value("#words") == "red"


@pytest.mark.parametrize("way", ["Escape", "button", "beside"])
def test_closing_the_viewer_adds_no_history(page, way):
    """However it is closed, and however often: one step back leads to the previous query."""
    two_queries(page)
    before = page.page.evaluate(LENGTH)
    for _ in range(3):
        page.page.locator("[data-index='1']").click()
        page.page.wait_for_selector("#viewer[open]")
        if way == "Escape":
            page.page.keyboard.press("Escape")
        elif way == "button":
            page.page.click("#viewer-close")
        else:
            page.page.mouse.click(4, 4)
        page.closed("#viewer")
        page.page.wait_for_function("() => !history.state.opened")
    assert page.page.evaluate(LENGTH) == before + 1  # the forward entry of the result
    assert page.focused() == "1"
    page.changing(page.page.go_back)
    assert page.page.input_value("#words") == "red"


def test_forward_and_reload_reopen_the_viewer(page):
    """The history entry names the result."""
    page.open_named("red", "plainred.png")
    page.page.go_back()
    page.closed("#viewer")
    page.page.go_forward()
    page.page.wait_for_selector("#viewer[open]")
    assert page.text("#viewer-name") == "plainred.png"
    page.page.reload()
    page.page.wait_for_selector("#viewer[open]")
    assert page.text("#viewer-name") == "plainred.png"
    page.page.go_back()
    page.closed("#viewer")
    assert page.names()[1] == "plainred.png"


def test_reload_without_the_open_result_shows_the_grid(page):
    """If the result is not found, the viewer stays closed, and the next step back works."""
    two_queries(page)
    page.page.evaluate("() => history.pushState({ ...history.state, opened: 999999 }, '')")
    page.page.reload()
    page.page.wait_for_selector(".tile")
    page.page.wait_for_function("() => !history.state.opened")
    assert not page.page.locator("#viewer").is_visible()
    page.changing(page.page.go_back)
    assert page.page.input_value("#words") == "red"


def test_two_steps_back_close_the_viewer(page):
    """The results are those of the other query, and no result of this one stays open."""
    two_queries(page)
    page.page.locator("[data-index='40']").click()
    page.page.wait_for_selector("#viewer[open]")
    page.page.keyboard.press("e")
    page.changing(lambda: page.page.evaluate("() => history.go(-2)"))
    page.closed("#viewer")
    assert page.names()[1] == "plainred.png"
    assert page.focused() == "0"


def test_more_like_this_replaces_the_viewer_entry(page):
    """One step back leads to the results in which it was found."""
    page.open_named("red", "plainred.png")
    length = page.page.evaluate(LENGTH)
    page.changing(lambda: page.page.keyboard.press("m"))
    assert page.page.evaluate(LENGTH) == length
    page.changing(page.page.go_back)
    assert page.page.url.endswith("/?q=red")
    assert not page.page.locator("#viewer").is_visible()


def test_change_while_the_viewer_closes_is_kept(page):
    """Going back is asynchronous, and a change in the meantime is applied after it."""
    page.open_named("red", "plainred.png")
    act = """() => {
      const box = document.getElementById("group");
      document.getElementById("viewer").addEventListener("close", () => setTimeout(() => box.click()), { once: true });
      const { back } = History.prototype; // slower than it is, as on a machine that has much to do
      history.back = () => setTimeout(() => back.call(history), 100);
      addEventListener("popstate", () => setTimeout(() => (window.stepped = true)));
      document.getElementById("viewer-close").click();
    }"""
    page.changing(lambda: page.page.evaluate(act))
    page.page.wait_for_function("() => window.stepped")
    assert page.page.url.endswith("/?q=red&group=1")
    assert page.page.is_checked("#group")
    assert not page.page.locator("#viewer").is_visible()
    page.changing(page.page.go_back)
    assert page.page.url.endswith("/?q=red")


def test_viewer_keeps_its_results(page):
    """Name, next result, evidence and "more like this" are those of the results it was opened from."""
    page.search("red")
    names = page.names()
    held: list = []
    page.page.route("**/api/v1/search?q=blue&*", lambda route: held.append(route))  # noqa: PLW0108 (as in visits.py)
    with page.page.expect_request("**/api/v1/search?q=blue&*"):
        page.page.fill("#words", "blue")
    page.page.locator("[data-index='1']").click()
    page.page.wait_for_selector("#viewer[open]")
    page.changing(held[0].continue_)
    assert page.names() != names
    page.page.keyboard.press("ArrowRight")
    assert page.text("#viewer-name") == names[2]
    page.page.keyboard.press("ArrowLeft")
    with page.page.expect_response("**/evidence?*") as explained:
        page.page.keyboard.press("e")
    assert explained.value.json()["score"] > 0.9  # of red, for a red one
    page.page.wait_for_selector("#media canvas")
    page.changing(lambda: page.page.keyboard.press("m"))
    assert page.names()[0] == "lights.mp4"
