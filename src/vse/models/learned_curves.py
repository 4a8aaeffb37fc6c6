"""Read the pooling curves of a torch model at the set sizes it is used with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vse.errors import InputError
from vse.models.config import CrossConfig, HGRConfig, PairConfig
from vse.models.curves import PoolingCurve, Tower
from vse.models.pair_options import UNPOOLED
from vse.pooling import GeMPool, RankPooling

if TYPE_CHECKING:
    from vse.models.storage import TorchModel
    from vse.models.vse_model import VSEModel
    from vse.systems.pair_model import PairModel

REGION_SIZES = (10, 20, 36, 50, 100)
"""Set sizes shown for a model of regions; detectors give 36 of them, or 10 to 100."""
FRAME_SIZES = (5, 10, 20)
TEXT_SIZES = (6, 12, 24, 48)
REASONS = {
    "none": "elements are compared one by one and not pooled",
    "own": "the model was published with a pooling of its own",
    "attention": "each element decides its own weight by its values",
    "cls": "it takes the first element, whatever its values",
    "last": "it takes the last element, whatever its values",
    "self-attention": "its elements look at each other before they are averaged",
    "seq2seq": "a GRU reads the elements in their order",
    "gcn-avg": "a graph network mixes the elements before they are averaged",
    "gcn-seq2seq": "a graph network and a GRU mix the elements",
}
"""Why poolings that do not sort have no curve."""
DIGITS = 7  # of a float32


def curves_of(model: TorchModel) -> list[PoolingCurve]:
    """Return the curves of both towers, or one entry with a note for a pooling without curves.

    Image sizes are the model's number of cells or patches, half and a quarter of it; :data:`REGION_SIZES` for a model
    of regions and :data:`FRAME_SIZES` for one of videos. Sizes that the pooling does not support are skipped. HGR has
    the poolings of whole videos and sentences.
    """
    given: Any = model
    if isinstance(given.config, CrossConfig):
        return []
    if isinstance(given.config, PairConfig):
        return [*_tower_curves("image", UNPOOLED, None, ()), *_tower_curves("text", UNPOOLED, None, ())]
    if not isinstance(given.config, HGRConfig):
        image, text = given.config.image.pooling.name, given.config.text.pooling.name
        encoder, sizes = given.image_encoder, _image_sizes(given)
    else:
        image, text = given.config.video_pooling.name, given.config.sentence_pooling.name
        encoder, sizes = given.video_encoder, FRAME_SIZES
    return [
        *_tower_curves("image", image, getattr(encoder, "pooling", None), sizes),
        *_tower_curves("text", text, getattr(given.text_encoder, "pooling", None), TEXT_SIZES),
    ]


def _image_sizes(model: VSEModel | PairModel) -> tuple[int, ...]:
    if model.config.image.kind == "frames":
        return FRAME_SIZES
    cells = model.grid_cells
    if cells is None:
        return REGION_SIZES
    return tuple(sorted({max(1, cells // 4), max(1, cells // 2), cells}))


def _tower_curves(tower: Tower, name: str, pooling: Any, sizes: Sequence[int]) -> list[PoolingCurve]:
    if isinstance(pooling, GeMPool):
        p = max(float(pooling.p.detach()), pooling.MIN_P)
        note = f"a generalized mean with p = {p:.3g} (1 is the mean, larger is nearer to the maximum): no curve by rank"
        return [PoolingCurve(tower, name, note=note, exponent=p if math.isfinite(p) else None)]
    if not isinstance(pooling, RankPooling):
        reason = REASONS.get(name, "it does not weight ranks by the size of the set")
        return [PoolingCurve(tower, name, note=f"{reason}: no curve by rank")]
    curves, reason = [], ""
    for size in sizes:
        try:
            weights = pooling.coefficients(size).detach().double().cpu().numpy()  # (N,) or (N, D)
        except InputError as error:
            reason = str(error)
            continue
        mean = weights if weights.ndim == 1 else weights.mean(axis=1)
        if not np.isfinite(mean).all() or not mean.any():  # training diverged: the model can still be saved
            reason = f"the coefficients for sets of {size} are not finite or all zero: no curve"
            continue
        short = tuple(float(f"{weight:.{DIGITS}g}") for weight in mean)
        curves.append(PoolingCurve(tower, name, size, short, per_dimension=weights.ndim == 2))
    return curves or [PoolingCurve(tower, name, note=reason)]
