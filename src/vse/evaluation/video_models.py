"""The scores that a model gives to the videos and sentences of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vse.evaluation.scores import DotScores, MatrixScores, Scores
from vse.evaluation.video import VideoTest
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.data.captioned_images import CaptionedImages
    from vse.hgr.model import HGRModel
    from vse.hgr.sentence_graphs import SentenceGraphs
    from vse.model import VSEModel
    from vse.onnx_model import OnnxModel


def video_scores(
    model: VSEModel | OnnxModel | HGRModel,
    data: CaptionedImages,
    test: VideoTest,
    *,
    graphs: SentenceGraphs | None = None,
    progress: ProgressReporter | None = None,
) -> Scores:
    """``(videos, sentences)``: of vectors where the model has them, of pairs otherwise.

    ``graphs`` are for a model that reads role graphs; without them it parses the sentences by rules.
    """
    report = progress or SilentProgress()
    given: Any = model
    if hasattr(model, "score_pairs"):
        matrix = given.score_pairs(data.images, test.sentences, graphs=graphs, progress=report, unknown="allow")
        return MatrixScores(matrix)
    videos = given.encode_videos(data.images, batch_size=64, progress=report, on_bad="raise")
    return DotScores(videos, given.encode_texts(test.sentences, progress=report, unknown="allow"))
