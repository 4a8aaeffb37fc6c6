"""How a training step uses a model: both sides as tensors, row by row, and the scores of all pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from vse.errors import InputError
from vse.hgr.encoders import SentenceFeatures, VideoFeatures
from vse.hgr.model import HGRModel
from vse.models.protocols import PairScorer
from vse.models.storage import TorchModel
from vse.models.vse_model import VSEModel
from vse.systems.auxiliary import Reduction
from vse.training.batches import Batch

Side = tuple[Tensor, ...]
"""Tensors whose row i belongs to sample i: embeddings, or features of several levels and their masks."""
Arrays = dict[str, NDArray[Any] | None]


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
        return {
            "images": batch.images,
            "tokens": batch.tokens,
            "image_lengths": batch.lengths,
            "text_lengths": batch.token_lengths,
            "image_mask": batch.mask,
        }

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


class LevelMatcher(Matcher):
    """HGR: a side is the features of three levels, the score is the mean of their scores."""

    item_input = "frames"

    def __init__(self, model: HGRModel) -> None:
        super().__init__()
        self.model = model

    def inputs(self, batch: Batch) -> Arrays:
        if batch.graphs is None:
            raise InputError("a batch without role graphs cannot be scored by phrases")
        lengths = {"frame_lengths": batch.lengths, "token_lengths": batch.token_lengths}
        return {"frames": batch.images, "tokens": batch.tokens, **lengths, **batch.graphs.arrays()}

    def forward(self, **inputs: Tensor | None) -> tuple[Side, Side]:
        videos, sentences = self.model(**inputs)
        return _side(videos), _side(sentences)

    def scores(self, images: Side, texts: Side) -> Tensor:
        return self.model.scores(VideoFeatures(*images), SentenceFeatures(*texts))

    def embeddings(self, side: Side) -> Tensor:
        return normalize(side[0], dim=1)  # the whole video, the whole sentence


def create_matcher(model: TorchModel) -> Matcher:
    """Return the matcher of a model: of pairs if it scores pairs, else of embeddings."""
    return LevelMatcher(model) if isinstance(model, PairScorer) else EmbeddingMatcher(model)


def _side(features: VideoFeatures | SentenceFeatures) -> Side:
    return tuple(getattr(features, field.name) for field in fields(features))
