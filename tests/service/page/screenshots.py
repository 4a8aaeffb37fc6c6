"""Pictures of the page for the documentation, over generated scenes: ``python -m tests.service.page.screenshots DIR``.

The model, by default the one of ``vse demo``, is exported and calibrated in a temporary folder.
"""

from __future__ import annotations

import argparse
import csv
import io
import tempfile
from pathlib import Path

import av
from PIL import Image
from playwright.sync_api import Browser
from tests.service.page.support import SHOWN_SECONDS, serving, taken, vse
from tests.service.page.visits import Visit, chromium, new_context, visit

from vse.data.scenes import render, sample_scene, write_scenes
from vse.data.scenes.sample import caption_scene

SCENES, SIZE = 240, 480
FILMED = (7, 11, 23)
QUESTION = "two red circles and a blue diamond"
SCREEN = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 780}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}
LARGEST = 300_000
"""Bytes of a picture."""


def main() -> None:
    """Write ``page-….png`` into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path, default=Path("vse-demo/model"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="vse-page-") as place,
        serving(make(Path(place), given.model)) as served,
        chromium() as browser,
    ):
        take(browser, served.address, given.folder)


def make(place: Path, model: Path) -> Path:
    """An index of scenes, and of a clip that shows some of them."""
    vse("export", model, place / "scenes")
    write_scenes(place / "data", train=0, dev=200, test=0)
    vse("calibrate", place / "scenes", "--data", place / "data")
    photos, rows = place / "photos", [("path", "caption")]
    for number in range(SCENES):
        scene = sample_scene(0, "test", number)
        path = photos / str(2022 + number % 3) / f"scene-{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        notes = taken(2022 + number % 3, 1 + number % 12, 1 + number % 28)
        render(scene, SIZE).save(path, quality=90, exif=notes)
        rows += [(path.relative_to(photos).as_posix(), text) for text in caption_scene(scene, 0, "test", number)[:2]]
    film(photos / "scenes.mp4")
    with (photos / "captions.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)
    vse("index", photos, "--into", place / "scenes.vse", "--model", place / "scenes")
    return place / "scenes.vse"


def film(path: Path, rate: int = 5) -> None:
    """Some seconds of every scene that is filmed."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate)
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        for number in FILMED:
            frame = av.VideoFrame.from_image(render(sample_scene(0, "test", number), SIZE))
            for _ in range(rate * SHOWN_SECONDS):
                frame.pts = None
                container.mux(stream.encode(frame))
        container.mux(stream.encode())


def take(browser: Browser, address: str, folder: Path) -> None:
    """All pictures."""

    def opened(**options: object) -> Visit:
        page = visit(new_context(browser, reduced_motion="reduce", **{**SCREEN, **options}), address)
        page.search(QUESTION)
        page.settle()
        return page

    page = opened(color_scheme="light")
    save(page, folder / "page-light.png")
    page.page.locator("[data-index='0']").click()
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#media canvas")
    page.page.wait_for_selector("#viewer-captions blockquote")
    page.settle()
    page.page.evaluate("() => document.activeElement.blur()")
    save(page, folder / "page-evidence.png")
    page.page.keyboard.press("Escape")
    page.page.set_viewport_size({"width": 1280, "height": 1040})
    page.page.click("#about-open")
    page.page.wait_for_selector("#curves figure")
    save(page, folder / "page-curves.png", "#about")
    save(opened(color_scheme="dark"), folder / "page-dark.png")
    phone = opened(color_scheme="light", **PHONE)
    phone.page.evaluate("() => document.activeElement.blur()")
    save(phone, folder / "page-phone.png")


def save(page: Visit, path: Path, part: str | None = None) -> None:
    """A PNG that is small enough, with as many colours as that allows."""
    taken_now = page.page.locator(part).screenshot() if part else page.page.screenshot()
    picture = Image.open(io.BytesIO(taken_now)).convert("RGB")
    smooth, plain = Image.Dither.FLOYDSTEINBERG, Image.Dither.NONE
    smaller = (picture.quantize(colours, dither=dither) for colours in (256, 128, 64) for dither in (smooth, plain))
    for candidate in (picture, *smaller):
        stream = io.BytesIO()
        candidate.save(stream, "PNG", optimize=True)
        if stream.tell() <= LARGEST:
            path.write_bytes(stream.getvalue())
            return
    raise ValueError(f"{path} has more than {LARGEST:,} bytes even with 64 colours")


if __name__ == "__main__":
    main()
