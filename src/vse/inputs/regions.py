"""Regions of an image: boxes from a grid of windows or from selective search, and pooling a feature map over them.

A box is ``(left, top, right, bottom)``, as shares of the width and height of what the network sees.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, require, unknown_choice

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing

BoxMethod = Literal["windows", "selective-search"]
BOX_METHODS: tuple[BoxMethod, ...] = get_args(BoxMethod)
Boxes = NDArray[np.float32]
LARGEST = 4096
"""Boxes of an image at most."""
SEARCH_SIDE = 256  # selective search takes time with the square of the side and finds large boxes as well on this one
SMALLEST_AREA = 0.01  # of a proposal; a smaller one lies within a cell of most feature maps
SAME = 0.7  # intersection over union from which two proposals are one


def window_boxes(count: int) -> Boxes:
    """Return ``count`` windows of several sizes, ``(count, 4)``; the same for every image.

    Level g has g × g windows of side 2 / (g + 1), each overlapping its neighbours by half. Levels 1, 2, 3, … are
    taken until there are enough windows: 1, 5, 14, 30 or 55 are complete levels. Of the last level, windows evenly
    spread over its rows are taken if not all are needed.

    >>> window_boxes(2).tolist()
    [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.6666666865348816, 0.6666666865348816]]

    Raises:
        InputError: If ``count`` is not between 1 and 4096.
    """
    check_count(count)
    boxes: list[tuple[float, float, float, float]] = []
    level = 0
    while len(boxes) < count:
        level += 1
        step = 1 / (level + 1)
        found = [
            (column * step, row * step, (column + 2) * step, (row + 2) * step)
            for row in range(level)
            for column in range(level)
        ]
        missing = count - len(boxes)
        if missing < len(found):
            found = [found[number] for number in np.linspace(0, len(found) - 1, missing).round().astype(int)]
        boxes += found
    return np.array(boxes, dtype=np.float32)


def propose_boxes(pixels: NDArray[np.float32], how: ImagePreprocessing, count: int, method: BoxMethod) -> Boxes:
    """Return ``count`` boxes of one image, ``(count, 4)``, largest first; the same boxes for the same pixels.

    Selective search merges segments that are alike; boxes around the merged segments are its proposals. Where it finds
    fewer than ``count`` that differ, windows fill the rest.

    Args:
        pixels: The image as the network takes it, ``(3, H, W)``.
        how: The preprocessing that made it.
        count: Number of boxes.
        method: One of :data:`BOX_METHODS`.

    Raises:
        InputError: If the method is unknown, or its package is missing.
    """
    windows = window_boxes(count)
    if method == "windows":
        return windows
    if method not in BOX_METHODS:
        raise InputError(unknown_choice("boxes", method, BOX_METHODS))
    found = _distinct(_selective_search(_image_of(pixels, how)))
    if len(found) > count:  # of all sizes: the largest alone would miss small objects
        found = found[np.linspace(0, len(found) - 1, count).round().astype(int)]
    return np.concatenate((found, windows))[:count]


def check_method(method: str) -> None:
    """Raise an error if boxes cannot be computed by this method: an unknown name, or a missing package."""
    if method not in BOX_METHODS:
        raise InputError(unknown_choice("boxes", method, BOX_METHODS))
    if method == "selective-search":
        _segmentation()


def check_count(count: int) -> None:
    """Raise an error unless ``count`` is a possible number of boxes."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= LARGEST:
        raise InputError(f"regions must be a whole number from 1 to {LARGEST}, got {count!r}")


def region_weights(boxes: Boxes, grid: tuple[int, int]) -> NDArray[np.float32]:
    """Return the weights ``(…, N, rows · columns)`` of cells in the mean over each of the boxes ``(…, N, 4)``.

    A cell counts with the area of it that lies inside the box, so that a box need not end where a cell does. Each row
    sums to 1: multiplied with the cells ``(rows · columns, C)`` the weights give the regions ``(N, C)`` (RoI pooling).
    """
    rows, columns = grid
    across = _overlaps(boxes[..., 0], boxes[..., 2], columns)  # (…, N, columns)
    down = _overlaps(boxes[..., 1], boxes[..., 3], rows)  # (…, N, rows)
    areas = down[..., :, None] * across[..., None, :]
    flat = areas.reshape(*areas.shape[:-2], rows * columns)
    return (flat / flat.sum(axis=-1, keepdims=True)).astype(np.float32)


@lru_cache(maxsize=32)
def window_weights(count: int, rows: int, columns: int) -> NDArray[np.float32]:
    """Return :func:`region_weights` of :func:`window_boxes`, computed once for a grid; do not write into it."""
    weights = region_weights(window_boxes(count), (rows, columns))
    weights.setflags(write=False)
    return weights


def _overlaps(first: NDArray[Any], last: NDArray[Any], cells: int) -> NDArray[np.float64]:
    """Return the length ``(…, cells)`` of each cell within a span; a span thinner than rounding keeps a little."""
    edges = np.arange(cells, dtype=np.float64)
    begin = np.clip(first.astype(np.float64)[..., None] * cells, 0, cells - 1e-6)
    end = np.maximum(np.clip(last.astype(np.float64)[..., None] * cells, 0, cells), begin + 1e-6)
    return np.clip(np.minimum(end, edges + 1) - np.maximum(begin, edges), 0, None)


def _image_of(pixels: NDArray[np.float32], how: ImagePreprocessing) -> NDArray[np.uint8]:
    """Undo the normalisation: ``(3, H, W)`` to RGB ``(H, W, 3)``, no side above ``SEARCH_SIDE``."""
    from vse.inputs.resizing import resize

    values = pixels.transpose(1, 2, 0) * np.array(how.std, np.float32) + np.array(how.mean, np.float32)
    image = values.round().clip(0, 255).astype(np.uint8)
    if how.channels == "bgr":
        image = image[:, :, ::-1]
    longer = max(image.shape[:2])
    if longer <= SEARCH_SIDE:
        return np.ascontiguousarray(image)
    height, width = (max(1, round(side * SEARCH_SIDE / longer)) for side in image.shape[:2])
    return resize(np.ascontiguousarray(image), (height, width), "bilinear").round().clip(0, 255).astype(np.uint8)


def _segmentation() -> Any:
    cv2: Any = require("cv2", "proposals", "boxes by selective search")
    try:
        return cv2, cv2.ximgproc.segmentation
    except AttributeError:
        raise InputError(
            "the installed OpenCV has no selective search: install opencv-contrib-python-headless in its place"
        ) from None


def _selective_search(image: NDArray[np.uint8]) -> Boxes:
    """Return all proposals for an RGB image as boxes, in any order."""
    cv2, segmentation = _segmentation()
    search = segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    search.switchToSelectiveSearchFast()
    found = np.asarray(search.process(), dtype=np.float32).reshape(-1, 4)  # left, top, width, height
    found[:, 2:] += found[:, :2]
    height, width = image.shape[:2]
    return (found / np.array([width, height, width, height], np.float32)).astype(np.float32)


def _distinct(boxes: Boxes) -> Boxes:
    """Return the boxes that are large enough and differ from every larger one, largest first."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = np.lexsort((*boxes.T, -areas))
    boxes, areas = boxes[order], areas[order]
    kept: list[int] = []
    for number in range(len(boxes)):
        if areas[number] < SMALLEST_AREA:
            break
        if not kept or float(_overlap(boxes[number], areas[number], boxes[kept], areas[kept]).max()) < SAME:
            kept.append(number)
    return boxes[kept]


def _overlap(box: Boxes, area: np.float32, others: Boxes, areas: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the intersection over union of a box with others."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = sides.clip(0).prod(axis=1)
    return common / (area + areas - common)
