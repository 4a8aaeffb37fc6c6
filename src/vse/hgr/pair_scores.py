"""Videos and sentences as people have them to the scores of all pairs: arrays of frames, texts, a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from vse.data.video_frames import even_frames
from vse.encoders.evaluation_mode import evaluation_mode
from vse.encoding import Items, read_ahead
from vse.errors import InputError
from vse.hgr.blocked_scores import score_blocks
from vse.hgr.graph_batch import GraphBatch
from vse.hgr.level_features import SentenceFeatures, VideoFeatures, join
from vse.hgr.read_sentences import ReadSentences, read_sentences
from vse.hgr.sentence_graphs import SentenceGraphs
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.hgr.model import HGRModel

SENTENCES = 512  # whose features are held at once


@torch.inference_mode()
def video_features(
    model: HGRModel, videos: Items, *, batch_size: int = 64, progress: ProgressReporter | None = None
) -> VideoFeatures:
    """The features of videos, each an array of frames ``(n, C)``; while one batch is computed the next is read.

    Of more than 20 frames 20 are used, evenly spaced, as when data are read.
    """
    if isinstance(videos, np.ndarray) and videos.ndim == 2:
        videos = [videos]
    if len(videos) == 0:
        raise InputError(f"videos is empty: expected at least one array of frames (n, {model.feature_size})")
    report = progress or SilentProgress()
    report.start(len(videos), "videos")
    parts = []
    with evaluation_mode(model):
        for start, arrays in read_ahead(lambda i: _frames(model, videos[i], i), len(videos), batch_size):
            lengths = torch.tensor([len(array) for array in arrays])
            frames = np.zeros((len(arrays), int(lengths.max()), model.feature_size), dtype=np.float32)
            for row, array in zip(frames, arrays, strict=True):
                row[: len(array)] = array
            parts.append(model.embed_videos(model.to_device(frames), lengths.to(model.device)))
            report.advance(min(batch_size, len(videos) - start))
    report.finish()
    return join(parts)


def sentence_batches(model: HGRModel, read: ReadSentences) -> Iterator[tuple[NDArray[np.int64], SentenceFeatures]]:
    """Places in what was read and the features of what stands there, sorted by length for less padding."""
    order = np.argsort(read.tokens.lengths, kind="stable")
    for first in range(0, len(order), SENTENCES):
        places = order[first : first + SENTENCES]
        lengths = read.tokens.lengths[places]
        longest = int(lengths.max())
        arrays = GraphBatch.of([read.graphs[place] for place in places], longest).arrays()
        tensors = {name: model.to_device(array) for name, array in arrays.items()}
        with torch.inference_mode(), evaluation_mode(model):
            tokens, sizes = model.to_device(read.tokens.tokens[places, :longest]), model.to_device(lengths)
            features = model.embed_sentences(tokens, sizes, **tensors)
        yield places, features


def score_pairs(
    model: HGRModel,
    videos: Items,
    sentences: Sequence[str],
    *,
    graphs: SentenceGraphs | None = None,
    progress: ProgressReporter | None = None,
    unknown: Literal["error", "allow"] = "error",
) -> NDArray[np.float32]:
    """The score ``(V, T)`` of every video with every sentence.

    Of more than 20 frames of a video 20 are used, evenly spaced. Sentences may be written as people type them, and are
    parsed by rules; with ``graphs`` they are taken as they stand. One without a single word that the model knows is
    an error, ``unknown="allow"`` scores it all the same. Features of all videos are held, those of ``SENTENCES``
    sentences at a time, and the matrix.
    """
    report = progress or SilentProgress()
    read = read_sentences(model.tokenizer, sentences, graphs, unknown=unknown)
    seen = video_features(model, videos, progress=report)
    scores = np.empty((len(seen), len(read.graphs)), dtype=np.float32)
    report.start(len(read.graphs), "scores")
    for places, features in sentence_batches(model, read):
        for rows, columns, block in score_blocks(seen, features):
            scores[rows, places[columns]] = block.float().cpu().numpy()
        report.advance(len(places))
    report.finish()
    return scores


def _frames(model: HGRModel, given: Any, number: int) -> NDArray[Any]:
    array = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
    if array.ndim != 2 or array.shape[1] != model.feature_size or not len(array):
        found = f"an array {array.shape}" if array.ndim else repr(given)[:80]
        raise InputError(f"video {number} is {found}: expected an array of frames (n, {model.feature_size})")
    used = array[even_frames(len(array))]
    if not np.isfinite(used).all():
        raise InputError(f"video {number} holds NaN or infinite values: extract its frames again")
    return used
