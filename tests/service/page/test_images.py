"""Searching by an uploaded image."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image

from vse.data.scenes.scene import PALETTE

TRANSFER = """({ data, name, type }) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type }));
  return transfer;
}"""

PASTE = """(clipboardData) => {
  const settings = { clipboardData, bubbles: true, cancelable: true };
  document.body.dispatchEvent(new ClipboardEvent("paste", settings));
}"""


def png(colour: str, size=(90, 60)) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, PALETTE[colour]).save(stream, "PNG")
    return stream.getvalue()


def give(page, way: str, content: bytes, name="mine.png", kind="image/png") -> None:
    """Choose a file, drop it, or paste it."""
    if way == "choose":
        page.page.set_input_files("#file", {"name": name, "mimeType": kind, "buffer": content})
        return
    data = {"data": base64.b64encode(content).decode(), "name": name, "type": kind}
    transfer = page.page.evaluate_handle(TRANSFER, data)
    if way == "drop":
        page.page.dispatch_event("body", "dragenter", {"dataTransfer": transfer})
        assert page.page.locator("#drop").is_visible()
        page.page.dispatch_event("body", "drop", {"dataTransfer": transfer})
        assert not page.page.locator("#drop").is_visible()
    else:
        page.page.evaluate(PASTE, transfer)


@pytest.mark.parametrize("way", ["drop", "paste", "choose"])
def test_search_by_image(page, way):
    """Similar ones come first; a chip shows the image, and a click on it removes it."""
    page.changing(lambda: give(page, way, png("green")))
    assert "plaingreen.png" in page.names()[:2]
    chip = page.page.locator(".chip")
    assert chip.locator("img").evaluate("each => each.decode().then(() => each.naturalWidth)") == 90
    page.changing(chip.click)
    assert chip.count() == 0
    assert page.text("#status").endswith("newest first")


def test_same_file_can_be_chosen_twice(page):
    for _ in range(2):
        page.changing(lambda: give(page, "choose", png("blue")))
        assert "plainblue.png" in page.names()[:2]
        page.changing(page.page.locator(".chip").click)


def test_text_and_filters_with_an_image(page):
    """Text is sent with the image; filters and pages use its query id."""
    posts = lambda: [each for each in page.requests if each.method == "POST"]  # noqa: E731
    page.changing(lambda: give(page, "drop", png("green")))
    page.changing(lambda: page.page.locator(".segments").get_by_text("Images").click())
    assert page.names()[0] == "plaingreen.png"
    assert len(posts()) == 1
    assert "query" in dict(page.asked()[-1])
    page.search("red")
    assert page.names()[0] == "halves.png"
    assert len(posts()) == 2


def test_evidence_for_an_image_query(page):
    """It is shown as for text."""
    page.changing(lambda: give(page, "drop", png("red")))
    page.page.locator(".tile button", has_text="halves").click()
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#media canvas")


def test_back_returns_to_an_image_query(page):
    """It is a history entry of its own."""
    page.search("blue")
    page.changing(lambda: give(page, "drop", png("green")))
    page.changing(page.page.locator(".chip").click)
    page.changing(page.page.go_back)
    assert "plaingreen.png" in page.names()[:2]
    assert page.page.locator(".chip").count() == 1
    page.changing(page.page.go_back)
    assert page.page.input_value("#words") == "blue"
    assert page.page.locator(".chip").count() == 0


def test_drop_closes_the_viewer(page):
    page.open_first("red")
    page.changing(lambda: give(page, "drop", png("green")))
    assert not page.page.locator("#viewer").is_visible()


def test_invalid_image_is_reported(page):
    """With the reason, and without the results of another query."""
    give(page, "drop", b"nothing to see", "letter.txt", "text/plain")
    page.page.wait_for_selector("#notice:not([hidden])")
    assert "not an image" in page.text("#notice")
    assert page.names() == []
    assert all("422" in message for message in page.messages)
    page.messages.clear()


def test_large_image_is_scaled_down_before_upload(page):
    """Pixels that no model uses are not sent."""
    stream = io.BytesIO()
    Image.new("RGB", (2000, 1500), PALETTE["blue"]).save(stream, "BMP")
    assert len(stream.getvalue()) > 3_000_000
    with page.page.expect_response("**/api/v1/search") as received:
        page.changing(lambda: give(page, "choose", stream.getvalue(), "large.bmp", "image/bmp"))
    assert "plainblue.png" in page.names()[:2]
    assert 0 < int(received.value.request.all_headers()["content-length"]) < 1_000_000
