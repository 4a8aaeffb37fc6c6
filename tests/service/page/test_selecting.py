"""Selecting results with the mouse, the keyboard and a finger, and exporting them."""

from __future__ import annotations

import csv
import io
import zipfile

import pytest
from tests.service.page.test_file_actions import COPIED
from tests.service.page.visits import changed_response

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def selected(page):
    """The positions of the selected tiles."""
    found = page.page.locator(".tile.selected [data-index]").all()
    return [int(each.get_attribute("data-index")) for each in found]


def tile(page, index):
    return page.page.locator(f"[data-index='{index}']")


def test_mouse_selects_tiles_and_ranges(desk):
    """A click on the box, with Ctrl on the image, with Shift up to there; then every click selects, and Esc ends it."""
    desk.search("red")
    tile(desk, 2).hover()
    desk.page.locator(".tile", has=tile(desk, 2)).locator(".check").click()
    assert selected(desk) == [2]
    assert desk.text("#selection-count") == "1 file selected"
    tile(desk, 5).click(modifiers=["Shift"])
    assert selected(desk) == [2, 3, 4, 5]
    tile(desk, 9).click()
    tile(desk, 4).click(modifiers=["Control"])
    assert selected(desk) == [2, 3, 5, 9]
    assert not desk.page.locator("#viewer").is_visible()
    assert desk.page.locator("#select").get_attribute("aria-pressed") == "true"
    desk.page.click("#selection-all")
    assert len(selected(desk)) == 48
    desk.page.get_by_role("button", name="Clear the selection").click()
    assert selected(desk) == []
    assert not desk.page.locator("#selection").is_visible()
    assert desk.page.locator("#select").get_attribute("aria-pressed") == "false"
    tile(desk, 0).click()
    desk.page.wait_for_selector("#viewer[open]")


def test_keyboard_selects_tiles_and_ranges(desk):
    """X one, Shift with an arrow several, Ctrl+A all; Enter still opens, Escape clears and keeps the focus."""
    desk.search("red")
    keys = desk.page.keyboard
    tile(desk, 1).focus()
    keys.press("x")
    assert selected(desk) == [1]
    box = desk.page.locator(".tile", has=tile(desk, 1)).get_by_role("checkbox")
    assert box.is_checked()
    assert box.get_attribute("aria-label").startswith("Select ")
    keys.press("Shift+ArrowRight")
    keys.press("Shift+ArrowRight")
    assert selected(desk) == [1, 2, 3]
    keys.press("x")
    assert selected(desk) == [1, 2]
    keys.press("Enter")
    desk.page.wait_for_selector("#viewer[open]")
    keys.press("Escape")
    desk.closed("#viewer")
    assert desk.focused() == "3"
    keys.press("Tab")
    assert desk.page.evaluate("() => document.activeElement.type") == "checkbox"
    keys.press("Space")
    assert selected(desk) == [1, 2, 3]
    keys.press("Control+a")
    assert len(selected(desk)) == 48
    keys.press("Escape")
    assert selected(desk) == []


def test_selection_survives_searches_and_is_exported(desk, library):
    """What was selected in two searches goes into one archive, one list, and one copy of the paths."""
    desk.page.evaluate(COPIED)
    desk.search("red")
    desk.page.locator(".tile button[aria-label^='strong-03.jpg']").click(modifiers=["Control"])
    desk.search("green")
    desk.page.locator(".tile button[aria-label^='unlikely-05.jpg']").click()
    assert desk.text("#selection-count") == "2 files selected"
    paths = ["albums/03 snow/strong-03.jpg", "albums/05 city/unlikely-05.jpg"]
    with desk.page.expect_download() as saved:
        desk.page.click("#selection-zip")
    assert saved.value.suggested_filename == "export.zip"
    with zipfile.ZipFile(saved.value.path()) as archive:
        inside = {each.filename: archive.read(each) for each in archive.infolist()}
    assert sorted(inside.values()) == sorted((library.photos / path).read_bytes() for path in paths)
    desk.page.wait_for_function("() => document.getElementById('selection-count').textContent === '2 files exported'")
    with desk.page.expect_download() as saved:
        desk.page.click("#selection-csv")
    rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text())))
    assert [row["path"] for row in rows] == paths
    desk.page.click("#selection-copy")
    desk.page.wait_for_function("() => window.copied.length === 1")
    assert desk.page.evaluate("() => window.copied[0]").split("\n") == [str(library.photos / path) for path in paths]
    assert desk.text("#selection-count") == "2 paths copied"
    desk.search("red")
    assert len(selected(desk)) == 1


def test_export_limits_and_errors_are_said(desk):
    """More files than the server exports at once disable the buttons; an error of the server is shown."""
    limits = {"original": True, "roots": True, "reveal": False, "lists": True, "archives": True, "max_export": 2}
    changed_response(desk.page, "collection", lambda found: {**found, "original_files": limits})
    desk.reload()
    desk.search("red")
    for index in range(3):
        tile(desk, index).click(modifiers=["Control"])
    assert desk.text("#selection-count") == "3 files selected: at most 2 can be exported"
    assert desk.page.locator("#selection-zip").is_disabled()
    tile(desk, 2).click()
    desk.page.route("**/api/v1/export", lambda route: route.abort())
    desk.page.click("#selection-zip")
    desk.page.wait_for_function("() => /not responding/.test(document.getElementById('selection-count').textContent)")
    desk.messages.clear()  # the browser reports the failed request


def test_finger_selects_tiles(entering):
    """Select turns taps into choices; the buttons of the bar are large enough, and nothing scrolls sideways."""
    page = entering("?q=red", **PHONE)
    page.page.wait_for_selector(".match")
    boxes = page.page.locator(".check").first
    assert boxes.evaluate("each => getComputedStyle(each).opacity") == "0"
    page.page.tap("#select")
    assert page.text("#selection-count") == "Select files"
    assert page.page.locator("#selection-zip").is_disabled()
    page.page.wait_for_function("() => getComputedStyle(document.querySelector('.check')).opacity === '1'")
    tile(page, 0).tap()
    tile(page, 2).tap()
    assert selected(page) == [0, 2]
    for name in ("zip", "csv", "copy", "all", "clear"):
        box = page.box(f"#selection-{name}")
        assert box["height"] >= 40, name
        assert (box["x"] >= 0, box["right"] <= 390, box["bottom"] <= 844) == (True, True, True), name
    assert page.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    page.page.tap("#selection-clear")
    assert selected(page) == []
    tile(page, 0).tap()
    page.page.wait_for_selector("#viewer[open]")


@pytest.mark.parametrize("ways", ["select", "clear"])
def test_select_button_ends_the_selection(desk, ways):
    """As the cross does; what was chosen is forgotten."""
    desk.search("red")
    desk.page.click("#select")
    tile(desk, 0).click()
    desk.page.click("#select" if ways == "select" else "#selection-clear")
    assert selected(desk) == []
    assert not desk.page.locator("#selection").is_visible()
    assert desk.focused() == ("select" if ways == "select" else "0")
