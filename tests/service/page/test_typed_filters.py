"""What can be typed beside a description, the chips below the box, sorting, and notes about the query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.service.page.library import TITLED
from tests.service.page.visits import changed_response


def chips(page):
    return page.page.locator("#typed .chip").all_text_contents()


def sent(page, path="search"):
    """The last request to a route, without what every request has."""
    return [each for each in page.asked(path)[-1] if each[0] not in ("k", "min_relevance")]


def test_typed_filters_become_chips_and_parameters(desk):
    """They replace the chosen ones, and a click on a chip removes its text from the box."""
    desk.changing(lambda: desk.page.locator(".segments").get_by_text("Videos").click())
    desk.search("red folder:albums type:image after:2022 -green")
    assert chips(desk) == ["folder: albums", "type: image", "after: 2022", "not: green"]
    expected = [("q", "red"), ("not", "green"), ("type", "image"), ("folder", "albums"), ("after", "2022")]
    assert sent(desk) == expected
    chip = desk.page.locator("#typed .chip").nth(1)
    assert chip.get_attribute("aria-label") == "Remove type: image"
    desk.changing(chip.click)
    assert desk.page.input_value("#words") == "red folder:albums after:2022 -green"
    assert desk.focused() == "words"
    desk.changing(lambda: desk.page.locator("#typed .chip", has_text="not: green").click())
    assert desk.page.input_value("#words") == "red folder:albums after:2022"
    desk.search("folder:albums")
    assert sent(desk, "items") == [("type", "video"), ("folder", "albums")]


@pytest.mark.parametrize(
    ("typed", "chip"),
    [
        ("type:vid", "type: vid (expected image or video)"),
        ("after:20", "after: 20 (expected a date such as 2024, 2024-05 or 2024-05-31)"),
        ("place:Quito", "place: Quito (this server does not search words)"),
    ],
)
def test_filter_without_effect_says_why(desk, typed, chip):
    """While it is incomplete, or where the server does not know it, and the search goes on without it."""
    changed_response(desk.page, "collection", lambda found: {each: found[each] for each in found if each != "places"})
    desk.reload()
    desk.search(f"red {typed}")
    assert chips(desk) == [chip]
    assert "bad" in desk.page.locator("#typed .chip").get_attribute("class")
    assert sent(desk) == [("q", "red")]
    desk.search("red type:")
    assert chips(desk) == []


def test_exact_words_and_word_filters_are_sent(desk):
    """Quoted words are searched for and required; each chip removes its own, the quotes only for exact words."""
    desk.search('a red "first snow" “aunt mathilda” name:strong* camera:pixel place:"quito pichincha"')
    shown = ["“first snow”", "“aunt mathilda”", "name: strong*", "camera: pixel", "place: quito pichincha"]
    assert chips(desk) == shown
    assert sent(desk) == [
        ("q", "a red first snow aunt mathilda"),
        ("name", "strong*"), ("camera", "pixel"), ("place", "quito pichincha"),
        ("words", "first snow"), ("words", "aunt mathilda"),
    ]  # fmt: skip
    assert desk.names() == [TITLED]
    desk.changing(lambda: desk.page.locator("#typed .chip").nth(1).click())
    assert desk.page.input_value("#words").startswith('a red "first snow" aunt mathilda name:')
    assert [each for each in sent(desk) if each[0] == "words"] == [("words", "first snow")]


def test_exact_words_that_leave_nothing_can_be_unquoted(desk):
    """The page names them, and searches for the same words without quotes."""
    desk.search('red "submarine"')
    desk.page.wait_for_selector(".empty")
    assert "The filter exact words “submarine” leaves nothing. Without it there are" in desk.text(".empty")
    desk.changing(lambda: desk.page.get_by_role("button", name="Search without quotes").click())
    assert desk.page.input_value("#words") == "red submarine"
    assert desk.page.locator(".tile").count() == 48


def test_tiles_say_where_words_matched(desk):
    """If only the words match, in place of the strength; the open result lists all fields."""
    desk.search("black mathilda holiday")
    desk.page.wait_for_selector(".heading")
    assert desk.names()[0] == TITLED
    assert desk.text("[data-index='0'] .match").split() == ["in", "title"]
    assert desk.page.locator(".heading").first.inner_text() == "Good matches"
    assert ", words found in title, keyword," in desk.page.locator("[data-index='0']").get_attribute("aria-label")
    desk.page.locator("[data-index='0']").click()
    assert "Words found in title, keyword." in desk.text("#viewer-meter")


def test_notes_about_the_query_are_shown(desk):
    """Without their code, as sentences; unknown words are then not listed a second time."""
    notes = ["language: this looks like French", "unknown: the model does not know chien."]
    changed_response(desk.page, "search", lambda found: {**found, "notes": notes, "unknown": ["chien"]})
    desk.search("red")
    desk.page.wait_for_selector("#remark:not([hidden])")
    assert desk.text("#remark") == "This looks like French. The model does not know chien."
    assert "unknown words" not in desk.text("#status")


def test_results_are_sorted_by_date(desk):
    """By a menu: newest first below date headings, kept in the address."""
    assert not desk.page.locator("#sorting").is_visible()  # files are listed by date anyway
    desk.search("green")
    assert desk.page.get_by_role("combobox", name="Sort by").input_value() == "relevance"
    assert "sort" not in dict(sent(desk))
    desk.changing(lambda: desk.page.select_option("#sort", "date"))
    assert ("sort", "date") in sent(desk)
    assert desk.page.url.endswith("?q=green&sort=date")
    assert desk.page.locator(".heading").all_text_contents()[0] == "February 2024"
    desk.page.reload()
    desk.page.wait_for_function("() => document.getElementById('sort').value === 'date'")
    desk.page.select_option("#sort", "relevance")
    desk.page.wait_for_function("() => document.querySelector('.heading')?.textContent === 'Good matches'")


def test_date_headings_are_months_or_years(desk):
    """Months where they hold several files, years where most of them would hold one or two."""
    months = desk.page.locator(".heading").all_text_contents()
    assert "February 2024" in months
    sparse = [{"taken": 86400 * 40 * number} for number in range(12, 0, -1)]

    def thin(found):
        return {**found, "results": [{**each, **at} for each, at in zip(found["results"], sparse, strict=False)]}

    changed_response(desk.page, "items", thin)
    desk.page.reload()
    desk.page.wait_for_selector(".heading")
    assert desk.page.locator(".heading").all_text_contents() == ["1971", "1970"]


def test_help_lists_what_can_be_typed(desk):
    """An example is put into the box; the panel closes with Escape and returns the focus."""
    button = desk.page.get_by_role("button", name="What can be typed")
    button.focus()
    desk.page.keyboard.press("Enter")
    desk.page.wait_for_selector("#help:popover-open")
    assert button.get_attribute("aria-expanded") == "true"
    desk.page.keyboard.press("Escape")
    desk.page.wait_for_selector("#help:popover-open", state="hidden")
    assert desk.focused() == "help-open"
    desk.page.fill("#words", "red")
    button.click()
    desk.page.get_by_role("button", name="type:video").click()
    assert desk.page.input_value("#words") == "red type:video"
    assert desk.focused() == "words"


READ = """async (texts) => {
  const { parse } = await import("/static/typed.js");
  return texts.map(parse);
}"""


def test_page_reads_typed_text_as_the_shared_cases_say(page):
    """As ``vse.index.typed`` does, which is tested with the same file."""
    cases = json.loads((Path(__file__).parents[2] / "index" / "typed_cases.json").read_text("utf-8"))
    read = page.page.evaluate(READ, [case["typed"] for case in cases])
    for case, found in zip(cases, read, strict=True):
        sent = [(each["name"], each["sent"]) for each in found["tokens"] if each["sent"] is not None]
        assert found["wanted"] == case["text"], case
        assert [value for name, value in sent if name == "words"] == case.get("words", []), case
        assert [value for name, value in sent if name == "exclude"] == case.get("exclude", []), case
        assert {name: value for name, value in sent if name not in ("words", "exclude")} == case.get("filters", {}), (
            case
        )
        problems = [each["name"] for each in found["tokens"] if each["problem"] and each["name"] != "exclude"]
        assert problems == ([case["problem"]] if "problem" in case else []), case
