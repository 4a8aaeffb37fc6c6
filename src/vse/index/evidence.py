"""Which parts of an image, or frames of a video, support a query: their contributions to the score."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vse._util.worker_process import Reply
from vse.errors import InputError
from vse.index.pipeline.reading import FRAMES
from vse.index.scan import VideoLimits
from vse.index.types import Vectors
from vse.inputs.files import BadMediaError
from vse.inputs.regions import Boxes, region_weights, window_boxes
from vse.inputs.video.file import open_video
from vse.inputs.video.reader import FrameReader
from vse.inputs.video.windows import WINDOW_SECONDS, WINDOWS, Window, read_window, spans
from vse.models.encode import SHORTEST
from vse.models.protocols import NO_EVIDENCE

if TYPE_CHECKING:
    from vse.inputs.images import ImageSource
    from vse.inputs.preprocessing import ImagePreprocessing
    from vse.models.protocols import EmbeddingModel

    Model: TypeAlias = EmbeddingModel

FOR = np.array([214, 40, 40], np.float32)
AGAINST = np.array([29, 78, 216], np.float32)
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
STRONGEST = 0.65
"""Opacity of the colour on the strongest cell."""
OUTLINED = 3
"""Boxes that are outlined in a drawing; more hide each other."""
SPREAD = 28
"""Rows and columns of the heat map of windows."""
LONGEST = 1600
"""Longest side of the drawing in pixels: blending at full resolution can take gigabytes."""


def cell_evidence(model: Model, picture: ImageSource, vector: Vectors) -> NDArray[np.float32]:
    """Return the contribution of each cell of an image to its score for a query, ``(rows, columns)``.

    The image's unit embedding is ``Σ_k θ_k max_k(φ_d) / ‖v‖`` in dimension d. Cell n, whose value φ_nd has rank r(n, d)
    there, contributes ``Σ_d u_d θ_r(n,d) φ_nd / ‖v‖`` to the score with the query u. The contributions sum to the score
    and may be negative.

    Args:
        model: A model that encodes images as a grid and pools them by weights on ranks.
        picture: The image.
        vector: Embedding of the query ``(D,)``.

    Raises:
        InputError: The model cannot tell (``capabilities.evidence``), or has embeddings of another width.
    """
    evidence = image_evidence(model, picture, vector)
    if isinstance(evidence, BoxEvidence):
        raise InputError(f"this model weighs {len(evidence.shares)} windows, not cells: use image_evidence")
    return evidence


class BoxEvidence(NamedTuple):
    """The contribution ``shares (N,)`` of each of the windows ``boxes (N, 4)`` to the score of an image.

    A box is left, top, right and bottom as shares of what the model sees; the contributions sum to the score.
    """

    boxes: Boxes
    shares: NDArray[np.float32]

    def density(self, rows: int, columns: int) -> NDArray[np.float32]:
        """Return the shares spread evenly over the area of their boxes, ``(rows, columns)``; the sum is the score."""
        weights = region_weights(self.boxes, (rows, columns))
        return (self.shares @ weights).reshape(rows, columns).astype(np.float32)


def image_evidence(model: Model, picture: ImageSource, vector: Vectors) -> NDArray[np.float32] | BoxEvidence:
    """Return the contributions of the parts of an image to its score: of its cells, or of the model's windows.

    Args:
        model: A model that encodes images as cells or windows and pools them by weights on ranks.
        picture: The image.
        vector: Embedding of the query ``(D,)``.

    Returns:
        ``(rows, columns)`` as :func:`cell_evidence` describes it, or the windows with theirs.

    Raises:
        InputError: The model cannot tell (``capabilities.evidence``), or has embeddings of another width.
    """
    how = model.preprocessing
    if how is None or not model.capabilities.evidence:
        raise InputError(NO_EVIDENCE)
    if vector.shape != (model.embed_size,):
        raise InputError(f"query vector of shape {vector.shape}, expected ({model.embed_size},): that of this model")
    from vse.inputs.decoding import decode_pixels

    pixels = decode_pixels(picture, how)[None]
    shares, grid = model.cell_contributions(pixels)
    parts = (shares.astype(np.float64) @ vector.astype(np.float64)).astype(np.float32)
    if grid is None:
        return BoxEvidence(window_boxes(len(parts)), parts)
    if grid[0] * grid[1] != len(parts):
        raise InputError(f"{len(parts)} cells for a grid of {grid}: their positions are unknown")
    return parts.reshape(grid)


def heat_map(picture: ImageSource, cells: NDArray[Any], how: ImagePreprocessing) -> NDArray[np.uint8]:
    """Draw the evidence over the image in grey, ``(H, W, 3)``: red for the query, blue against it.

    The strongest cell has the most colour; what the model did not see (a centre crop) has none. An image with a side
    above :data:`LONGEST` is downscaled.

    Args:
        picture: The image.
        cells: Evidence from :func:`cell_evidence`.
        how: Preprocessing of the model.
    """
    from vse.inputs.decoding import decode_image
    from vse.inputs.resizing import resize

    image = decode_image(picture, longest=LONGEST).astype(np.float32)
    image[:] = (image @ LUMINANCE)[:, :, None]  # its own colours could be mistaken for evidence
    top, left, height, width = seen(image.shape[:2], how)
    strongest = float(np.abs(cells).max())
    relative = (cells / strongest if strongest else np.zeros_like(cells)).astype(np.float32)
    smooth = resize(np.repeat(relative[:, :, None], 3, axis=2), (height, width))  # (height, width, 3), equal channels
    cover = STRONGEST * np.abs(smooth)
    part = image[top : top + height, left : left + width]
    image[top : top + height, left : left + width] = (1 - cover) * part + cover * np.where(smooth > 0, FOR, AGAINST)
    return image.round().clip(0, 255).astype(np.uint8)


def box_map(picture: ImageSource, evidence: BoxEvidence, how: ImagePreprocessing) -> NDArray[np.uint8]:
    """Draw the evidence of windows over the image in grey, ``(H, W, 3)``: a heat map, and the strongest boxes.

    Colour is the sum of the boxes at a place, each spread over its area. The :data:`OUTLINED` boxes that contribute
    most, for or against, are outlined with their contribution.
    """
    from PIL import Image, ImageDraw

    drawn = Image.fromarray(heat_map(picture, evidence.density(SPREAD, SPREAD), how))
    top, left, height, width = seen((drawn.height, drawn.width), how)
    pen = ImageDraw.Draw(drawn)
    for number in np.argsort(-np.abs(evidence.shares), kind="stable")[:OUTLINED][::-1].tolist():
        share = float(evidence.shares[number])
        sides = evidence.boxes[number] * np.array([width - 1, height - 1, width - 1, height - 1])
        x0, y0, x1, y1 = (sides + np.array([left, top, left, top])).round().astype(int).tolist()
        colour = tuple((FOR if share > 0 else AGAINST).astype(int).tolist())
        pen.rectangle((x0, y0, x1, y1), outline=colour, width=2)
        pen.text((x0 + 4, y0 + 2), f"{share:+.3f}", fill=colour, stroke_width=1, stroke_fill=(255, 255, 255))
    return np.asarray(drawn)


def write_png(path: Path, pixels: NDArray[np.uint8]) -> Path:
    """Write ``pixels (H, W, 3)`` as a PNG atomically, creating the folder if needed, and return the path."""
    if path.suffix.lower() != ".png":
        raise InputError(f"{path}: unknown image type {path.suffix!r}: the name must end in .png")
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".drawing-", dir=path.parent) as folder:
        beside = Path(folder) / path.name
        Image.fromarray(pixels).save(beside, format="PNG")
        beside.replace(path)
    return path


def seen(shape: tuple[int, int], how: ImagePreprocessing) -> tuple[int, int, int, int]:
    """Return the part of an image (H, W) that the model sees, as top, left, height and width in pixels."""
    rows, columns = shape
    if how.fit == "stretch":
        return 0, 0, rows, columns
    scale = max(how.resized[0] / rows, how.resized[1] / columns)
    height = min(rows, max(1, round(how.size[0] / scale)))
    width = min(columns, max(1, round(how.size[1] / scale)))
    return (rows - height) // 2, (columns - width) // 2, height, width


SAME_START = 1e-3
"""Tolerance in seconds."""


def moment_frames(path: str | Path, start: float, limits: VideoLimits | None = None) -> Window:
    """Return the frames that indexing took from the window beginning at ``start``, seeking directly to it.

    Raises:
        InputError: No window begins there, or none of its frames can be decoded.
    """
    from vse.inputs.decoding import video_replies

    task = f"{__name__}:moment_task"
    with closing(video_replies(task, path, {"start": start}, limits or VideoLimits())) as replies:
        reply = next(replies)
    if "refused" in reply.values:
        raise InputError(str(reply.values["refused"]))
    return Window(**{**reply.values, "times": tuple(reply.values["times"])}, frames=tuple(reply.arrays))


def moment_task(arguments: Mapping[str, Any], _: bytes) -> Iterator[Reply]:
    """Read the frames of :func:`moment_frames` in a worker process."""
    limits, start = VideoLimits(**arguments["limits"]), arguments["start"]
    try:
        with open_video(arguments["path"], limits) as clip, closing(FrameReader(clip)) as reader:
            span = min(spans(clip.duration, WINDOW_SECONDS, WINDOWS), key=lambda span: abs(span[0] - start))
            if abs(span[0] - start) > SAME_START:
                yield _refused(f"no moment of the video begins at {start:.3f} s")
                return
            window, _whole = read_window(reader, span, FRAMES, clip.aspect, limits.max_side)
    except BadMediaError as error:
        yield Reply({"error": error.reason})
        return
    if window is None:
        yield _refused(f"no frame of the video can be decoded at {start:.3f} s")
        return
    values = {"start": window.start, "end": window.end, "times": window.times, "remark": window.remark}
    yield Reply(values, window.frames)


def _refused(why: str) -> Reply:
    return Reply({"refused": f"{why}: index it again with 'vse index'"})


def frame_evidence(model: Model, window: Window, vector: Vectors) -> NDArray[np.float32]:
    """Return the contribution of each frame of a moment to its score for the query ``vector (D,)``, as ``(F,)``.

    Raises:
        InputError: The model does not read images, or has embeddings of another width.
    """
    if model.preprocessing is None:
        raise InputError("this model takes sets of features, not images: it cannot encode frames")
    if vector.shape != (model.embed_size,):
        raise InputError(f"query vector of shape {vector.shape}, expected ({model.embed_size},): that of this model")
    from vse.inputs.preprocessing import load_pixels

    pixels = np.stack([load_pixels(picture, model.preprocessing) for picture in window.frames])
    return shares(model.embed_images(pixels), vector)


def shares(frames: Vectors, vector: Vectors) -> NDArray[np.float32]:
    """Return ``u · v_f / (F ‖m‖)`` for each frame, ``(F,)``, where m is the mean of the unit embeddings v_f ``(F, D)``.

    They sum to the score ``u · m / ‖m‖`` of the moment with the query u, and may be negative.
    """
    wide = frames.astype(np.float64)
    length = float(np.linalg.norm(wide.mean(axis=0)))
    if not length > SHORTEST:  # also NaN
        raise InputError(f"the embeddings of {len(frames)} frames cancel each other: they have no common direction")
    return (wide @ vector.astype(np.float64) / (len(frames) * length)).astype(np.float32)
