"""Screenshots of the page for the documentation: ``python -m tests.service.page.screenshots docs/images``.

They show rendered landscapes and the sample photographs of the demo, indexed with the bundled model.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from pathlib import Path

import av
import numpy as np
import skimage
from PIL import Image
from playwright.sync_api import Browser
from tests.index.scan.support import exif_of, gps_of
from tests.service.page.landscapes import SCENES, render_scene, sunset_sea
from tests.service.page.support import serving, vse
from tests.service.page.visits import Visit, changed_response, chromium, new_context, visit

from vse.demo.photos import SAMPLES

QUERY = "a sunset over the sea"
PHOTO_QUERY = "a cat"
"""Finds one of the sample photographs."""
GRID_QUERY = "a man with a camera"
"""Has one strong result among them."""
SCREEN = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 780}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}
MAX_BYTES = 400_000
CAMERAS = [("Canon", "EOS R6"), ("Google", "Pixel 9")]
PLACES = {
    "2022/coast": gps_of((40, 38, 0), (14, 36, 0)),
    "2022/beach": gps_of((36, 31, 0), (6, 17, 0), ("N", "W")),
    "2023/alps": gps_of((45, 58, 30), (7, 39, 0)),
    "2024/city": gps_of((40, 45, 0), (73, 59, 0), ("N", "W")),
    "2024/north": gps_of((69, 39, 0), (18, 57, 0)),
}
"""Where the images of a folder were taken, as it were."""
DECODED = """() => Promise.all(
  [...document.images].filter((each) => each.loading === "eager").map((each) => each.decode()))"""


SIMILAR_LOADED = """() =>
  [...document.querySelectorAll("#viewer-similar img")].slice(0, 6).every((each) => each.naturalWidth)"""


def main() -> None:
    """Write ``page-….png`` into the given folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vse-page-") as place:
        make_photos(Path(place) / "Photos")
        vse("index", Path(place) / "Photos", "--into", Path(place) / "Photos.vse")
        with serving(Path(place) / "Photos.vse") as served, chromium() as browser:
            take_all(browser, served.address, given.folder)
        take_samples(Path(place), given.folder)


def take_samples(place: Path, folder: Path) -> None:
    """All results of a query over the sample photographs alone, the unlikely ones included."""
    copy_samples(place / "Samples")
    vse("index", place / "Samples", "--into", place / "Samples.vse")
    with serving(place / "Samples.vse") as served, chromium() as browser:
        for _ in range(2):  # the first visit warms the service up
            page = visit(new_context(browser, reduced_motion="reduce", color_scheme="light", **SCREEN), served.address)
            page.search(GRID_QUERY)
            page.page.get_by_text("Show them").click()
            page.settle()
            page.page.evaluate(DECODED)
            page.page.evaluate("() => document.activeElement.blur()")
            page.page.mouse.move(0, 0)
        save(page, folder / "page-samples.png")


def copy_samples(folder: Path) -> None:
    """Copy the sample photographs of the demo."""
    folder.mkdir()
    for name in SAMPLES:
        shutil.copyfile(Path(skimage.__file__).parent / "data" / name, folder / name)


def make_photos(folder: Path) -> None:
    """Write all landscapes with a date, and a video that pans over one of them."""
    number = 400
    for name, (scene, variants) in SCENES.items():
        (folder / name).mkdir(parents=True)
        for size, seed in variants:
            number += 3 + 11 * seed % 17
            path = folder / name / f"IMG_{number:04d}.jpg"
            render_scene(scene, size, seed).save(path, quality=90, exif=notes(name, number))
    write_pan(folder / "2024" / "evening.mp4", render_scene(sunset_sea, "wide", 52))
    copy_samples(folder / "samples")


def notes(name: str, number: int) -> Image.Exif:
    """EXIF data: camera, date, and the place of some folders."""
    make, model = CAMERAS[number % 2]
    date = f"{name[:4]}:{1 + number % 12:02d}:{1 + number % 28:02d} {8 + number % 12:02d}:{number % 60:02d}:00"
    return exif_of({0x010F: make, 0x0110: model}, {0x9003: date}, PLACES.get(name))


def write_pan(path: Path, image: Image.Image, seconds: int = 4, rate: int = 10) -> None:
    """Write a video that moves over ``image`` from left to right."""
    width, height = 720, 480
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for left in np.linspace(0, image.width - width, seconds * rate).astype(int):
            frame = image.crop((left, 80, left + width, 80 + height))
            container.mux(stream.encode(av.VideoFrame.from_image(frame)))
        container.mux(stream.encode())


def take_all(browser: Browser, address: str, folder: Path) -> None:
    """Take every screenshot."""

    def open_page(query: str = QUERY, **options: object) -> Visit:
        page = visit(new_context(browser, reduced_motion="reduce", **{**SCREEN, **options}), address)
        page.search(query)
        page.settle()
        page.page.evaluate(DECODED)
        page.page.evaluate("() => document.activeElement.blur()")
        return page

    open_page().page.close()  # warms the service up, so that its response time is the usual one
    page = open_page(color_scheme="light")
    save(page, folder / "page-light.png")
    take_selection(page, folder / "page-select.png")
    take_folders(page, folder / "page-folders.png")
    page.page.set_viewport_size({"width": 1280, "height": 1040})
    page.page.click("#about-open")
    page.page.wait_for_selector("#curves figure")
    save(page, folder / "page-curves.png", "#about")
    take_evidence(open_page(PHOTO_QUERY, color_scheme="light"), folder / "page-evidence.png")
    save(open_page(color_scheme="dark"), folder / "page-dark.png")
    save(open_page(color_scheme="light", **PHONE), folder / "page-phone.png")


def take_evidence(page: Visit, path: Path) -> None:
    """The best result, opened, with its evidence."""
    # Where the images are while the screenshots are taken is nobody's business.
    changed_response(page.page, "items/*", lambda item: {**item, "root": "/home/ana/Photos"})
    page.page.locator("[data-index='0']").click()
    page.page.keyboard.press("e")
    page.page.wait_for_selector("#media canvas")
    page.page.wait_for_selector("#viewer-facts dd")
    page.page.wait_for_selector("#viewer-similar:not([hidden])")
    page.page.wait_for_function(SIMILAR_LOADED)
    page.settle()
    page.page.evaluate("() => document.activeElement.blur()")
    save(page, path)
    page.page.keyboard.press("Escape")
    page.closed("#viewer")


def take_selection(page: Visit, path: Path) -> None:
    """Three selected results."""
    for index in (0, 1, 3):
        page.page.locator(f"[data-index='{index}']").click(modifiers=["Control"])
    page.page.mouse.move(0, 0)
    page.page.evaluate("() => document.activeElement.blur()")
    save(page, path)
    page.page.click("#selection-clear")


def take_folders(page: Visit, path: Path) -> None:
    """All files by date, with the folders open."""
    page.search("")
    page.settle()
    page.page.evaluate(DECODED)
    page.page.click("#folder-open")
    page.page.locator("#folder-list .twist:has(svg)").first.click()
    page.page.mouse.move(0, 0)
    save(page, path)
    page.page.keyboard.press("Escape")


def save(page: Visit, path: Path, selector: str | None = None) -> None:
    """Save a PNG of at most ``MAX_BYTES``, with as many colours as fit."""
    content = page.page.locator(selector).screenshot() if selector else page.page.screenshot()
    image = Image.open(io.BytesIO(content)).convert("RGB")
    smaller = (dithered(image, colours) for colours in (256, 128, 64))
    for candidate in (image, *smaller):
        stream = io.BytesIO()
        candidate.save(stream, "PNG", optimize=True)
        if stream.tell() <= MAX_BYTES:
            path.write_bytes(stream.getvalue())
            return
    raise ValueError(f"{path} has more than {MAX_BYTES:,} bytes even with 64 colours")


def dithered(image: Image.Image, colours: int) -> Image.Image:
    """Reduce the colours; k-means keeps those of small parts, such as the selected filter."""
    palette = image.quantize(colours, kmeans=3)
    return image.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG)


if __name__ == "__main__":
    main()
