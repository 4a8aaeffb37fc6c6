"""The figures of a model on a split, in one call."""

from __future__ import annotations

import numpy as np

from vse.data import CaptionedImages, VideoFrames
from vse.evaluation.metrics import RetrievalMetrics, metrics_of_scores, retrieval_metrics
from vse.evaluation.video import VideoTest
from vse.evaluation.video_models import video_scores
from vse.hgr.sentence_graphs import SentenceGraphs
from vse.storage import TorchModel


def evaluate_split(model: TorchModel, data: CaptionedImages, graphs: SentenceGraphs | None = None) -> RetrievalMetrics:
    """The whole split, every image encoded once; of videos every distinct sentence, right for all that it describes."""
    if isinstance(data.images, VideoFrames):
        test = VideoTest.of(data)
        return metrics_of_scores(video_scores(model, data, test, graphs=graphs), test.positives)
    images = model.encode_images(data.images, batch_size=64, on_bad="raise")
    texts = model.encode_texts(data.captions, unknown="allow")
    return retrieval_metrics(images, texts, np.asarray(data.caption_to_image))
