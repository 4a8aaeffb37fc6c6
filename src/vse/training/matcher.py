"""How a training step uses a model: both sides as tensors, row by row, and the scores of all pairs of rows."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from vse.errors import InputError
from vse.hgr.encoders import SentenceFeatures, VideoFeatures
from vse.hgr.model import HGRModel
from vse.losses import satisfied
from vse.models.protocols import PairScorer
from vse.models.storage import TorchModel
from vse.models.vse_model import VSEModel
from vse.systems.cross_encoder import CrossEncoder
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


class EmbeddingMatcher(Matcher):
    """Two towers: a side is one embedding, the score is the cosine."""

    item_input = "images"

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

    def embeddings(self, side: Side) -> Tensor:
        return side[0]


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


def create_matcher(model: TorchModel) -> Matcher:
    """Return the matcher of a model: of pairs if it scores pairs, else of embeddings."""
    if isinstance(model, CrossEncoder):
        return CrossMatcher(model)
    return LevelMatcher(model) if isinstance(model, PairScorer) else EmbeddingMatcher(model)


def _side(features: VideoFeatures | SentenceFeatures) -> Side:
    return tuple(getattr(features, field.name) for field in fields(features))
