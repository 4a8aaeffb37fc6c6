"""The dialog about the collection and its model."""

from __future__ import annotations

import pytest
from tests.service.page.colour_model import write_colour_model
from tests.service.page.support import CLIPS, SCENES, SHAPES, make_plain, serving, vse
from tests.service.page.visits import new_context, visit


@pytest.fixture
def about(page):
    page.page.click("#about-open")
    page.page.wait_for_selector("#curves figure")
    return page


def test_about_shows_counts_dates_and_model(about):
    """Counts, dates and model of the collection."""
    names, values = (about.page.locator(f"#about-facts {tag}").all_text_contents() for tag in ("dt", "dd"))
    facts = dict(zip(names, values, strict=True))
    assert facts["Name"] == "scenes.vse"
    assert facts["Images"] == str(SCENES + len(SHAPES) + 4)
    assert facts["Videos"] == str(len(CLIPS))
    assert facts["Captions"] == str(2 * SCENES)
    assert facts["Model"] == "colours"
    assert facts["Dimensions"] == "10"
    assert facts["Taken"].endswith("2024")


def test_about_shows_pooling_curves(about):
    """One line per set size, the largest in front; the caption says which pooling it resembles."""
    images, sentences = about.page.locator("#curves figure").all()
    lines = images.locator("polyline")
    assert lines.count() == 2
    assert [line.get_attribute("class") for line in lines.all()] == ["line faint", "line"]
    points = [pair.split(",") for pair in lines.last.get_attribute("points").split()]
    assert len(points) == 36
    heights = [float(y) for _, y in points]
    assert heights == sorted(heights)  # the weights fall, and y points down
    said = images.locator("figcaption").inner_text()
    assert said.startswith("Images: weights of 36 cells, largest value first; closest to ")
    assert " pooling, similarity 0." in said
    assert said.endswith("fainter: 9 cells.")
    assert images.locator("svg").get_attribute("aria-label") == said
    assert sentences.locator("svg").count() == 0
    assert sentences.inner_text() == "Captions, pooled by gem: a generalized mean: no curve by rank."


def test_about_closes_by_escape_and_outside_click(about):
    """A click on its padding does not close it."""
    box = about.box("#about")
    about.page.mouse.click(box["x"] + 4, box["y"] + box["height"] / 2)
    assert about.page.locator("#about").is_visible()
    about.page.mouse.click(10, 400)
    about.closed("#about")
    assert about.focused() == "about-open"
    about.page.keyboard.press("Enter")
    about.page.wait_for_selector("#about[open]")
    about.page.keyboard.press("Escape")
    about.closed("#about")


@pytest.mark.slow
def test_empty_collection_shows_how_to_index(browser, tmp_path):
    """With and without a query, until files are indexed."""
    (tmp_path / "photos").mkdir()
    model = write_colour_model(tmp_path / "colours")
    index = ("index", tmp_path / "photos", "--into", tmp_path / "empty.vse", "--model", model)
    vse(*index)
    with serving(tmp_path / "empty.vse") as served, new_context(browser) as context:
        page = visit(context, served.address)
        page.page.wait_for_function("() => document.title === 'empty.vse · vse'")
        for words in ("", "red"):
            if words:
                page.search(words)
            assert "This collection is empty" in page.text("#results")
            assert "vse index FOLDER --into NAME" in page.text("#results")
        make_plain(tmp_path / "photos", "red")
        vse(*index)
        page.search("blue")
        assert page.names() == ["plainred.png"]
        page.page.wait_for_function("() => document.getElementById('about-facts').textContent.includes('Images1')")
        page.changing(lambda: page.page.locator(".segments").get_by_text("Videos").click())
        assert "The filter “videos only” leaves nothing. Without it there is 1 result." in page.text("#results")
        assert page.messages == []
