"""Many scenes on one picture, each with captions below it."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from vse.data.scenes.render import render
from vse.data.scenes.sample import caption_scene, sample_scene
from vse.data.scenes.vocabulary import Split
from vse.errors import InputError

INK = "#1f2a44"
PAPER = "#ffffff"
MARGIN = 16
FONT_SIZE = 15
LINE = 20


def contact_sheet(
    seed: int = 0,
    split: Split = "test",
    indices: Sequence[int] = range(12),
    *,
    columns: int = 4,
    size: int = 256,
    captions: int = 2,
) -> Image.Image:
    """Scenes in rows of ``columns``, each with its first ``captions`` captions; scenes 2f and 2f + 1 are a pair.

    ``contact_sheet().save("scenes.png")`` is the picture in the documentation.
    """
    for name, value in (("columns", columns), ("captions", captions), ("number of indices", len(indices))):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    font = ImageFont.load_default(FONT_SIZE)
    tiles = []
    for index in indices:
        scene = sample_scene(seed, split, index)
        wrapped = [_wrap(text, font, size) for text in caption_scene(scene, seed, split, index)[:captions]]
        tiles.append((render(scene, size), wrapped))
    tallest = max(sum(len(lines) for lines in texts) for _, texts in tiles)
    width, height = size + MARGIN, size + LINE * tallest + 6 * captions + 2 * MARGIN
    rows = -(-len(tiles) // columns)
    sheet = Image.new("RGB", (columns * width + MARGIN, rows * height + MARGIN), PAPER)
    draw = ImageDraw.Draw(sheet)
    for number, (picture, texts) in enumerate(tiles):
        row, column = divmod(number, columns)
        x, y = MARGIN + column * width, MARGIN + row * height
        sheet.paste(picture, (x, y))
        y += size + 6
        for lines in texts:
            for line in lines:
                draw.text((x, y), line, fill=INK, font=font)
                y += LINE
            y += 6
    return sheet


def _wrap(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> list[str]:
    """The text in lines of at most ``width`` pixels; further lines are indented."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines[-1].strip() else f"{lines[-1]}{word}"
        if font.getlength(longer) > width and lines[-1].strip():
            lines.append(f"   {word}")
        else:
            lines[-1] = longer
    return lines
