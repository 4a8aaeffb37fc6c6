"""What the page tells of the collection and its model."""

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


def test_the_collection(about):
    """Its counts, its dates and its model."""
    names, values = (about.page.locator(f"#about-facts {tag}").all_text_contents() for tag in ("dt", "dd"))
    facts = dict(zip(names, values, strict=True))
    assert facts["Name"] == "scenes.vse"
    assert facts["Photos"] == str(SCENES + len(SHAPES) + 4)
    assert facts["Clips"] == str(len(CLIPS))
    assert facts["Captions"] == str(2 * SCENES)
    assert facts["Model"] == "colours"
    assert facts["Dimensions"] == "10"
    assert facts["Taken"].endswith("2024")


def test_curves(about):
    """One line for each size, the largest in front; the caption says in plain words what it is near to."""
    pictures, sentences = about.page.locator("#curves figure").all()
    lines = pictures.locator("polyline")
    assert lines.count() == 2
    assert [line.get_attribute("class") for line in lines.all()] == ["line faint", "line"]
    points = [pair.split(",") for pair in lines.last.get_attribute("points").split()]
    assert len(points) == 36
    heights = [float(y) for _, y in points]
    assert heights == sorted(heights)  # the weights fall, and y points down
    said = pictures.locator("figcaption").inner_text()
    assert said.startswith("Pictures: 36 cells, from the largest value to the smallest; nearest simple pooling: ")
    assert ", likeness 0." in said
    assert said.endswith("fainter: 9 cells.")
    assert pictures.locator("svg").get_attribute("aria-label") == said
    assert sentences.locator("svg").count() == 0
    assert sentences.inner_text() == "Sentences, pooled by gem: a generalized mean: no curve by rank."


def test_closing(about):
    """Escape and a click beside it close; one on its edge does not."""
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
def test_a_collection_without_files(browser, tmp_path):
    """It says so and names the command, with words and without, until there are some."""
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
            assert "Nothing is indexed yet" in page.text("#results")
            assert "vse index FOLDER --into NAME" in page.text("#results")
        make_plain(tmp_path / "photos", "red")
        vse(*index)
        page.search("blue")
        assert page.names() == ["plain red.png"]
        page.page.wait_for_function("() => document.getElementById('about-facts').textContent.includes('Photos1')")
        page.changing(lambda: page.page.locator(".segments").get_by_text("Clips").click())
        assert "Other words or fewer filters may help." in page.text("#results")
        assert page.messages == []
