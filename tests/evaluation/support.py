"""Short cuts from arrays and datasets to results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vse.data.dataset import VIDEOS, CaptionedImages
from vse.evaluation.embeddings import Embeddings
from vse.evaluation.evaluate import Result, evaluate
from vse.evaluation.protocols import PROTOCOLS, Protocol
from vse.evaluation.retrieval_test import RetrievalTest, ScoredModel
from vse.evaluation.scores import Scores


def evaluate_embeddings(members: Sequence[Embeddings], protocol: Protocol, **options: Any) -> Result:
    """Measure the dot products of embeddings."""
    return evaluate([ScoredModel.of_embeddings(each) for each in members], protocol, **options)


def video_test(data: CaptionedImages) -> RetrievalTest:
    """Return the test of a split whose items are taken for videos."""
    return RetrievalTest.of(data, VIDEOS)


def evaluate_scores(scores: Scores, test: RetrievalTest, *, name: str = "model", **options: Any) -> Result:
    """Measure any scores on a test, without intervals unless ``samples`` are given."""
    member = ScoredModel(name, "0", {}, test, scores)
    return evaluate([member], PROTOCOLS["all"], **({"samples": None} | options))
