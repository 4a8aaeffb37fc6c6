"""One result, large: the picture, the clip, the evidence, and others like it."""

from __future__ import annotations

import pytest
from tests.service.page.support import SHAPES

# The mean colours of the left and of the right part of the veil, as they are painted.
PAINTED = """() => {
  const canvas = document.querySelector("#stage canvas");
  const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const sides = [[0, 0, 0, 0], [0, 0, 0, 0]];
  data.forEach((value, at) => {
    const column = (Math.floor(at / 4) % width) / width;
    if (column < 0.4 || column > 0.6) sides[Number(column > 0.5)][at % 4] += value / (0.4 * (data.length / 4));
  });
  return sides;
}"""


def test_what_is_known_of_a_result(page, served):
    """Name, folder, likelihood beside the score, size, date and captions, all as the interface has them."""
    page.open_named("red", "scene-19.jpg")
    found = next(
        each for each in served.get("search", ("q", "red"), ("k", 48))["results"] if each["name"] == "scene-19.jpg"
    )
    item = served.get(f"items/{found['id']}")
    page.page.wait_for_selector("#viewer-captions blockquote")
    assert page.text("#viewer-name") == "scene-19.jpg"
    assert page.text("#viewer-where") == item["folder"]
    said = f"{found['confidence'] * 100:.0f} % likely score {found['score']:.3f}"
    assert page.text("#viewer-meter p:first-child").split() == said.split()
    assert "128 × 128" in page.text("#viewer-facts")
    assert "20 Aug 2023" in page.text("#viewer-facts")
    assert page.page.locator("#viewer-captions blockquote").all_text_contents() == item["captions"]
    assert page.page.locator("#viewer").get_attribute("aria-labelledby") == "viewer-name"
    assert page.page.locator("#stage img").get_attribute("alt") == "scene-19.jpg"


def test_a_picture_fits_its_stage(page):
    """In its own shape, as large as the stage, but no more than three times its size."""
    for colour, (width, height) in SHAPES.items():
        page.open_named(colour, f"plain {colour}.png")
        page.settle()
        stage, shown = page.box("#stage"), page.box("#stage img")
        scale = min(stage["width"] / width, stage["height"] / height, 3)
        assert (shown["width"], shown["height"]) == pytest.approx((width * scale, height * scale), abs=1.5)
        assert shown["x"] + shown["width"] / 2 == pytest.approx(stage["x"] + stage["width"] / 2, abs=1)
        assert shown["y"] + shown["height"] / 2 == pytest.approx(stage["y"] + stage["height"] / 2, abs=1)
        page.page.keyboard.press("Escape")
        page.closed("#viewer")


def test_evidence_of_a_picture(page, served):
    """Red where the wanted colour is, over the grey picture; the next result has its own; a press takes it away."""
    page.open_named("red", "red left green right.png")
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#stage canvas")
    red, nothing = page.page.evaluate(PAINTED)
    assert red[3] > 100
    assert red[0] > 2 * red[2]
    assert nothing[3] < 10
    assert page.text("#viewer-legend") == "Red parts speak for the search, blue ones against it."
    assert page.page.locator("#viewer-why").get_attribute("aria-pressed") == "true"
    grey = "() => getComputedStyle(document.querySelector('#stage img')).filter"
    assert page.page.evaluate(grey) == "grayscale(1)"
    page.page.keyboard.press("ArrowRight")
    page.page.wait_for_function("() => document.getElementById('viewer-name').textContent.startsWith('scene')")
    page.page.wait_for_selector("#stage canvas")
    assert page.page.locator("#stage canvas").count() == 1
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#stage canvas", state="detached")
    assert page.page.evaluate(grey) == "none"
    assert not page.page.locator("#viewer-legend").is_visible()


def test_evidence_against(page):
    """Where that lies which is left out, the veil is blue."""
    page.open_named("green -red", "red left green right.png")
    page.page.click("#viewer-why")
    page.page.wait_for_selector("#stage canvas")
    against, wanted = page.page.evaluate(PAINTED)
    assert against[2] > 2 * against[0]
    assert wanted[0] > 2 * wanted[2]
    assert min(against[3], wanted[3]) > 60


def test_evidence_lies_over_what_the_model_saw(page, served):
    """Exactly over that part of the picture, whatever its shape, also after the window has changed."""
    for colour in ("red", "green", "blue"):
        page.open_named(colour, f"plain {colour}.png")
        if colour == "red":  # the next results are explained without being asked
            page.page.keyboard.press("e")
        page.page.wait_for_selector("#stage canvas")
        found = served.get("search", ("q", colour))
        chosen = next(each for each in found["results"] if each["name"] == f"plain {colour}.png")
        seen = served.get(f"items/{chosen['id']}/evidence", ("query", found["query_id"]))["seen"]
        assert min(seen["width"], seen["height"]) < 1
        for size in ((390, 844), (1024, 680)):
            page.page.set_viewport_size({"width": size[0], "height": size[1]})
            picture, veil = page.box("#stage img"), page.box("#stage canvas")
            expected = (
                picture["x"] + seen["left"] * picture["width"],
                picture["y"] + seen["top"] * picture["height"],
                seen["width"] * picture["width"],
                seen["height"] * picture["height"],
            )
            assert (veil["x"], veil["y"], veil["width"], veil["height"]) == pytest.approx(expected, abs=1)
        page.page.keyboard.press("Escape")
        page.closed("#viewer")


def test_pressing_quickly_draws_one_veil(page):
    """However often it is asked for before the first answer is there."""
    page.open_named("red", "plain red.png")
    for _ in range(5):
        page.page.keyboard.press("e")
    page.page.wait_for_selector("#stage canvas")
    page.page.wait_for_load_state("networkidle")
    assert page.page.locator("#stage canvas").count() == 1


@pytest.mark.parametrize(("colour", "name", "start"), [("green", "lights.mp4", 4.0), ("purple", "sunset.webm", 4.0)])
def test_a_moment_plays_from_its_start(page, colour, name, start):
    """The player stands at the moment that was found, and the bars of the evidence lead to their frames."""
    page.open_named(colour, name)
    video = page.page.locator("#stage video")
    page.page.wait_for_function("() => document.querySelector('#stage video').readyState >= 1")
    page.page.wait_for_function(f"() => Math.abs(document.querySelector('#stage video').currentTime - {start}) < 0.05")
    assert video.get_attribute("src").endswith(f"#t={start:g},{start + 4:g}")
    assert page.text("#viewer-facts dd:last-child") == "0:04 – 0:08"
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#viewer-timeline button")
    bars = page.page.locator("#viewer-timeline button")
    assert bars.count() > 2
    assert "Press one to go there" in page.text("#viewer-legend")
    bars.last.click()
    at = video.evaluate("each => each.currentTime")
    assert start + 1.5 < at <= start + 4
    assert bars.last.get_attribute("aria-label").startswith(f"Go to 0:0{int(at)}, which adds ")
    video.evaluate("each => { each.muted = true; return each.play(); }")
    page.page.keyboard.press("Escape")
    page.closed("#viewer")
    assert page.page.locator("video").count() == 0


def test_bars_against_hang_below_the_line(page):
    """What speaks for the search stands on the line, what speaks against it hangs below."""
    page.changing(page.page.locator(".segments").get_by_text("Clips").click)
    page.search("yellow -purple")
    page.page.locator(".tile button", has_text="0:04 – 0:08").filter(has_text="sunset").click()
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#viewer-timeline .against")
    low = page.page.locator("#viewer-timeline .against").first.bounding_box()
    row = page.box("#viewer-timeline")
    assert low["y"] == pytest.approx(row["y"], abs=1)  # nothing speaks for it, so the line is at the top
    assert low["height"] > row["height"] / 2


def test_more_like_this(page):
    """A result becomes the question: others like it come first, a chip shows it, and the chip takes it away."""
    page.open_named("red", "plain red.png")
    page.changing(lambda: page.page.keyboard.press("m"))
    assert not page.page.locator("#viewer").is_visible()
    assert page.names()[:2] == ["lights.mp4", "red left green right.png"]
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
    assert page.text("#status") == "Newest first"


def test_those_that_look_alike(page, served):
    """Small pictures show them in place of the one that stands for them; evidence and likeness are then theirs."""
    page.changing(lambda: page.page.check("#group"))
    page.search("pink")
    found = served.get("search", ("q", "pink"), ("k", 48), ("group", "true"))
    best = next(each for each in found["results"] if len(each["group"]) == 2)
    others = [served.get(f"items/{each}") for each in best["group"]]
    page.page.locator(".tile button", has_text="+2 alike").first.click()
    page.page.wait_for_selector("#viewer-alike button")
    buttons = page.page.locator("#viewer-alike button")
    labels = [each.get_attribute("aria-label") for each in buttons.all()]
    assert labels == [f"Show {each['name']}" for each in (best, *others)]
    assert page.text("#viewer-alike p") == "2 alike"
    buttons.nth(2).click()
    assert page.text("#viewer-name") == others[1]["name"]
    assert page.page.locator("#stage img").get_attribute("src") == f"api/v1/items/{others[1]['id']}/preview"
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
    """They end at the ends, keep the focus, and closing leads to the picture that was seen last."""
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


def test_the_viewer_closes_beside_it(page):
    """A click on the dark around it closes, one inside does not."""
    page.open_first("red")
    page.page.locator(".facts h2").click()
    assert page.page.locator("#viewer").is_visible()
    page.page.mouse.click(4, 4)
    page.closed("#viewer")
