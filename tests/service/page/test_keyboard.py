"""Keyboard use, focus and accessible names."""

from __future__ import annotations

PLACES = """(tiles) => tiles.map((tile) => {
  const box = tile.getBoundingClientRect();
  return [box.top, box.left + box.width / 2];
})"""


def test_page_can_be_used_by_keyboard_alone(page):
    """Search, move, open, explain, more like this, close: the focus is always somewhere useful."""
    keys = page.page.keyboard
    page.page.locator("body").focus()
    keys.press("/")
    assert page.focused() == "words"
    page.changing(lambda: keys.type("red"))
    page.page.wait_for_url("**/?q=red")
    page.page.wait_for_function("() => document.querySelectorAll('.rank').length > 0")
    keys.press("ArrowDown")
    assert page.focused() == "0"
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    assert page.focused() == "2"
    keys.press("ArrowLeft")
    keys.press("Enter")
    page.page.wait_for_selector("#viewer[open]")
    assert page.text("#viewer-name") == page.names()[1]
    assert page.focused() == "viewer-close"
    keys.press("e")
    page.page.wait_for_selector("#media canvas")
    keys.press("Escape")
    page.closed("#viewer")
    assert page.focused() == "1"
    keys.press("End")
    assert page.focused() == "47"
    keys.press("Home")
    assert page.focused() == "0"
    keys.press("ArrowUp")
    assert page.focused() == "words"


def test_vertical_arrows_move_to_the_nearest_tile(page):
    """Down and up again, whatever the rows contain."""
    page.search("red")
    boxes = page.page.eval_on_selector_all("[data-index]", PLACES)
    start = 1
    page.page.locator(f"[data-index='{start}']").focus()
    page.page.keyboard.press("ArrowDown")
    reached = int(page.focused())
    below = min(top for top, _ in boxes if top > boxes[start][0] + 1)
    row = [index for index, (top, _) in enumerate(boxes) if top == below]
    assert reached == min(row, key=lambda index: abs(boxes[index][1] - boxes[start][1]))
    page.page.keyboard.press("ArrowUp")
    assert boxes[int(page.focused())][0] == boxes[start][0]


def test_slash_in_a_text_field_is_typed(page):
    page.page.locator("#words").press_sequentially("a/b")
    assert page.page.input_value("#words") == "a/b"
    page.page.locator("#exclude").press_sequentially("c/d")
    assert page.page.input_value("#exclude") == "c/d"


def test_new_results_keep_the_focus_in_the_grid(page):
    """If results replace the focused one, the first of them gets the focus."""
    page.search("red")
    page.page.locator("[data-index='5']").focus()
    page.changing(page.page.go_back)
    assert page.focused() == "0"


def test_skip_link_leads_to_the_results(page):
    """It is the first tab stop, and adds nothing to the history."""
    before = page.page.evaluate("history.length")
    page.page.keyboard.press("Tab")
    assert page.focused() == "skip"
    page.page.keyboard.press("Enter")
    assert page.focused() == "0"
    assert page.page.evaluate("history.length") == before


def test_date_popover_by_keyboard(page):
    """Enter opens it, Tab moves into it, Escape closes it and returns to its button."""
    page.page.focus("#dates-open")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("#dates:popover-open")
    page.page.keyboard.press("Tab")
    assert page.focused() == "after"
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("#dates:popover-open", state="hidden")
    assert page.focused() == "dates-open"


def test_accessible_names_and_landmarks(page):
    """A search landmark, a live status, an alert for errors, and a name for every button, field and dialog."""
    assert page.page.get_by_role("search", name="Search the collection").count() == 1
    assert page.page.locator("#status").get_attribute("role") == "status"
    assert page.page.locator("#notice").get_attribute("role") == "alert"
    nameless = page.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, dialog")]
            .filter((each) => !each.hidden && each.type !== "hidden")
            .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim()
                || each.labels?.length || document.getElementById(each.getAttribute("aria-labelledby") ?? "")))
            .map((each) => each.outerHTML)"""
    )
    assert nameless == []
    assert page.page.locator("img:not([alt])").count() == 0
    assert page.page.title() == "scenes.vse · vse"
