"""The score matrix of many videos and many sentences, block by block in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vse.errors import InputError
from vse.hgr.level_features import SentenceFeatures, VideoFeatures
from vse.hgr.scores import ScoredVideos

MAX_BYTES = 1 << 26
MOST_VIDEOS = 64  # in a block: enough that preparing the phrases is nothing beside scoring them
ARRAYS = 4  # of F numbers for each pair of a video and a phrase, alive at the same time


def score_blocks(
    videos: VideoFeatures, sentences: SentenceFeatures, *, max_bytes: int = MAX_BYTES
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Blocks ``(rows, columns, scores)`` of the mean scores ``(V, T)``, row by row, without gradients.

    Everything a block allocates, itself included, stays within ``max_bytes``; the features are not copied.
    """
    high, wide = block_shape(videos, sentences, max_bytes)
    for top in range(0, len(videos), high):
        rows = slice(top, min(top + high, len(videos)))
        with torch.no_grad():
            prepared = ScoredVideos.of(videos.rows(rows))
        for left in range(0, len(sentences), wide):
            columns = slice(left, min(left + wide, len(sentences)))
            with torch.no_grad():
                block = prepared.scores(sentences.rows(columns)).mean
            yield rows, columns, block
            del block


def block_shape(videos: VideoFeatures, sentences: SentenceFeatures, max_bytes: int) -> tuple[int, int]:
    """How many videos and sentences a block may have."""
    frames, dim = videos.verb_frames.shape[1:]
    phrases = max(sentences.verbs.shape[1], sentences.nouns.shape[1])
    numbers = max_bytes // videos.whole.element_size()
    of_video = dim + 4 * frames * (frames + 3)  # two levels, and as much while they are prepared
    of_sentence = dim + 2 * phrases * dim + 4 * phrases  # phrases that exist, and the same with unit length
    of_pair = phrases * (ARRAYS * frames + 6) + 6
    for high in (max(1, min(MOST_VIDEOS, len(videos)) >> halved) for halved in range(MOST_VIDEOS.bit_length())):
        wide = (numbers - high * of_video) // (of_sentence + high * of_pair)
        if wide >= min(high, max(1, len(sentences))):  # a block of one column would be all preparation
            return high, min(wide, max(1, len(sentences)))
    least = (of_video + of_sentence + of_pair) * videos.whole.element_size()
    raise InputError(f"max_bytes {max_bytes} is too little for one video and one sentence: give at least {least}")
