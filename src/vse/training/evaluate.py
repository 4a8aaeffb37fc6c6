"""The figures of a model on a split, in one call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vse.data import CaptionedImages, VideoFrames
from vse.evaluation.metrics import DirectionMetrics, RetrievalMetrics
from vse.evaluation.positives import Positives, text_positives
from vse.evaluation.ranks import Ranks, ranks_both_ways
from vse.evaluation.scores import DotScores, Scores
from vse.evaluation.video import VideoTest, video_scores
from vse.hgr.graphs import SentenceGraphs
from vse.models.storage import TorchModel


@dataclass(frozen=True, eq=False)
class SplitRanks:
    """The ranks of the images and of the texts of a split, and the right texts of each image."""

    images: Ranks
    texts: Ranks
    right: Positives

    @property
    def metrics(self) -> RetrievalMetrics:
        """Recall and ranks both ways."""
        return RetrievalMetrics(DirectionMetrics.of(self.images), DirectionMetrics.of(self.texts))


def evaluate_split(model: TorchModel, data: CaptionedImages, graphs: SentenceGraphs | None = None) -> RetrievalMetrics:
    """The whole split, every image encoded once; of videos every distinct sentence, right for all that it describes."""
    return rank_split(model, data, graphs).metrics


def rank_split(model: TorchModel, data: CaptionedImages, graphs: SentenceGraphs | None = None) -> SplitRanks:
    """As :func:`evaluate_split`, query by query."""
    return rank_scores(split_scores(model, data, graphs), data)


def split_scores(model: TorchModel, data: CaptionedImages, graphs: SentenceGraphs | None = None) -> Scores:
    """``(images, texts)`` for every image and text of a split."""
    if isinstance(data.images, VideoFrames):
        return video_scores(model, data, VideoTest.of(data), graphs=graphs)
    images = model.encode_images(data.images, batch_size=64, on_bad="raise")
    return DotScores(images, model.encode_texts(data.captions, unknown="allow"), ("images", "texts"))


def rank_scores(scores: Scores, data: CaptionedImages) -> SplitRanks:
    """The ranks that scores of a split give."""
    right = right_texts(data)
    return SplitRanks(*ranks_both_ways(scores, right), right)


def right_texts(data: CaptionedImages) -> Positives:
    """The captions of each image; of videos those among the distinct sentences."""
    if isinstance(data.images, VideoFrames):
        return VideoTest.of(data).positives
    return text_positives(np.asarray(data.caption_to_image), len(data.images)).T
