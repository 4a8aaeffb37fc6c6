"""What can be done with the file of the open result: open, download, copy its path, show it in its folder."""

from __future__ import annotations

import pytest
from tests.service.page.library import ALBUMS
from tests.service.page.visits import changed_response

NAME = "strong-03.jpg"
COPIED = """() => {
  window.copied = [];
  navigator.clipboard.writeText = async (text) => window.copied.push(text);
}"""


def test_file_is_opened_and_downloaded(desk, library):
    """By a link in a new tab and a link that saves it under its name; the keys O and D do the same."""
    desk.open_named("red", NAME)
    content = (library.photos / ALBUMS[3] / NAME).read_bytes()
    link = desk.page.locator("#file-open")
    assert link.get_attribute("rel") == "noopener"
    for act in (link.click, lambda: desk.page.keyboard.press("o")):
        with desk.page.context.expect_page() as opened:
            act()
        assert desk.page.request.get(opened.value.url).body() == content
        opened.value.close()
    for act in (desk.page.locator("#file-download").click, lambda: desk.page.keyboard.press("d")):
        with desk.page.expect_download() as saved:
            act()
        assert saved.value.suggested_filename == NAME
        assert saved.value.path().read_bytes() == content


def test_path_is_copied(desk, library):
    """The whole path on the machine of the service, by button and key; without a clipboard, by selecting."""
    desk.page.evaluate(COPIED)
    desk.open_named("red", NAME)
    desk.page.click("#file-copy")
    desk.page.wait_for_function("() => document.getElementById('file-said').textContent === 'Path copied'")
    desk.page.keyboard.press("c")
    desk.page.wait_for_function("() => window.copied.length === 2")
    path = str(library.photos / ALBUMS[3] / NAME)
    assert desk.page.evaluate("() => window.copied") == [path, path]
    assert path in desk.text("#viewer-facts")
    desk.page.evaluate("""() => {
      navigator.clipboard.writeText = async () => { throw new Error("no permission"); };
      document.execCommand = () => {
        window.selected = document.activeElement.value;
        return true;
      };
    }""")
    desk.page.click("#file-copy")
    desk.page.wait_for_function("() => window.selected !== undefined")
    assert desk.page.evaluate("() => window.selected") == path
    assert desk.focused() == "file-copy"


def test_file_is_shown_in_its_folder(desk, library):
    """The file manager of the machine opens the folder; the page says so."""
    desk.open_named("red", NAME)
    desk.page.get_by_role("button", name="Show in folder").click()
    desk.page.wait_for_function("() => document.getElementById('file-said').textContent === 'Shown in its folder'")
    assert library.shown.read_text().strip() == str(library.photos / ALBUMS[3])
    desk.page.keyboard.press("ArrowRight")
    assert desk.text("#file-said") == ""


@pytest.mark.parametrize("offered", [False, True])
def test_other_machines_get_no_files(desk, offered):
    """Where the server gives no originals, roots or file manager, nothing of that is offered."""
    of = {"original": offered, "roots": offered, "reveal": False, "lists": True, "archives": offered, "max_export": 9}
    changed_response(desk.page, "collection", lambda found: {**found, "original_files": of})
    desk.reload()
    desk.open_named("red", NAME)
    assert desk.page.locator("#file-open").is_visible() == offered
    assert desk.page.locator("#file-download").is_visible() == offered
    assert not desk.page.locator("#file-reveal").is_visible()
    desk.page.keyboard.press("Escape")
    desk.closed("#viewer")
    desk.page.click("#select")
    assert desk.page.locator("#selection-zip").is_visible() == offered
    assert desk.page.locator("#selection-csv").is_visible()


def test_original_replaces_the_preview_when_zooming(desk):
    """A large image is loaded in full as soon as it is enlarged, and only then."""
    desk.open_named("red", "large.png")
    desk.settle()
    source = "() => document.querySelector('#media img').getAttribute('src')"
    assert desk.page.evaluate(source).endswith("/preview")
    desk.page.keyboard.press("+")
    desk.page.wait_for_function(f"() => ({source})().endsWith('/original')")
    desk.page.keyboard.press("Escape")
    desk.closed("#viewer")
    desk.open_named("red", NAME)
    desk.page.keyboard.press("+")
    desk.page.wait_for_load_state("networkidle")
    assert desk.page.evaluate(source).endswith("/preview")


def test_details_lead_to_further_searches(desk):
    """A keyword searches for itself, a place and a camera filter; text in the image can be unfolded."""
    changed_response(desk.page, "items/*", lambda item: {**item, "ocr": "NO PARKING"})
    desk.open_named("red", NAME)
    desk.page.wait_for_selector("#viewer-keywords button")
    assert desk.page.locator("#viewer-captions blockquote").all_text_contents() == ["Aunt Mathilda"]
    assert "-0.2167, -78.5000" in desk.text("#viewer-facts")
    desk.page.locator("#viewer-ocr summary").click()
    assert desk.text("#viewer-ocr-text") == "NO PARKING"
    desk.changing(lambda: desk.page.get_by_role("button", name="Only place Quito, Pichincha, Ecuador").click())
    desk.closed("#viewer")
    assert desk.text("#place-shown") == "Quito, Pichincha, Ecuador"
    assert len(desk.names()) == 12  # four albums, without the unlikely ones
    desk.page.locator(f".tile button[aria-label^='{NAME}']").first.click()
    desk.changing(lambda: desk.page.get_by_role("button", name="Search for first snow").click())
    desk.closed("#viewer")
    assert desk.page.input_value("#words") == '"first snow"'
    assert {("q", "first snow"), ("words", "first snow")} <= set(desk.asked()[-1])
