"""Words for a match on tiles, numbers in the viewer, the cut-offs, and what the page says when nothing is left."""

from __future__ import annotations

import pytest
from tests.service.page.library import CLIP, GONE
from tests.service.page.visits import changed_response

GRADES = {"strong": 19, "good": 16, "weak": 16}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def words(page):
    """The word on each tile, in order."""
    return page.page.locator(".match").all_inner_texts()


def title(page):
    return page.page.locator(".empty h2").inner_text()


def test_tiles_say_words_and_the_viewer_says_numbers(desk):
    """Strong, good and weak on tiles and in their names, below two headings; percentages only in the open result."""
    desk.search("red")
    desk.page.wait_for_function("() => document.querySelectorAll('.heading').length === 2")
    assert desk.page.locator(".heading").all_text_contents() == ["Good matches", "Weaker matches"]
    assert words(desk) == ["strong"] * GRADES["strong"] + ["good"] * GRADES["good"] + ["weak"] * (48 - 35)
    assert "%" not in desk.page.locator("body").inner_text()
    sections = desk.page.locator(".part .grid")
    assert sections.nth(0).locator(".match", has_text="weak").count() == 0
    assert sections.nth(1).locator(".match", has_text="good").count() == 0
    assert "strong match" in desk.page.locator("[data-index='2']").get_attribute("aria-label")
    desk.page.locator("[data-index='3']").click()
    desk.page.wait_for_selector("#viewer[open]")
    assert desk.text("#viewer-meter p:first-child").split("\n")[-1].endswith("strong match")
    assert "%" in desk.text("#viewer-meter strong")
    assert "score 0." in desk.text("#viewer-meter .numbers")


def test_only_good_matches(desk):
    """The switch hides the weak ones, stays in the address, and offers them when it leaves nothing."""
    desk.search("red")
    desk.changing(lambda: desk.page.check("#good"))
    assert set(words(desk)) == {"strong", "good"}
    assert len(words(desk)) == GRADES["strong"] + GRADES["good"]
    assert desk.page.url.endswith("?q=red&good=1")
    desk.search("black")
    assert title(desk) == "No good matches"
    desk.changing(lambda: desk.page.get_by_role("button", name="Show weaker matches").click())
    assert not desk.page.is_checked("#good")
    assert desk.focused() == "words"


def test_nothing_here_matches(desk):
    """An absent thing has no results; the closest ones are shown on request, until something else is typed."""
    desk.search("black")
    assert title(desk) == "Nothing here matches"
    assert "“black”" in desk.text(".empty")
    assert desk.page.locator(".tile").count() == 0
    desk.changing(lambda: desk.page.get_by_role("button", name="Show the closest anyway").click())
    assert set(words(desk)) == {"unlikely"}
    assert desk.text("#remark") == "No good match. The closest results come first."
    assert desk.page.locator(".heading").all_text_contents() == ["Weaker matches"]
    desk.search("pink")
    assert title(desk) == "Nothing here matches"


def test_hidden_rest_can_be_shown(desk):
    """Below the last result the page says that others are hidden."""
    desk.search('red folder:"albums/03 snow"')
    desk.page.wait_for_selector("#rest:not([hidden])")
    assert words(desk) == ["strong", "good", "weak"]
    desk.changing(lambda: desk.page.get_by_role("button", name="Show them").click())
    assert words(desk) == ["strong", "good", "weak", "unlikely"]
    assert not desk.page.locator("#rest").is_visible()


@pytest.mark.parametrize(
    ("typed", "said", "choice", "left"),
    [
        ("red after:2031", "The filter after “2031” leaves nothing. Without it there are", "Drop this filter", "red"),
        ("red type:video after:2031", "The filter after “2031” leaves nothing.", "Drop this filter", "red type:video"),
        ("type:video after:2031", "The filters together leave nothing.", "Drop all filters", ""),
        ("before:1990", "The filter before “1990” leaves nothing.", "Drop this filter", ""),
    ],
)
def test_condition_that_leaves_nothing_is_named(desk, typed, said, choice, left):
    """With a query or without, and dropped by a button."""
    desk.search(typed)
    desk.page.wait_for_selector(".empty")
    assert said in desk.text(".empty")
    desk.changing(lambda: desk.page.get_by_role("button", name=choice).click())
    assert desk.page.input_value("#words") == left
    assert desk.page.locator(".tile").count() > 0


def test_exclusion_that_leaves_nothing_is_dropped(desk):
    """Both the words of the box and those of the field."""
    desk.page.fill("#exclude", "green")
    reason = {"condition": "exclude", "without": 3}
    changed_response(desk.page, "search", lambda found: {**found, "results": [], "more": False, "empty_reason": reason})
    desk.changing(lambda: desk.page.fill("#words", "red -green"))
    desk.page.wait_for_selector(".empty")
    assert "3 results would fit, but what you exclude is in each of them." in desk.text(".empty")
    desk.page.unroute_all()
    desk.changing(lambda: desk.page.get_by_role("button", name="Exclude nothing").click())
    assert desk.page.input_value("#words") == "red"
    assert desk.page.input_value("#exclude") == ""


def test_unknown_folder_is_an_error_that_can_be_dropped(desk):
    """The message of the server, and a button for the filter."""
    desk.changing(lambda: desk.page.fill("#words", "red folder:nowhere"))
    desk.page.wait_for_selector("#notice:not([hidden])")
    assert "nowhere" in desk.text("#notice")
    desk.changing(lambda: desk.page.get_by_role("button", name="Drop the filter folder “nowhere”").click())
    assert desk.page.locator(".tile").count() == 48
    assert [each for each in desk.messages if "422" not in each] == []
    desk.messages.clear()


def test_one_tile_per_video(desk):
    """With its best moment, and the number of moments that match."""
    desk.search("red")
    tiles = desk.page.locator(f".tile button[aria-label^='{CLIP}']")
    assert tiles.count() == 1
    assert tiles.locator(".badge").all_text_contents() == ["▶ 0:00 – 0:04", "2 moments"]
    assert ", from 0:00 to 0:04, 2 moments, strong match" in tiles.get_attribute("aria-label")
    desk.search("")
    assert desk.page.locator(f".tile button[aria-label='{CLIP}, video'] .badge").all_text_contents() == ["▶"]
    desk.page.locator(f".tile button[aria-label^='{CLIP}']").click()
    desk.page.wait_for_selector("#media video")
    assert "#t=" not in desk.page.locator("#media video").get_attribute("src")


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_missing_file_is_shown_as_missing(entering, options):
    """No broken image in the grid, no black stage in the viewer, and nothing is offered that cannot work."""
    page = entering(**options)
    page.search("red")
    tile = page.page.locator(".tile.missing")
    assert tile.locator("img").count() == 0
    assert "File missing" in tile.inner_text()
    assert GONE in tile.inner_text()
    assert tile.locator("button").get_attribute("aria-label").startswith(f"{GONE}, file missing, strong match")
    tile.locator("button").click()
    page.page.wait_for_selector("#viewer-facts dd")
    assert "This file is missing" in page.text("#media")
    assert GONE in page.text("#media code")
    assert page.page.locator("#media img, #media video").count() == 0
    for offer in ("#file-open", "#file-download", "#file-reveal", "#viewer-why", "#zoom"):
        assert not page.page.locator(offer).is_visible(), offer
    assert page.page.locator("#file-copy").is_visible()
    failed = [each.url for each in page.requests if each.failure]
    assert failed == []


def test_file_that_disappears_while_open(desk):
    """The details are newer than the results."""
    desk.search("red")
    changed_response(desk.page, "items/*", lambda item: {**item, "missing": True})
    desk.page.locator(".tile button[aria-label^='large.png']").click()
    desk.page.wait_for_selector("#media .absent")
    assert not desk.page.locator("#file-open").is_visible()


def test_evidence_outlines_windows(desk):
    """Of a model that weighs windows, the three that contribute most."""
    window = {"left": 0.5, "top": 0.25, "right": 1.0, "bottom": 0.75}
    shares = (0.3, -0.2, 0.1, 0.05)
    boxes = [{**window, "share": share} for share in shares]
    changed_response(desk.page, "items/*/evidence", lambda found: {**found, "boxes": boxes})
    desk.open_named("red", "large.png")
    desk.page.keyboard.press("e")
    desk.page.wait_for_selector("#media .window")
    outlines = desk.page.locator("#media .window")
    assert [each.get_attribute("class") for each in outlines.all()] == ["window for", "window against", "window for"]
    area, outline = desk.box("#media .evidence"), desk.page.locator("#media .window").first.bounding_box()
    assert outline["width"] == pytest.approx(area["width"] / 2, abs=1)
    assert outline["y"] == pytest.approx(area["y"] + area["height"] / 4, abs=1)


def test_images_have_no_relevance_to_images(desk):
    """Their results are ranked, nothing is hidden, and the viewer says why there is no percentage."""
    desk.open_named("red", "large.png")
    desk.changing(lambda: desk.page.keyboard.press("m"))
    assert desk.page.locator(".rank").first.inner_text() == "#1"
    assert desk.page.locator(".match, .heading").count() == 0
    desk.page.locator("[data-index='0']").click()
    desk.page.wait_for_selector("#viewer[open]")
    assert "Results for an image are ranked by their score." in desk.text("#viewer-meter")
