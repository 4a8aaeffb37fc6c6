"""Choosing a folder from a tree, a place or a camera from a list, and another collection."""

from __future__ import annotations

from tests.service.page.library import ALBUMS
from tests.service.page.support import serving
from tests.service.page.visits import changed_response, new_context, visit

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SHOWN = '#folder-list [role="treeitem"]:visible'


def labels(page):
    return page.page.locator(f"{SHOWN} > .row .label").all_text_contents()


def test_folders_are_a_tree_with_counts(desk):
    """Closed at first, each with the number of its files; a chosen one narrows the results and is opened again."""
    desk.page.click("#folder-open")
    desk.page.wait_for_selector(SHOWN)
    assert desk.page.locator("#folder-open").get_attribute("aria-expanded") == "true"
    assert labels(desk)[:2] == ["All", "albums"]
    node = desk.page.locator("[data-value='albums']")
    assert node.get_attribute("aria-label") == "albums, 64"
    desk.changing(lambda: desk.page.locator(f"[data-value='{ALBUMS[3]}']").click())
    assert len(desk.names()) == 4
    assert desk.text("#folder-shown") == ALBUMS[3]
    assert desk.focused() == "folder-open"
    desk.page.click("#folder-open")
    assert desk.page.locator(f"[data-value='{ALBUMS[3]}']").get_attribute("aria-selected") == "true"
    desk.changing(lambda: desk.page.locator("#folder-list").get_by_text("All", exact=True).click())
    assert len(desk.names()) == 48


def test_folder_is_found_by_its_name(desk):
    """A long list has a search field, which shows whole paths."""
    desk.page.click("#folder-open")
    desk.page.wait_for_selector("#folder-list input:focus")
    desk.page.keyboard.type("GARD")
    assert labels(desk) == [album for album in ALBUMS if "garden" in album]
    desk.page.keyboard.press("ArrowDown")
    desk.page.keyboard.press("ArrowDown")
    desk.changing(lambda: desk.page.keyboard.press("Enter"))
    assert desk.text("#folder-shown") == ALBUMS[6]
    assert desk.focused() == "folder-open"


def test_folder_tree_by_keyboard(desk):
    """Arrows open, close and move, Home and End jump, Enter chooses, Escape returns to the button."""
    keys = desk.page.keyboard
    desk.page.focus("#folder-open")
    keys.press("Enter")
    desk.page.wait_for_selector("#folder-list input:focus")
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    here = "() => document.activeElement.dataset.value"
    assert desk.page.evaluate(here) == "albums"
    opened = "() => document.activeElement.getAttribute('aria-expanded')"
    before = desk.page.evaluate(opened)
    keys.press("ArrowLeft" if before == "true" else "ArrowRight")
    assert desk.page.evaluate(opened) != before
    if before == "true":
        keys.press("ArrowRight")
    keys.press("ArrowRight")
    assert desk.page.evaluate(here) == ALBUMS[0]
    keys.press("ArrowDown")
    keys.press("ArrowLeft")
    assert desk.page.evaluate(here) == "albums"
    keys.press("End")
    assert desk.page.evaluate(here) == ALBUMS[-1]
    keys.press("Home")
    keys.press("ArrowUp")
    assert desk.page.evaluate("() => document.activeElement.type") == "search"
    keys.press("Escape")
    desk.page.wait_for_selector("#folder-list:popover-open", state="hidden")
    assert desk.focused() == "folder-open"


def test_folder_tree_on_a_phone(entering):
    """The panel stays on the screen, and a tap on the arrow opens a folder without choosing it."""
    page = entering(**PHONE)
    page.page.tap("#folder-open")
    page.page.wait_for_selector(SHOWN)
    box = page.box("#folder-list")
    assert box["x"] >= 0
    assert box["right"] <= 390
    assert box["bottom"] <= 844
    before = page.page.locator("[data-value='albums']").get_attribute("aria-expanded")
    page.page.locator("[data-value='albums'] > .row .twist").tap()
    assert page.page.locator("[data-value='albums']").get_attribute("aria-expanded") != before
    assert page.page.input_value("#folder") == ""


def test_places_and_cameras_are_filters(desk):
    """A list with counts each, kept in the address; both narrow the results."""
    desk.page.click("#place-open")
    desk.changing(lambda: desk.page.get_by_role("treeitem", name="Quito, Pichincha, Ecuador, 16").click())
    assert len(desk.names()) == 16
    desk.page.click("#camera-open")
    desk.changing(lambda: desk.page.get_by_role("treeitem", name="Google Pixel 9, 32").click())
    assert len(desk.names()) == 8
    assert desk.page.url.endswith("?place=Quito%2C+Pichincha%2C+Ecuador&camera=Google+Pixel+9")
    desk.reload()
    assert desk.text("#camera-shown") == "Google Pixel 9"
    assert len(desk.names()) == 8
    desk.page.click("#place-open")
    desk.changing(lambda: desk.page.locator("#place-list").get_by_text("All", exact=True).click())
    assert len(desk.names()) == 32
    assert not desk.page.locator("#place-shown").is_visible()


def test_lists_without_entries_are_not_offered(desk):
    """Where no file has a place, or the server does not know them."""
    changed_response(desk.page, "collection", lambda found: {**found, "places": [], "cameras": [], "folders": []})
    desk.reload()
    for name in ("place", "camera", "folder"):
        assert not desk.page.locator(f"#{name}-open").is_visible()


def test_another_collection_is_chosen(browser, library, index, desk):
    """Of a server with several: its own files, filters and grades, and an address that leads there."""
    assert not desk.page.locator("#collections").is_visible()
    with serving(library.index, index) as served, new_context(browser) as context:
        page = visit(context, served.address, "?q=red&good=1")
        page.page.wait_for_selector("#collections:not([hidden])")
        page.page.wait_for_load_state("networkidle")
        chooser = page.page.get_by_role("combobox", name="Collection")
        assert chooser.locator("option").all_text_contents() == ["library.vse (67)", "scenes.vse (63)"]
        page.page.locator("[data-index='0']").click(modifiers=["Control"])
        chooser.select_option("scenes.vse")
        page.page.wait_for_function("() => document.title.startsWith('scenes')")
        page.page.wait_for_load_state("networkidle")
        assert page.page.url.endswith("?collection=scenes.vse")
        assert page.page.input_value("#words") == ""
        assert not page.page.locator("#selection").is_visible()
        assert not page.page.locator("#good").is_visible()  # its model has no relevance
        page.open_named("red", "plainred.png")
        page.page.wait_for_selector("#viewer-facts dd")
        page.settle()
        assert page.page.locator("#media img").get_attribute("src").startswith("api/v1/collections/scenes.vse/items/")
        page.page.keyboard.press("Escape")
        page.closed("#viewer")
        assert page.page.url.endswith("?collection=scenes.vse&q=red")
        page.page.reload()
        page.page.wait_for_function("() => document.getElementById('collection').value === 'scenes.vse'")
        page.changing(lambda: page.page.locator(".mark").click())
        page.page.wait_for_function("() => document.title.startsWith('library')")
        assert page.messages == []
