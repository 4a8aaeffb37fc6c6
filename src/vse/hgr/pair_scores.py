"""Videos and sentences as people have them to the scores of all pairs: arrays of frames, texts, a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from vse.encoders.evaluation_mode import evaluation_mode
from vse.encoding import Items, read_ahead
from vse.errors import InputError
from vse.hgr.blocked_scores import score_blocks
from vse.hgr.graph_batch import GraphBatch
from vse.hgr.level_features import SentenceFeatures, VideoFeatures, join
from vse.hgr.sentence_graphs import SentenceGraphs
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vse.hgr.model import HGRModel

SENTENCES = 512  # whose features are held at once


@torch.inference_mode()
def video_features(
    model: HGRModel, videos: Items, *, batch_size: int = 64, progress: ProgressReporter | None = None
) -> VideoFeatures:
    """The features of videos, each an array of frames ``(n, C)``; while one batch is computed the next is read."""
    report = progress or SilentProgress()
    report.start(len(videos), "videos")
    parts = []
    with evaluation_mode(model):
        for start, arrays in read_ahead(lambda i: _checked(model, videos[i], i), len(videos), batch_size):
            lengths = torch.tensor([len(array) for array in arrays])
            frames = np.zeros((len(arrays), int(lengths.max()), model.feature_size), dtype=np.float32)
            for row, array in zip(frames, arrays, strict=True):
                row[: len(array)] = array
            parts.append(model.encode_videos(model.to_device(frames), lengths.to(model.device)))
            report.advance(min(batch_size, len(videos) - start))
    report.finish()
    return join(parts)


def sentence_batches(
    model: HGRModel, sentences: Sequence[str], graphs: SentenceGraphs | None = None
) -> Iterator[tuple[NDArray[np.int64], SentenceFeatures]]:
    """Places in ``sentences`` and the features of what stands there, sorted by length for less padding."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise InputError("this model has no vocabulary and cannot read text: save it with its tokenizer")
    given = graphs or SentenceGraphs.of(sentences, limit=tokenizer.max_length)
    batch = tokenizer.encode(sentences)
    order = np.argsort(batch.lengths, kind="stable")
    for first in range(0, len(order), SENTENCES):
        places = order[first : first + SENTENCES]
        lengths = batch.lengths[places]
        longest = int(lengths.max())
        arrays = GraphBatch.of([given[sentences[place]] for place in places], longest).arrays()
        tensors = {name: model.to_device(array) for name, array in arrays.items()}
        with torch.inference_mode(), evaluation_mode(model):
            tokens, sizes = model.to_device(batch.tokens[places, :longest]), model.to_device(lengths)
            features = model.encode_sentences(tokens, sizes, **tensors)
        yield places, features


def score_pairs(
    model: HGRModel,
    videos: Items,
    sentences: Sequence[str],
    *,
    graphs: SentenceGraphs | None = None,
    progress: ProgressReporter | None = None,
) -> NDArray[np.float32]:
    """The score ``(V, T)`` of every video with every sentence.

    Features of all videos are held, those of ``SENTENCES`` sentences at a time, and the matrix. Sentences without
    ``graphs`` are parsed by rules.
    """
    report = progress or SilentProgress()
    seen = video_features(model, videos, progress=report)
    scores = np.empty((len(seen), len(sentences)), dtype=np.float32)
    report.start(len(sentences), "scores")
    for places, features in sentence_batches(model, sentences, graphs):
        for rows, columns, block in score_blocks(seen, features):
            scores[rows, places[columns]] = block.float().cpu().numpy()
        report.advance(len(places))
    report.finish()
    return scores


def _checked(model: HGRModel, frames: Any, number: int) -> NDArray[Any]:
    array = np.asarray(frames)
    if array.ndim != 2 or array.shape[1] != model.feature_size or not len(array):
        raise InputError(f"video {number} is an array {array.shape}: expected frames (n, {model.feature_size})")
    if not np.isfinite(array).all():
        raise InputError(f"video {number} holds NaN or infinite values: extract its frames again")
    return array
