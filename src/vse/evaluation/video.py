"""Video–text retrieval: distinct sentences are ranked, and one that describes several videos is right for each.

Captions of video data sets repeat: "a man is singing" describes dozens of videos. As in HGR, the candidates of a video
are the distinct sentences of the split, and the queries of the other direction are the same sentences, each once. A
sentence is right for every video that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse._version import __version__
from vse.errors import InputError
from vse.evaluation.bootstrap import LEVEL, FoldRanks, Interval, intervals, resample
from vse.evaluation.embeddings import split_hash
from vse.evaluation.evaluate import RECALL, TIE_RULES
from vse.evaluation.metrics import DirectionMetrics, RetrievalMetrics
from vse.evaluation.positives import Positives, distinct_sentences
from vse.evaluation.ranks import Ties, ranks_both_ways
from vse.evaluation.scores import DotScores, MatrixScores, Scores
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.data.dataset import CaptionedImages
    from vse.hgr.graphs import SentenceGraphs
    from vse.hgr.model import HGRModel
    from vse.models.onnx import OnnxModel
    from vse.models.vse_model import VSEModel


HEADS = ("v→t R@1", "R@5", "R@10", "t→v R@1", "R@5", "R@10", "rsum")
"""The columns of the paper's table, in its order."""
COLUMNS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
"""The figures below them, as everything that measures both directions calls them."""
UNIT = "videos, drawn with replacement; a sentence counts as often as its videos on average; gallery fixed"
PAPER_TESTS = {("msrvtt", "test", 2990): "msrvtt", ("vatex", "test-1500", 1500): "vatex"}
"""Data set and split, in lower case, and number of videos → the published protocol."""


@dataclass(frozen=True, eq=False)
class VideoTest:
    """What a model has to score: every video of a split against every distinct sentence.

    Attributes:
        sentences: the distinct captions, in the order in which they first stand.
        positives: the right sentences of each video.
        about: data set, split and counts, for the card.
    """

    sentences: tuple[str, ...]
    positives: Positives
    about: dict[str, Any]

    @classmethod
    def of(cls, data: CaptionedImages) -> VideoTest:
        """The test of a split; ``dropped`` videos and ``remarks``, where it has them, go to the card."""
        if not data.captions:
            raise InputError(f"{data.name}, split {data.split!r}: no captions, so there is nothing to search with")
        sentences, videos = distinct_sentences(data.captions, data.caption_to_image, len(data.images))
        right = videos.T
        about = {
            "data": data.name,
            "split": data.split,
            "split_hash": split_hash(data),
            "videos": len(data.images),
            "captions": len(data.captions),
            "sentences": len(sentences),
            "shared_sentences": int((videos.counts > 1).sum()),
            "sentences_per_video": {
                "min": int(right.counts.min()),
                "mean": float(right.counts.mean()),
                "max": int(right.counts.max()),
            },
            "dropped": list(getattr(data, "dropped", ())),
            "remarks": list(getattr(data, "remarks", ())),
        }
        return cls(sentences, right, about)

    @property
    def protocol(self) -> str | None:
        """The name under which the paper reports this test; None for any other."""
        name, split = self.about["data"].casefold(), self.about["split"].casefold()
        return PAPER_TESTS.get((name, split, self.about["videos"]))


@dataclass(frozen=True, eq=False)
class VideoResult:
    """One row of the table: ``metrics.i2t`` is video to text, ``metrics.t2i`` text to video."""

    name: str
    metrics: RetrievalMetrics
    card: dict[str, Any]
    intervals: dict[str, Interval] = field(default_factory=dict)
    draws: NDArray[np.float64] | None = None

    def row(self) -> tuple[str, ...]:
        """The cells under :data:`HEADS`, with one decimal as the paper prints them."""
        figures = (*self.metrics.i2t.recalls, *self.metrics.t2i.recalls, self.metrics.rsum)
        return tuple(f"{figure:.1f}" for figure in figures)

    def to_json(self) -> dict[str, Any]:
        """Figures and card."""
        both = {"v2t": self.metrics.i2t.to_json(), "t2v": self.metrics.t2i.to_json(), "rsum": self.metrics.rsum}
        spread = {directed(name): each.to_json() for name, each in self.intervals.items()}
        shown = {"intervals": spread} if spread else {}
        return {"name": self.name, "metrics": both, **shown, "card": self.card}


def evaluate_videos(
    scores: Scores,
    test: VideoTest,
    *,
    name: str = "model",
    ties: Ties = "pessimistic",
    samples: int | None = None,
    seed: int = 0,
    models: Sequence[dict[str, Any]] = (),
    progress: ProgressReporter | None = None,
) -> VideoResult:
    """Recall and ranks both ways for ``scores (videos, sentences)`` in the order of ``test.sentences``.

    Any scores do: :class:`DotScores` of two sets of vectors, a :class:`MatrixScores` that another model computed, a
    mean of several. A video without captions is a candidate and no query. ``samples`` draws of the videos give
    intervals; ``models`` go to the card.
    """
    rows, columns = ranks_both_ways(scores, test.positives, ties=ties, progress=progress)
    metrics = RetrievalMetrics(DirectionMetrics.of(rows), DirectionMetrics.of(columns))
    draws = None
    if samples is not None:
        draws = resample([FoldRanks(rows, columns, test.positives.T)], samples=samples, seed=seed)
    card = {
        **test.about,
        "protocol": test.protocol or "all",
        "candidates": "distinct sentences; one that several videos share is right for each",
        "queries": {"v2t": metrics.i2t.queries, "t2v": metrics.t2i.queries},
        "ties": ties,
        "tie_rule": TIE_RULES[ties],
        "recall": RECALL,
        "models": list(models),
        "ensemble": len(models) > 1,
        "vse_version": __version__,
    }
    if draws is not None:
        card["bootstrap"] = {"level": LEVEL, "samples": samples, "seed": seed, "unit": UNIT}
    return VideoResult(name, metrics, card, {} if draws is None else intervals(draws), draws)


def directed(name: str) -> str:
    """What a figure of both directions is called where images are videos: ``i2t_r1`` is ``v2t_r1``."""
    return name.replace("i2t", "v2t").replace("t2i", "t2v")


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
