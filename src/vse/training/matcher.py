"""What a training step asks of a model: two sides of tensors, row by row, and the scores of all pairs of rows."""

from __future__ import annotations

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
from vse.training.batches import Batch

Side = tuple[Tensor, ...]
"""Tensors whose row i belongs to sample i: vectors, or features of several levels and their masks."""
Arrays = dict[str, NDArray[Any] | None]


class Matcher(nn.Module):
    """A model as the step sees it. Rows of a side can be cut, joined and gathered from several processes."""

    seen: str
    """Which of the inputs holds pictures or features."""

    def inputs(self, batch: Batch) -> Arrays:
        """The arguments of :meth:`forward`, each with a row for every pair of the batch, or None."""
        raise NotImplementedError

    def forward(self, **inputs: Tensor | None) -> tuple[Side, Side]:
        """Images and texts."""
        raise NotImplementedError

    def scores(self, images: Side, texts: Side) -> Tensor:
        """``(B, B)``: every image with every text."""
        raise NotImplementedError

    def vectors(self, side: Side) -> Tensor:
        """Unit vectors ``(B, D)`` by which a collapse is recognised."""
        raise NotImplementedError


class VectorMatcher(Matcher):
    """Two towers: a side is one unit vector, the score their cosine."""

    seen = "images"

    def __init__(self, model: VSEModel) -> None:
        super().__init__()
        self.model = model

    def inputs(self, batch: Batch) -> Arrays:
        return {
            "images": batch.images,
            "tokens": batch.tokens,
            "image_lengths": batch.lengths,
            "text_lengths": batch.token_lengths,
            "image_mask": batch.mask,
        }

    def forward(self, **inputs: Tensor | None) -> tuple[Side, Side]:
        image, text = self.model(**inputs)
        return (image,), (text,)

    def scores(self, images: Side, texts: Side) -> Tensor:
        return images[0] @ texts[0].T

    def vectors(self, side: Side) -> Tensor:
        return side[0]


class LevelMatcher(Matcher):
    """HGR: a side is the features of three levels, the score the mean of theirs."""

    seen = "frames"

    def __init__(self, model: HGRModel) -> None:
        super().__init__()
        self.model = model

    def inputs(self, batch: Batch) -> Arrays:
        if batch.graphs is None:
            raise InputError("a batch without role graphs cannot be compared by its phrases")
        lengths = {"frame_lengths": batch.lengths, "token_lengths": batch.token_lengths}
        return {"frames": batch.images, "tokens": batch.tokens, **lengths, **batch.graphs.arrays()}

    def forward(self, **inputs: Tensor | None) -> tuple[Side, Side]:
        videos, sentences = self.model(**inputs)
        return _side(videos), _side(sentences)

    def scores(self, images: Side, texts: Side) -> Tensor:
        return self.model.scores(VideoFeatures(*images), SentenceFeatures(*texts))

    def vectors(self, side: Side) -> Tensor:
        return normalize(side[0], dim=1)  # the whole video, the whole sentence


def create_matcher(model: TorchModel) -> Matcher:
    """The one for a kind of model."""
    return LevelMatcher(model) if isinstance(model, PairScorer) else VectorMatcher(model)


def _side(features: VideoFeatures | SentenceFeatures) -> Side:
    return tuple(getattr(features, field.name) for field in fields(features))
