"""Evaluation of cross-modal retrieval: exact ranks in blocks, with a card that describes the protocol."""

from vse.evaluation.metrics import DirectionMetrics, RetrievalMetrics, metrics_of_scores, retrieval_metrics
from vse.evaluation.positives import Positives, distinct_sentences, text_positives
from vse.evaluation.ranks import ranks, ranks_both_ways
from vse.evaluation.scores import DotScores, MatrixScores, MeanScores, Scores

__all__ = [
    "DirectionMetrics",
    "DotScores",
    "MatrixScores",
    "MeanScores",
    "Positives",
    "RetrievalMetrics",
    "Scores",
    "distinct_sentences",
    "metrics_of_scores",
    "ranks",
    "ranks_both_ways",
    "retrieval_metrics",
    "text_positives",
]
