"""Moments end to end: index and search videos of moving shapes through the CLI."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cli.search_support import reported
from tests.inputs.video.clips import write_clip
from tests.service.page.colour_model import GROUNDS, write_colour_model

from vse.data.scenes.scene import PALETTE

SECONDS, RATE = 4, 5  # duration of a shape, one moment; frames per second
SIDE = 96
CLIPS = {
    "day": (("red", "disc"), ("green", "square"), ("blue", "triangle")),
    "night": (("yellow", "square"), ("purple", "triangle"), ("orange", "disc"), ("pink", "square")),
}
FORMS = {"mp4": "libx264", "webm": "libvpx-vp9"}
WHOLE = {"options": {"movflags": "faststart"}}  # the header comes first, so that a truncated file opens


def drawn(colour: str, shape: str, x: float, y: float, radius: float, height: int = SIDE, width: int = SIDE):
    """Draw a coloured shape on grey; ``x`` and ``y`` are its centre, as fractions of the sides."""
    rows, columns = np.mgrid[:height, :width]
    right, down = columns - x * width, rows - y * height
    inside = {
        "disc": right**2 + down**2 < radius**2,
        "square": (abs(right) < radius) & (abs(down) < radius),
        "triangle": (down < radius) & (2 * abs(right) < down + radius),
    }[shape]
    return np.where(inside[..., None], PALETTE[colour], GROUNDS["grey"]).astype(np.uint8)


def moving(shapes, number: int, height: int, width: int):
    """Draw frame ``number`` of a video in which one shape after another moves from left to right, up and down."""
    colour, shape = shapes[number // (SECONDS * RATE)]
    share = number % (SECONDS * RATE) / (SECONDS * RATE)
    return drawn(colour, shape, 0.25 + share / 2, 0.5 + 0.15 * np.sin(7 * share), 18, height, width)


def save_clip(path: Path, name: str) -> None:
    shapes, codec = CLIPS[name], FORMS[path.suffix[1:]]
    options = WHOLE if path.suffix == ".mp4" else {}
    draw = partial(moving, shapes)
    write_clip(path, seconds=SECONDS * len(shapes), rate=RATE, codec=codec, size=(SIDE, 128), draw=draw, **options)


@dataclass(frozen=True)
class Place:
    """An index; ``moments[colour]`` is the file and the second at which the shape of a colour starts."""

    index: Path
    queries: dict[str, Path]
    moments: dict[str, tuple[str, int]]

    def best_clip(self, *query: object) -> dict:
        """Return the first result that is a moment, ignoring images before it."""
        found = reported("search", self.index, *query, "-k", 100)["results"]
        return next(result for result in found if result["kind"] == "video")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_colour_model(tmp_path_factory.mktemp("model") / "colours")


@pytest.fixture(scope="module", params=[("mp4", "webm"), ("webm", "mp4")], ids=["mp4 webm", "webm mp4"])
def place(request, model, tmp_path_factory) -> Place:
    """Index both videos, in different formats, with images of the same and other colours between them."""
    home = tmp_path_factory.mktemp("moments")
    media, queries = home / "media", home / "queries"
    media.mkdir()
    queries.mkdir()
    moments = {}
    for (name, shapes), form in zip(CLIPS.items(), request.param, strict=True):
        save_clip(media / f"{name}.{form}", name)
        moments |= {colour: (f"{name}.{form}", SECONDS * n) for n, (colour, _) in enumerate(shapes)}
    for colour, shape in (each for shapes in CLIPS.values() for each in shapes):
        Image.fromarray(drawn(colour, shape, 0.4, 0.6, 22)).save(queries / f"{colour}.png")
    for name, colour in (("a", "red"), ("e", "black"), ("z", "pink")):  # before, between and after the videos
        Image.fromarray(drawn(colour, "disc", 0.5, 0.5, 25)).save(media / f"{name}.jpg")
    (report,) = reported("index", media, "--into", home / "media.vse", "--model", model)["folders"]
    assert (report["new"], report["problems"]) == (5, [])
    return Place(home / "media.vse", {colour: queries / f"{colour}.png" for colour in moments}, moments)


@pytest.mark.parametrize("colour", [colour for shapes in CLIPS.values() for colour, _ in shapes])
def test_a_picture_finds_the_moment_of_its_shape(colour, place):
    """An image and a word both find the right file and the seconds in which the shape moves."""
    file, start = place.moments[colour]
    for query in (("--image", place.queries[colour]), (colour,)):
        found = place.best_clip(*query)
        assert Path(found["path"]).name == file
        assert found["start"] == pytest.approx(start, abs=0.3)
        assert found["end"] == pytest.approx(start + SECONDS, abs=0.3)


def test_every_second_belongs_to_one_moment(place):
    """The moments of a video cover it from start to end without gaps."""
    found = reported("search", place.index, "red", "-k", 100, "--type", "video", "--all-moments")["results"]
    for name, shapes in CLIPS.items():
        spans = sorted((each["start"], each["end"]) for each in found if Path(each["path"]).stem == name)
        assert len(spans) == len(shapes)
        assert spans[0][0] == 0
        assert all(end == pytest.approx(start) for (_, end), (start, _) in pairwise(spans))
        assert spans[-1][1] == pytest.approx(SECONDS * len(shapes), abs=0.5)


@pytest.mark.parametrize("form", FORMS)
def test_a_clip_that_is_cut_answers_for_its_first_moments(form, model, tmp_path):
    """The readable part of a video truncated at two thirds is found with its times, and the truncation is reported."""
    media = tmp_path / "media"
    media.mkdir()
    save_clip(media / f"night.{form}", "night")
    content = (media / f"night.{form}").read_bytes()
    (media / f"night.{form}").write_bytes(content[: len(content) * 2 // 3])
    Image.fromarray(drawn("black", "disc", 0.5, 0.5, 25)).save(media / "black.png")
    (report,) = reported("index", media, "--into", tmp_path / "media.vse", "--model", model)["folders"]
    assert (report["new"], report["problems"]) == (2, [])
    assert any(note.startswith(f"night.{form}: ") for note in report["notes"])
    place = Place(tmp_path / "media.vse", {}, {})
    for number, (colour, shape) in enumerate(CLIPS["night"][:2]):
        query = tmp_path / f"{colour}.png"
        Image.fromarray(drawn(colour, shape, 0.4, 0.6, 22)).save(query)
        found = place.best_clip("--image", query)
        assert found["start"] == pytest.approx(SECONDS * number, abs=0.3)
        assert found["score"] > 0.9
    assert place.best_clip("pink")["score"] < 0.5
