"""Captions that several videos share."""

from __future__ import annotations

import numpy as np
import pytest

from vse.errors import InputError
from vse.evaluation import DotScores, distinct_sentences, metrics_of_scores


def test_a_shared_sentence_is_right_for_each_of_its_videos():
    """Three videos, five captions, one of them twice: worked out by hand."""
    captions = ["a man runs", "a dog", "a man runs", "a cat", "a dog barks"]
    sentences, positives = distinct_sentences(captions, [0, 0, 1, 1, 2], 3)
    assert sentences == ("a man runs", "a dog", "a cat", "a dog barks")
    assert [positives.of(number).tolist() for number in range(4)] == [[0, 1], [0], [1], [2]]
    videos = np.eye(3)
    texts = np.array([[0.1, 0.9, 0.2], [0.5, 0.6, 0.0], [0.0, 1.0, 0.0], [0.3, 0.2, 0.1]])
    found = metrics_of_scores(DotScores(videos, texts), positives.T)
    # Sentence 0 finds video 1 first, sentence 1 finds its video second, 2 first, 3 last.
    assert found.t2i.mean_rank == pytest.approx((1 + 2 + 1 + 3) / 4)
    # Video 0: its sentence 1 (0.5) leads all; video 1: sentence 2 leads; video 2: sentence 0 (0.2) beats its own (0.1).
    assert found.i2t.mean_rank == pytest.approx((1 + 1 + 2) / 3)


def test_counts_that_do_not_fit_are_named():
    with pytest.raises(InputError, match="1 entries for 2 captions"):
        distinct_sentences(["a", "b"], [0], 1)
