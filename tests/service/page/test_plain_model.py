"""A collection whose model has neither evidence for images nor confidence: ranks, and no controls that do nothing."""

from __future__ import annotations

import pytest
from tests.service.page.colour_model import write_colour_model
from tests.service.page.support import CLIPS, make_folder, serving, vse
from tests.service.page.visits import new_context, visit
from tests.support_foreign import foreign_copy


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The service over a collection of a foreign model."""
    folder = tmp_path_factory.mktemp("plain")
    model = foreign_copy(write_colour_model(folder / "colours"), folder / "clip")
    vse("index", make_folder(folder / "photos"), "--into", folder / "plain.vse", "--model", model)
    with serving(folder / "plain.vse") as served:
        yield served


@pytest.fixture
def opened(browser, plain):
    """Opens the page, and checks in the end that its console is empty but for the expected messages."""
    made = []

    def open_page(path="", **options):
        made.append(visit(new_context(browser, **options), plain.address, path))
        made[-1].page.wait_for_function("() => document.title.startsWith('plain')")
        return made[-1]

    yield open_page
    for each in made:
        each.page.context.close()
        assert [text for text in each.messages if "422" not in text] == []
        assert each.foreign == []


@pytest.mark.parametrize("size", [(1024, 680), (390, 844)], ids=["desktop", "phone"])
def test_page_shows_ranks_without_confidence(opened, plain, size):
    """Tiles and the viewer show rank and score; no percentage, no divider, no switch for likely matches."""
    page = opened(viewport={"width": size[0], "height": size[1]})
    assert not page.page.locator(".rank").count()  # a list of files is not ranked
    page.search("red")
    found = plain.get("search", ("q", "red"), ("k", 48))["results"]
    assert {each["confidence"] for each in found} == {None}
    assert page.page.locator(".rank").all_text_contents() == [f"#{n}" for n in range(1, len(found) + 1)]
    assert not page.page.locator(".match, .heading").count()
    assert not page.page.locator("#good").is_visible()
    assert page.page.locator("#group").is_visible()
    label = page.page.locator("[data-index='1']").get_attribute("aria-label")
    assert "rank 2" in label
    assert "match" not in label
    assert "%" not in page.page.locator("body").inner_text()
    page.open_first("red")
    assert page.text("#viewer-meter p:first-child") == "#1"
    assert page.text("#viewer-meter .numbers") == f"score {found[0]['score']:.3f}"
    assert "ranked by their score" in page.text("#viewer-meter")
    assert not page.page.locator("#viewer-meter .bar").count()
    assert "%" not in page.text("#viewer")


def test_page_hides_evidence_of_images_and_keeps_that_of_videos(opened):
    """The button and its key do nothing on an image; a video still has its timeline."""
    page = opened()
    page.open_named("red", "plainred.png")
    assert not page.page.locator("#viewer-why").is_visible()
    page.page.keyboard.press("e")
    page.page.wait_for_load_state("networkidle")
    assert not page.page.locator("#media canvas").count()
    assert not page.page.locator("#viewer-legend").is_visible()
    assert not [each.url for each in page.requests if "/evidence?" in each.url]
    page.page.keyboard.press("Escape")
    page.closed("#viewer")
    page.open_named("red", next(iter(CLIPS)))
    page.page.click("#viewer-why")
    page.page.wait_for_selector("#viewer-timeline button")


def test_shared_address_with_likely_matches_works_without_confidence(opened):
    """The switch in an address of another collection is ignored."""
    page = opened("?q=red&sure=1")
    page.page.wait_for_selector(".rank")
    assert not page.page.locator("#notice").is_visible()
    assert "min_relevance" not in dict(page.asked()[-1])
    assert not page.page.locator("#good").is_visible()
    page.search("green")
    assert not page.page.locator("#notice").is_visible()


def test_about_names_missing_confidence(opened):
    """It lists the keys that work, and does not explain curves that the model lacks."""
    page = opened()
    page.page.click("#about-open")
    names, values = (page.page.locator(f"#about-facts {tag}").all_text_contents() for tag in ("dt", "dd"))
    assert dict(zip(names, values, strict=True))["Confidence"].startswith("none")
    assert page.page.locator("#key-why").is_visible()  # the collection has videos
    page.page.wait_for_selector("#curves p")
    assert page.text("#curves") == "This model has no pooling curves."
    assert not page.page.locator("#curves-note").is_visible()
