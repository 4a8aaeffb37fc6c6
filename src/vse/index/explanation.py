"""Explain results: contributions that sum to their scores, and images that show them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, VSEError
from vse.index.evidence import (
    AGAINST,
    FOR,
    BoxEvidence,
    box_map,
    frame_evidence,
    heat_map,
    image_evidence,
    moment_frames,
    write_png,
)
from vse.index.results import SearchResults, clock
from vse.index.scan import digest
from vse.index.types import Collection, Item, MediaFile, Vectors, full_path
from vse.inputs.video.windows import Window
from vse.models.protocols import NO_EVIDENCE
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.index.evidence import Model


HEIGHT, NARROWEST, WIDEST = 120, 56, 240
"""Size of a column in pixels; wider frames are downscaled, and the text needs a minimum width."""
BAR, LINE, GAP = 60, 14, 4
"""Height of the longest bar, height of a line of text, gap between frames."""
PAPER, INK, RULE = (255, 255, 255), (64, 64, 64), (180, 180, 180)


def timeline(window: Window, shares: NDArray[Any]) -> NDArray[np.uint8]:
    """Draw a moment as ``(H, W, 3)``: per frame a column with the image, its time, its share ``(F,)`` and a bar.

    Red bars above the line support the query, blue bars below count against it. Bars are scaled to the largest share,
    so they compare within one image, not between two.
    """
    from PIL import Image, ImageDraw

    pictures = [_reduced(picture) for picture in window.frames]
    width = max(NARROWEST, *(picture.width for picture in pictures)) + GAP
    longest = float(np.abs(shares).max()) or 1.0
    lengths = np.round(BAR * shares / longest).astype(int)
    above, below = max(lengths.max(), 0), max(-lengths.min(), 0)
    top = HEIGHT + GAP
    ground = int(top + 2 * LINE + GAP + above)
    sheet = Image.new("RGB", (width * len(pictures) + GAP, int(ground + below + GAP + 1)), PAPER)
    pen = ImageDraw.Draw(sheet)
    for column, (picture, seconds, share) in enumerate(zip(pictures, window.times, shares.tolist(), strict=True)):
        left = GAP + column * width
        middle = left + (width - GAP) // 2
        sheet.paste(picture, (middle - picture.width // 2, GAP + (HEIGHT - picture.height) // 2))
        pen.text((middle, top + LINE), clock(seconds), INK, anchor="ms")
        pen.text((middle, top + 2 * LINE), f"{share:+.3f}", INK, anchor="ms")
        end = ground - int(lengths[column])
        if end != ground:
            colour = tuple((FOR if share > 0 else AGAINST).astype(int).tolist())
            pen.rectangle((left, min(end, ground), left + width - 2 * GAP, max(end, ground)), colour)
    pen.line((0, ground, sheet.width, ground), RULE)
    return np.asarray(sheet)


def _reduced(picture: NDArray[np.uint8]) -> Any:
    from PIL import Image

    height, width = picture.shape[:2]
    scale = min(HEIGHT / height, WIDEST / width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR)


SAME_SCORE = 1e-3
"""Tolerance between a result's score and the sum of its evidence; a larger difference is noted."""
LONGEST_NAME = 150
"""Bytes of a file's name kept in the name of its evidence image."""
DECIMALS = 8
GONE = "the result was removed or replaced since it was found: search again"
CHANGED = "the file has changed since it was indexed: run 'vse index' again"


@dataclass(frozen=True)
class Explanation:
    """Contributions of the parts of a result to its score.

    Attributes:
        cells: Grid of contributions, for an image.
        boxes: (left, top, right, bottom, contribution) of each window, for an image of a model that pools windows.
        frames: (second in the video, contribution) of each frame, for a moment.
        file: The evidence image that was written, if any.
        replaced: Whether it overwrote an older file.
        note: Why there is no evidence or no image, or what is unusual about it.
    """

    cells: tuple[tuple[float, ...], ...] = ()
    boxes: tuple[tuple[float, float, float, float, float], ...] = ()
    frames: tuple[tuple[float, float], ...] = ()
    file: str | None = None
    replaced: bool = False
    note: str | None = None

    @property
    def total(self) -> float:
        """Sum of the contributions, equal to the score of the result."""
        parts = (share for _, share in self.frames) if self.frames else (share for *_, share in self.boxes)
        return sum(map(sum, self.cells)) + sum(parts)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.cells:
            found = {"cells": [[round(cell, DECIMALS) for cell in row] for row in self.cells]}
        elif self.boxes:
            found = {"boxes": [[round(value, DECIMALS) for value in box] for box in self.boxes]}
        elif self.frames:
            found = {"frames": [[round(second, 3), round(share, DECIMALS)] for second, share in self.frames]}
        return {**found, "file": self.file, "replaced": self.replaced, "note": self.note}


@dataclass(frozen=True)
class Explained:
    """Results with one explanation each, in the same order."""

    results: SearchResults
    explanations: tuple[Explanation, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the results, each with its ``evidence``."""
        plain = self.results.to_json()
        pairs = zip(plain["results"], self.explanations, strict=True)
        return {**plain, "results": [{**result, "evidence": each.to_json()} for result, each in pairs]}


def explain(
    collection: Collection,
    model: Model,
    results: SearchResults,
    folder: Path | None = None,
    *,
    progress: ProgressReporter | None = None,
) -> Explained:
    """Explain every result, optionally drawing an image for each.

    A result whose file is gone, has changed or cannot be explained gets a note instead.

    Args:
        collection: The collection that was searched.
        model: Its model.
        results: Results as returned by :func:`vse.index.search`.
        folder: Where to write the images, as ``NN-name.png`` with the number of the result. Created with the first
            image; existing files are overwritten. Default: no images.
        progress: Advances once per result.

    Returns:
        The results with their explanations.

    Raises:
        InputError: The results do not hold the embedding of their query.
    """
    if results.vector is None:
        raise InputError(
            "these results have no embedding to explain: the model knows none of the words that were searched for"
        )
    reporter = progress or SilentProgress()
    items = _items(collection, [result.id for result in results.results])
    explanations = []
    reporter.start(len(items), "evidence")
    for number, (item, result) in enumerate(zip(items, results.results, strict=True), results.offset + 1):
        path = None if folder is None else folder / picture_name(number, result.path)
        explanations.append(_explained(model, item, results.vector, result.score, path))
        reporter.advance()
    reporter.finish()
    return Explained(results, tuple(explanations))


def explain_item(model: Model, item: Item, vector: Vectors) -> tuple[Explanation, NDArray[np.uint8]]:
    """Return the evidence of one item for the query ``vector (D,)``, and the image ``(H, W, 3)`` that shows it.

    Raises:
        InputError: The model has no evidence for images, or the file is gone or has changed, so that its evidence
            would not match the stored embedding.
    """
    path = full_path(item.file)
    how = model.preprocessing
    if item.start is None and (how is None or not model.capabilities.evidence):
        raise InputError(NO_EVIDENCE)
    _check_unchanged(item.file)
    if item.start is None and how is not None:
        evidence = image_evidence(model, path, vector)
        if isinstance(evidence, BoxEvidence):
            sides = ((*box, share) for box, share in zip(*map(np.ndarray.tolist, evidence), strict=True))
            return Explanation(boxes=tuple(sides)), box_map(path, evidence, how)
        return Explanation(cells=tuple(map(tuple, evidence.tolist()))), heat_map(path, evidence, how)
    frames = moment_frames(path, item.start or 0.0)
    shares = frame_evidence(model, frames, vector)
    pairs = tuple(zip(frames.times, shares.tolist(), strict=True))
    return Explanation(frames=pairs), timeline(frames, shares)


def picture_name(number: int, path: str) -> str:
    """Return ``01-name.png`` for the file at ``path``, with ``_`` for characters that some systems reject."""
    stem = PurePosixPath(path).stem
    plain = "".join(c if c.isprintable() and c not in '\\:*?"<>|' else "_" for c in stem)
    return f"{number:02}-{plain.encode()[:LONGEST_NAME].decode(errors='ignore')}.png"


def _items(collection: Collection, ids: list[int]) -> list[Item | None]:
    """Return the items with these ids; None for those removed or replaced meanwhile."""
    try:
        return [*collection.items(ids)]
    except InputError:
        return [None] if len(ids) == 1 else [item for each in ids for item in _items(collection, [each])]


def _explained(model: Model, item: Item | None, vector: Vectors, score: float, path: Path | None) -> Explanation:
    if item is None:
        return Explanation(note=GONE)
    try:
        found, drawn = explain_item(model, item, vector)
    except MemoryError:
        return Explanation(note="not enough memory")
    except (VSEError, OSError) as error:
        return Explanation(note=str(getattr(error, "reason", error)))
    if abs(found.total - score) > SAME_SCORE:
        found = replace(found, note=f"adds up to {found.total:.3f}, and the score is {score:.3f}: computed differently")
    if path is None:
        return found
    replaced = path.exists()
    try:
        return replace(found, file=str(write_png(path, drawn)), replaced=replaced)
    except OSError as error:
        return replace(found, note=f"{path} cannot be written ({error.strerror or error})")


def _check_unchanged(file: MediaFile) -> None:
    """Compare size and time, as indexing does, and the digest if they differ."""
    path = Path(full_path(file))
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"the file cannot be read ({error.strerror or error})") from None
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified) and digest(path) != file.digest:
        raise InputError(CHANGED)
