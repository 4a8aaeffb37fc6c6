"""Layout on different screens, and contrast."""

from __future__ import annotations

import pytest

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
ROWS = """() => {
  const rows = [];
  for (const grid of document.querySelectorAll(".grid")) {
    for (const tile of grid.querySelectorAll(".tile")) {
      const box = tile.getBoundingClientRect();
      const row = rows.at(-1);
      if (row && Math.abs(row.top - box.top) < 2) Object.assign(row, { right: box.right, count: row.count + 1 });
      else rows.push({ top: box.top, left: box.left, right: box.right, height: box.height, count: 1 });
    }
    rows.at(-1).last = true;
  }
  const wall = document.getElementById("results").getBoundingClientRect();
  return { rows, left: wall.left, right: wall.right };
}"""
COLOURS = """(names) => {
  const probe = document.body.appendChild(document.createElement("i"));
  const found = names.map((name) => {
    probe.style.setProperty("color", `var(--${name})`);
    return [name, getComputedStyle(probe).color.match(/[\\d.]+/g).map(Number)];
  });
  probe.remove();
  return Object.fromEntries(found);
}"""
TEXTS = [
    ("ink", "paper"), ("ink", "raised"), ("ink", "accent-soft"), ("ink", "warm-soft"),
    ("quiet", "paper"), ("quiet", "raised"), ("on-accent", "accent"), ("warm", "raised"), ("accent", "paper"),
]  # fmt: skip
MARKS = [("for", "raised"), ("against", "raised"), ("accent", "raised")]


def luminance(colour):
    """Relative luminance of sRGB values 0 … 255, as in WCAG 2."""
    parts = [value / 255 for value in colour[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(visiting, scheme):
    """All text has 4.5:1 against its background, all marks 3:1, in both themes."""
    colours = visiting(color_scheme=scheme).page.evaluate(
        COLOURS, sorted({name for pair in TEXTS + MARKS for name in pair})
    )
    assert (luminance(colours["paper"]) < luminance(colours["ink"])) == (scheme == "dark")
    low = {(text, ground): contrast(colours[text], colours[ground]) for text, ground in TEXTS + MARKS}
    assert {pair: ratio for pair, ratio in low.items() if ratio < (3 if pair in MARKS else 4.5)} == {}


def test_badges_are_readable_on_any_image(page):
    """Their background is dark enough over white."""
    page.search("red")
    style = page.page.locator(".rank").first.evaluate("each => getComputedStyle(each).backgroundColor")
    *ground, cover = (float(part) for part in style.removeprefix("rgba(").rstrip(")").replace("/", ",").split(","))
    mixed = [cover * part + (1 - cover) * 255 for part in ground]
    assert contrast((255, 255, 255), mixed) >= 4.5


@pytest.mark.parametrize(
    "options", [PHONE, {"viewport": {"width": 320, "height": 640}}, {"viewport": {"width": 1920, "height": 1080}}]
)
def test_no_horizontal_scrolling(visiting, options):
    """Neither the page, with and without a query, nor the viewer."""
    page = visiting(**options)
    assert page.page.evaluate(OVERFLOW) == 0
    page.search("red")
    assert page.page.evaluate(OVERFLOW) == 0
    page.page.locator("[data-index='1']").click()
    page.page.wait_for_selector("#viewer[open]")
    assert (
        page.page.evaluate(
            "() => { const each = document.getElementById('viewer'); return each.scrollWidth - each.clientWidth; }"
        )
        == 0
    )
    assert page.page.evaluate(OVERFLOW) == 0


@pytest.mark.parametrize("options", [PHONE, {}])
def test_grid_fills_the_width(visiting, options):
    """Every row but the last of a section reaches both edges, and none is very tall."""
    page = visiting(**options)
    for words in ("", "red"):
        if words:
            page.search(words)
        wall = page.page.evaluate(ROWS)
        full = [row for row in wall["rows"] if "last" not in row]
        for row in full:
            assert row["left"] - wall["left"] <= 1
            assert wall["right"] - row["right"] <= 1
        assert all(row["height"] < 450 for row in wall["rows"])
        counts = [row["count"] for row in full]
        assert (1.5 if options else 3) < sum(counts) / len(counts) < (4.5 if options else 8)


def test_filters_take_one_row(page):
    """At 1280 pixels; on a phone the row scrolls sideways."""
    page.page.set_viewport_size({"width": 1280, "height": 800})
    page.page.wait_for_selector("#folder-open")
    boxes = [each.bounding_box() for each in page.page.locator(".filters > *").all() if each.is_visible()]
    assert len(boxes) == 6
    middles = {round(box["y"] + box["height"] / 2) for box in boxes}
    assert max(middles) - min(middles) <= 1
    page.page.set_viewport_size({"width": 390, "height": 844})
    assert page.box(".filters")["height"] < 60
    assert page.page.locator(".filters").evaluate("each => each.scrollWidth > each.clientWidth")


def test_viewer_on_a_phone(visiting):
    """The image on top, details below, and the buttons within reach."""
    page = visiting(**PHONE)
    page.open_named("green", "plaingreen.png")
    page.settle()
    image, name = page.box("#media img"), page.box("#viewer-name")
    assert (image["x"], image["width"]) == pytest.approx((0, 390), abs=1)
    assert image["y"] == pytest.approx(0, abs=60)
    assert image["bottom"] <= name["y"]
    for button in ("#viewer-close", "#viewer-previous", "#viewer-next"):
        box = page.box(button)
        assert min(box["width"], box["height"]) >= 40
        assert box["x"] >= 0
        assert box["right"] <= 390
        assert box["y"] >= 0
        assert box["bottom"] <= 844
    page.page.tap("#viewer-next")
    assert page.text("#viewer-name") != "plaingreen.png"
    page.page.tap("#viewer-close")
    page.closed("#viewer")


def test_dialog_backdrop_covers_the_page(page):
    """From edge to edge."""
    page.page.click("#about-open")
    page.page.wait_for_selector("#about[open]")
    assert page.page.evaluate("() => getComputedStyle(document.documentElement).scrollbarGutter") == "auto"


def test_reduced_motion(visiting):
    """Nothing is animated if the system asks for reduced motion."""
    page = visiting(reduced_motion="reduce")
    page.search("red")
    page.page.evaluate("() => document.body.classList.add('busy')")
    moving = """() => [...document.querySelectorAll("*")].filter((each) => {
      const style = getComputedStyle(each);
      const times = style.transitionDuration.split(", ");
      return style.animationName !== "none" || times.some((time) => parseFloat(time) > 0);
    }).length"""
    assert page.page.evaluate(moving) == 0


def test_forced_colours(visiting):
    """The selected type, a pressed button and the evidence bars remain distinguishable."""
    page = visiting(forced_colors="active")
    ground = "each => getComputedStyle(each).backgroundColor"
    chosen, other = (page.page.locator(".segments span").nth(at).evaluate(ground) for at in (0, 1))
    assert chosen != other
    page.changing(page.page.locator(".segments").get_by_text("Videos").click)
    page.open_named("green", "lights.mp4")
    page.page.click("#viewer-why")
    page.page.wait_for_selector("#viewer-timeline i")
    assert page.page.locator("#viewer-timeline i").first.evaluate(ground) != page.page.locator("#viewer").evaluate(
        ground
    )
    assert page.page.locator("#viewer-why").evaluate(ground) != page.page.locator("#viewer-like").evaluate(ground)
