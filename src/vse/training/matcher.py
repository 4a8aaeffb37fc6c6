"""How a training step uses a model: both sides as tensors, row by row, and the scores of all pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, cast

from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from vse.errors import InputError
from vse.hgr.model import HGRModel
from vse.losses import satisfied
from vse.models.storage import TorchModel
from vse.models.vse_model import VSEModel
from vse.systems.auxiliary import Reduction
from vse.systems.cross_encoder import CrossEncoder
from vse.systems.pair_model import PairModel
from vse.training.batches import Batch
from vse.training.guard import spread

Side = tuple[Tensor, ...]
"""Tensors whose row i belongs to sample i: embeddings, or features of several levels and their masks."""
Arrays = dict[str, NDArray[Any] | None]
Measures = tuple[float, float, float]


class Matcher(nn.Module):
    """Adapt a model to the training step; rows of a side can be split, joined and gathered from several processes."""

    item_input: str
    """The name of the input that holds pixels or features."""
    auxiliary_weights: Mapping[str, float] = {}
    """The auxiliary losses of the model's system, with their default weights."""

    def inputs(self, batch: Batch) -> Arrays:
        """Return the arguments of :meth:`forward`, each with a row for every pair of the batch, or None."""
        raise NotImplementedError

    def forward(self, **inputs: Tensor | None) -> tuple[Side, Side]:
        """Encode images and texts."""
        raise NotImplementedError

    def scores(self, images: Side, texts: Side) -> Tensor:
        """Return the scores ``(B, B)`` of every image with every text."""
        raise NotImplementedError

    def embeddings(self, side: Side) -> Tensor:
        """Return unit vectors ``(B, D)`` by which a collapse is detected."""
        raise NotImplementedError

    def measures(self, scores: Tensor, images: Side, texts: Side, ids: Tensor, margin: float) -> Measures:
        """Return the share of pairs without loss, and the spread of the embeddings of images and of texts."""
        image_spread, text_spread = (spread(self.embeddings(side).detach(), ids) for side in (images, texts))
        return satisfied(scores, ids, margin=margin), image_spread, text_spread

    def scoring_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that :meth:`scores` uses, by their names in the matcher; none by default."""
        return {}

    def auxiliary(
        self, images: Side, texts: Side, match: Callable[[Tensor], Tensor], reduction: Reduction
    ) -> dict[str, Tensor]:
        """Return the auxiliary losses of a batch by name, see :meth:`vse.systems.auxiliary.Auxiliary.losses`."""
        return {}


class EmbeddingMatcher(Matcher):
    """Two towers: a side is one embedding, the score is the cosine.

    A system with auxiliary losses adds tensors to the sides.
    """

    item_input = "images"

    def __init__(self, model: VSEModel) -> None:
        super().__init__()
        self.model = model
        if model.auxiliary is not None:
            self.auxiliary_weights = model.auxiliary.weights

    def inputs(self, batch: Batch) -> Arrays:
        return tower_inputs(batch)

    def forward(self, **inputs: Tensor | None) -> tuple[Side, Side]:
        if self.model.auxiliary is not None:
            return self.model.auxiliary.sides(self.model.image_encoder, self.model.text_encoder, inputs)
        image, text = self.model(**inputs)
        return (image,), (text,)

    def scores(self, images: Side, texts: Side) -> Tensor:
        return images[0] @ texts[0].T

    def embeddings(self, side: Side) -> Tensor:
        return side[0]

    def auxiliary(
        self, images: Side, texts: Side, match: Callable[[Tensor], Tensor], reduction: Reduction
    ) -> dict[str, Tensor]:
        system = self.model.auxiliary
        return {} if system is None else system.losses(images, texts, match, reduction)


class PairMatcher(Matcher):
    """A model that scores pairs: a side is the tensors of its features, a dataclass of ``model.side_types``."""

    def __init__(self, model: HGRModel | PairModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor | None) -> tuple[Side, Side]:
        images, texts = self.model(**inputs)
        return _side(images), _side(texts)

    def scores(self, images: Side, texts: Side) -> Tensor:
        image_type, text_type = cast(Any, self.model.side_types)
        return cast(Any, self.model).scores(image_type(*images), text_type(*texts))


class LevelMatcher(PairMatcher):
    """HGR: a side is the features of three levels, the score is the mean of their scores."""

    item_input = "frames"

    def inputs(self, batch: Batch) -> Arrays:
        if batch.graphs is None:
            raise InputError("a batch without role graphs cannot be scored by phrases")
        lengths = {"frame_lengths": batch.lengths, "token_lengths": batch.token_lengths}
        return {"frames": batch.images, "tokens": batch.tokens, **lengths, **batch.graphs.arrays()}

    def embeddings(self, side: Side) -> Tensor:
        return normalize(side[0], dim=1)  # the whole video, the whole sentence


class CrossMatcher(Matcher):
    """A cross-encoder: pairs are scored together, so a side is the logits ``(B, 3)`` of a pair and its negatives."""

    item_input = "regions"

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def inputs(self, batch: Batch) -> Arrays:
        count = len(batch)
        arrays = {
            "regions": batch.images,
            "tokens": batch.tokens,
            "region_lengths": batch.lengths,
            "token_lengths": batch.token_lengths,
        }
        return {
            name: None if array is None else array.reshape(count, -1, *array.shape[1:])
            for name, array in arrays.items()
        }

    def forward(self, **inputs: Tensor | None) -> tuple[Side, Side]:
        flat = {name: None if value is None else value.flatten(0, 1) for name, value in inputs.items()}
        tokens = inputs["tokens"]
        if tokens is None:
            raise InputError("a batch without tokens cannot be scored")
        return (self.model(**flat).view(tokens.shape[:2]),), ()

    def scores(self, images: Side, texts: Side) -> Tensor:
        return images[0]

    def measures(self, scores: Tensor, images: Side, texts: Side, ids: Tensor, margin: float) -> Measures:
        """A pair is satisfied if it scores above its negatives; there are no embeddings to collapse."""
        return float((scores[:, :1] > scores[:, 1:]).float().mean()), 1.0, 1.0


class SetMatcher(PairMatcher):
    """A system of sets: a side is their elements and mask; its guard looks at the mean of the elements."""

    item_input = "images"

    def inputs(self, batch: Batch) -> Arrays:
        return tower_inputs(batch)

    def embeddings(self, side: Side) -> Tensor:
        return normalize(side[0].sum(dim=1), dim=1)  # padding is zero

    def scoring_parameters(self) -> dict[str, nn.Parameter]:
        scoring = cast(PairModel, self.model).scoring
        return {f"model.scoring.{name}": parameter for name, parameter in scoring.named_parameters()}


def create_matcher(model: TorchModel) -> Matcher:
    """Return the matcher of a model: of its levels or sets if it scores pairs, else of embeddings."""
    if isinstance(model, CrossEncoder):
        return CrossMatcher(model)
    if isinstance(model, PairModel):
        return SetMatcher(model)
    return LevelMatcher(model) if isinstance(model, HGRModel) else EmbeddingMatcher(model)


def tower_inputs(batch: Batch) -> Arrays:
    """Return the arguments of a model of images and tokens."""
    return {
        "images": batch.images,
        "tokens": batch.tokens,
        "image_lengths": batch.lengths,
        "text_lengths": batch.token_lengths,
        "image_mask": batch.mask,
    }


def _side(features: Any) -> Side:
    return tuple(getattr(features, field.name) for field in fields(features))
