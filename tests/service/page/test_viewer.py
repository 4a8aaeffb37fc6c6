"""The viewer: image, video, evidence and duplicates."""

from __future__ import annotations

import pytest
from tests.service.page.support import SHAPES

# The mean colours of the left and the right part of the heatmap.
PAINTED = """() => {
  const canvas = document.querySelector("#media canvas");
  const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const sides = [[0, 0, 0, 0], [0, 0, 0, 0]];
  data.forEach((value, at) => {
    const column = (Math.floor(at / 4) % width) / width;
    if (column < 0.4 || column > 0.6) sides[Number(column > 0.5)][at % 4] += value / (0.4 * (data.length / 4));
  });
  return sides;
}"""


def test_viewer_shows_details(page, served):
    """Name, folder, confidence, score, size, date and captions, as the API returns them."""
    page.open_named("red", "scene-19.jpg")
    found = next(
        each for each in served.get("search", ("q", "red"), ("k", 48))["results"] if each["name"] == "scene-19.jpg"
    )
    item = served.get(f"items/{found['id']}")
    page.page.wait_for_selector("#viewer-captions blockquote")
    assert page.text("#viewer-name") == "scene-19.jpg"
    said = f"confidence {found['confidence'] * 100:.0f}% · score {found['score']:.3f}"
    assert page.text("#viewer-meter .numbers") == said
    assert item["folder"] in page.text("#viewer-facts")
    assert "128 × 128" in page.text("#viewer-facts")
    assert "20 Aug 2023" in page.text("#viewer-facts")
    assert page.page.locator("#viewer-captions blockquote").all_text_contents() == item["captions"]
    assert page.page.locator("#viewer").get_attribute("aria-labelledby") == "viewer-name"
    assert page.page.locator("#media img").get_attribute("alt") == "scene-19.jpg"


def test_image_fits_the_viewer(page):
    """With its aspect ratio, as large as fits, at most three times its size."""
    for colour, (width, height) in SHAPES.items():
        page.open_named(colour, f"plain{colour}.png")
        page.settle()
        stage, shown = page.box("#media"), page.box("#media img")
        scale = min(stage["width"] / width, stage["height"] / height, 3)
        assert (shown["width"], shown["height"]) == pytest.approx((width * scale, height * scale), abs=1.5)
        assert shown["x"] + shown["width"] / 2 == pytest.approx(stage["x"] + stage["width"] / 2, abs=1)
        assert shown["y"] + shown["height"] / 2 == pytest.approx(stage["y"] + stage["height"] / 2, abs=1)
        page.page.keyboard.press("Escape")
        page.closed("#viewer")


def test_evidence_of_an_image(page, served):
    """Red where the wanted colour is, over the grey image; the next result has its own; a key press hides it."""
    page.open_named("red", "halves.png")
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#media canvas")
    red, nothing = page.page.evaluate(PAINTED)
    assert red[3] > 100
    assert red[0] > 2 * red[2]
    assert nothing[3] < 10
    assert page.text("#viewer-legend") == "Red areas support the match, blue areas count against it."
    assert page.page.locator("#viewer-why").get_attribute("aria-pressed") == "true"
    grey = "() => getComputedStyle(document.querySelector('#media img')).filter"
    assert page.page.evaluate(grey) == "grayscale(1)"
    page.page.keyboard.press("ArrowRight")
    page.page.wait_for_function("() => document.getElementById('viewer-name').textContent.startsWith('scene')")
    page.page.wait_for_selector("#media canvas")
    assert page.page.locator("#media canvas").count() == 1
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#media canvas", state="detached")
    assert page.page.evaluate(grey) == "none"
    assert not page.page.locator("#viewer-legend").is_visible()


def test_evidence_against_a_match(page):
    """The heatmap is blue where the excluded colour is."""
    page.open_named("green -red", "halves.png")
    page.page.click("#viewer-why")
    page.page.wait_for_selector("#media canvas")
    against, wanted = page.page.evaluate(PAINTED)
    assert against[2] > 2 * against[0]
    assert wanted[0] > 2 * wanted[2]
    assert min(against[3], wanted[3]) > 60


def test_evidence_covers_what_the_model_saw(page, served):
    """Exactly that part of the image, for any aspect ratio, even after the window is resized."""
    for colour in ("red", "green", "blue"):
        page.open_named(colour, f"plain{colour}.png")
        if colour == "red":  # the evidence stays on for the next results
            page.page.keyboard.press("e")
        page.page.wait_for_selector("#media canvas")
        found = served.get("search", ("q", colour))
        chosen = next(each for each in found["results"] if each["name"] == f"plain{colour}.png")
        seen = served.get(f"items/{chosen['id']}/evidence", ("query", found["query_id"]))["seen"]
        assert min(seen["width"], seen["height"]) < 1
        for size in ((390, 844), (1024, 680)):
            page.page.set_viewport_size({"width": size[0], "height": size[1]})
            image, heatmap = page.box("#media img"), page.box("#media canvas")
            expected = (
                image["x"] + seen["left"] * image["width"],
                image["y"] + seen["top"] * image["height"],
                seen["width"] * image["width"],
                seen["height"] * image["height"],
            )
            assert (heatmap["x"], heatmap["y"], heatmap["width"], heatmap["height"]) == pytest.approx(expected, abs=1)
        page.page.keyboard.press("Escape")
        page.closed("#viewer")


def test_repeated_key_presses_draw_one_heatmap(page):
    """However often E is pressed before the first response."""
    page.open_named("red", "plainred.png")
    for _ in range(5):
        page.page.keyboard.press("e")
    page.page.wait_for_selector("#media canvas")
    page.page.wait_for_load_state("networkidle")
    assert page.page.locator("#media canvas").count() == 1


@pytest.mark.parametrize(("colour", "name", "start"), [("green", "lights.mp4", 4.0), ("purple", "sunset.webm", 4.0)])
def test_video_plays_from_the_found_moment(page, colour, name, start):
    """The player is at the start of the moment, and the evidence bars jump to their frames."""
    page.open_named(colour, name)
    video = page.page.locator("#media video")
    page.page.wait_for_function("() => document.querySelector('#media video').readyState >= 1")
    page.page.wait_for_function(f"() => Math.abs(document.querySelector('#media video').currentTime - {start}) < 0.05")
    assert video.get_attribute("src").endswith(f"#t={start:g},{start + 4:g}")
    assert "0:04 – 0:08" in page.text("#viewer-facts")
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#viewer-timeline button")
    bars = page.page.locator("#viewer-timeline button")
    assert bars.count() > 2
    assert "Click a bar to jump there" in page.text("#viewer-legend")
    bars.last.click()
    at = video.evaluate("each => each.currentTime")
    assert start + 1.5 < at <= start + 4
    assert bars.last.get_attribute("aria-label").startswith(f"Jump to 0:0{int(at)}, which contributes ")
    video.evaluate("each => { each.muted = true; return each.play(); }")
    page.page.keyboard.press("Escape")
    page.closed("#viewer")
    assert page.page.locator("video").count() == 0


def test_negative_bars_point_down(page):
    """Positive contributions go up from the line, negative ones down."""
    page.changing(page.page.locator(".segments").get_by_text("Videos").click)
    page.open_named("red -yellow -purple", "sunset.webm")  # neither of its colours is wanted
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#viewer-timeline .against")
    low = page.page.locator("#viewer-timeline .against").first.bounding_box()
    row = page.box("#viewer-timeline")
    assert low["y"] == pytest.approx(row["y"], abs=1)  # no positive bar, so the line is at the top
    assert low["height"] > row["height"] / 2


def test_more_like_this_searches_by_item(page):
    """Similar results come first, a chip shows the item, and a click on the chip removes it."""
    page.open_named("red", "plainred.png")
    page.changing(lambda: page.page.keyboard.press("m"))
    assert not page.page.locator("#viewer").is_visible()
    assert page.names()[:2] == ["lights.mp4", "halves.png"]
    assert page.page.input_value("#words") == ""
    assert "like=" in page.page.url
    assert page.focused() == "0"
    chip = page.page.locator(".chip")
    assert chip.locator("img").get_attribute("src").startswith("/api/v1/items/")
    page.page.reload()
    page.page.wait_for_selector(".chip")
    page.page.wait_for_selector(".tile")
    assert page.names()[0] == "lights.mp4"
    page.changing(chip.click)
    assert chip.count() == 0
    assert page.focused() == "words"
    assert page.text("#status").endswith("newest first")


def test_duplicates_in_the_viewer(page, served):
    """Small images show them in place of the result; evidence and "more like this" are then theirs."""
    page.changing(lambda: page.page.check("#group"))
    page.search("pink")
    found = served.get("search", ("q", "pink"), ("k", 48), ("group", "true"))
    best = next(each for each in found["results"] if len(each["group"]) == 2)
    others = [served.get(f"items/{each}") for each in best["group"]]
    page.page.locator(".tile button", has_text="+2 duplicates").first.click()
    page.page.wait_for_selector("#viewer-duplicates button")
    buttons = page.page.locator("#viewer-duplicates button")
    labels = [each.get_attribute("aria-label") for each in buttons.all()]
    assert labels == [f"Show {each['name']}" for each in (best, *others)]
    assert page.text("#viewer-duplicates p") == "2 duplicates"
    buttons.nth(2).click()
    assert page.text("#viewer-name") == others[1]["name"]
    assert page.page.locator("#media img").get_attribute("src") == f"api/v1/items/{others[1]['id']}/preview"
    assert [each.get_attribute("aria-pressed") for each in buttons.all()] == ["false", "false", "true"]
    assert not page.page.locator("#viewer-meter").is_visible()
    with page.page.expect_request(f"**/api/v1/items/{others[1]['id']}/evidence?*"):
        page.page.keyboard.press("e")
    buttons.nth(0).click()
    assert page.text("#viewer-name") == best["name"]
    assert page.page.locator("#viewer-meter").is_visible()
    buttons.nth(1).click()
    page.changing(lambda: page.page.keyboard.press("m"))
    assert dict(page.asked()[-1])["like"] == str(others[0]["id"])


def test_previous_and_next(page):
    """They stop at the ends and keep the focus; closing focuses the last viewed tile."""
    page.open_first("red")
    assert page.page.locator("#viewer-previous").get_attribute("aria-disabled") == "true"
    page.page.locator("#viewer-next").click()
    page.page.locator("#viewer-next").click()
    assert page.text("#viewer-name") == page.names()[2]
    assert page.text("#viewer-place") == "3 of 48"
    assert page.focused() == "viewer-next"
    page.page.keyboard.press("Escape")
    page.closed("#viewer")
    assert page.focused() == "2"


def test_viewer_closes_by_outside_click(page):
    """A click inside does not close it."""
    page.open_first("red")
    page.page.locator(".facts h2").click()
    assert page.page.locator("#viewer").is_visible()
    page.page.mouse.click(4, 4)
    page.closed("#viewer")
