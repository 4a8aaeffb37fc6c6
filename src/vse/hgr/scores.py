"""Scores of pairs of a video and a sentence: by level, by phrase, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from vse.data.frames import even_frames
from vse.encoders.functional import evaluation_mode
from vse.errors import InputError
from vse.hgr.encoders import SentenceFeatures, VideoFeatures, join
from vse.hgr.graphs import GraphBatch, ReadSentences, SentenceGraphs, read_sentences
from vse.models.encode import read_ahead
from vse.models.protocols import Items
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.hgr.model import HGRModel


SHARPNESS = 4.0
SMALLEST = 1e-10  # length that a vector of zeros is divided by


@dataclass(frozen=True, eq=False)
class FrameSet:
    """The frames of V videos, prepared for scoring phrases.

    Attributes:
        frames: ``(V, F, D)``; padding must be finite.
        gram: ``(V, F, F)``, their dot products.
        inverse: ``(V, F, 1)``, 1 / length of a frame, 0 for padding.
        barrier: ``(V, F, 1)``, 0, -inf for padding.
    """

    frames: Tensor
    gram: Tensor
    inverse: Tensor
    barrier: Tensor

    @classmethod
    def of(cls, frames: Tensor, mask: Tensor) -> FrameSet:
        """Prepare ``frames (V, F, D)`` with ``mask (V, F)``."""
        gram = frames @ frames.mT
        lengths = (gram.diagonal(dim1=1, dim2=2) + SMALLEST**2).sqrt()
        inverse = lengths.reciprocal().masked_fill(~mask, 0)
        barrier = torch.zeros_like(inverse).masked_fill(~mask, float("-inf"))
        return cls(frames, gram, inverse.unsqueeze(-1), barrier.unsqueeze(-1))


def phrase_scores(videos: FrameSet, phrases: Tensor, phrase_mask: Tensor) -> Tensor:
    """Return scores ``(V, T)`` of ``phrases (T, P, D)`` with ``phrase_mask (T, P)``.

    Memory is a few arrays of F numbers for each pair of a video and an existing phrase. Where frames cancel, the length
    of the attended frame is a difference of large numbers: the float32 score is then off by about ``1e-7 r²``, with r
    the ratio of the frames' length to it.
    """
    unit = normalize(phrases[phrase_mask], dim=1, eps=SMALLEST)  # (N, D)
    found = _attended_cosines(videos, unit)  # (V, N)
    spread = found.new_zeros(len(found), *phrase_mask.shape)  # (V, T, P)
    number, place = phrase_mask.nonzero(as_tuple=True)
    spread = spread.index_put((torch.arange(len(found), device=found.device)[:, None], number, place), found)
    return spread.sum(dim=2) / phrase_mask.sum(dim=1).clamp(min=1)


def plain_phrase_scores(frames: Tensor, mask: Tensor, phrases: Tensor, phrase_mask: Tensor) -> Tensor:
    """Return the definition of :func:`phrase_scores`, of ``frames (V, F, D)`` and ``mask (V, F)``."""
    padding = ~mask[:, None, None, :]  # (V, 1, 1, F)
    unit = normalize(phrases, dim=2, eps=SMALLEST)
    cosines = torch.einsum("vfd,tpd->vtpf", normalize(frames, dim=2, eps=SMALLEST), unit)
    shown = normalize(cosines.relu().masked_fill(padding, 0), dim=3, eps=SMALLEST)
    attention = (SHARPNESS * shown).masked_fill(padding, float("-inf")).softmax(dim=3)
    attended = torch.einsum("vtpf,vfd->vtpd", attention, frames)
    scores = torch.einsum("vtpd,tpd->vtp", normalize(attended, dim=3, eps=SMALLEST), unit)
    return scores.masked_fill(~phrase_mask, 0).sum(dim=2) / phrase_mask.sum(dim=1).clamp(min=1)


def _attended_cosines(videos: FrameSet, unit: Tensor) -> Tensor:
    """Return the cosine ``(V, N)`` of each of ``unit (N, D)`` with what it attends to in each video."""
    raw = videos.frames @ unit.T  # (V, F, N)
    shown = (raw * videos.inverse).relu()
    scale = SHARPNESS / torch.linalg.vector_norm(shown, dim=1, keepdim=True).clamp(min=SMALLEST)  # (V, 1, N)
    attention = (shown * scale + videos.barrier).softmax(dim=1)
    del shown  # without gradients, a quarter of the memory
    dots = (attention * raw).sum(dim=1)
    del raw
    squares = (attention * (videos.gram @ attention)).sum(dim=1)
    # A dot product cannot exceed the length: where it does, frames cancel and the length is rounding noise.
    return dots / torch.maximum(squares, dots.square()).clamp(min=SMALLEST**2).sqrt()


@dataclass(frozen=True, eq=False)
class LevelScores:
    """Scores ``(V, T)`` of every video with every sentence, between -1 and 1."""

    sentence: Tensor
    verb: Tensor
    noun: Tensor

    @property
    def mean(self) -> Tensor:
        """The score for ranking. A sentence without verbs or nouns has 0 there; the mean is still over three."""
        return (self.sentence + self.verb + self.noun) / 3


@dataclass(frozen=True, eq=False)
class ScoredVideos:
    """Videos prepared once for many batches of sentences."""

    whole: Tensor
    verb: FrameSet
    noun: FrameSet

    @classmethod
    def of(cls, videos: VideoFeatures) -> ScoredVideos:
        """Prepare ``videos``."""
        whole = normalize(videos.whole, dim=1, eps=SMALLEST)
        return cls(whole, *(FrameSet.of(each, videos.mask) for each in (videos.verb_frames, videos.noun_frames)))

    def scores(self, sentences: SentenceFeatures) -> LevelScores:
        """Return the scores of these videos with ``sentences``; differentiable."""
        if self.whole.shape[1] != sentences.whole.shape[1]:
            raise InputError(
                f"videos of {self.whole.shape[1]} and sentences of {sentences.whole.shape[1]} dimensions have no scores"
            )
        return LevelScores(
            self.whole @ normalize(sentences.whole, dim=1, eps=SMALLEST).T,
            phrase_scores(self.verb, sentences.verbs, sentences.verb_mask),
            phrase_scores(self.noun, sentences.nouns, sentences.noun_mask),
        )


def level_scores(videos: VideoFeatures, sentences: SentenceFeatures) -> LevelScores:
    """Return the three scores of every video with every sentence; differentiable."""
    return ScoredVideos.of(videos).scores(sentences)


def plain_level_scores(videos: VideoFeatures, sentences: SentenceFeatures) -> LevelScores:
    """Return the definition of :func:`level_scores`, which needs D numbers for every pair of a video and a phrase."""
    whole = normalize(videos.whole, dim=1, eps=SMALLEST) @ normalize(sentences.whole, dim=1, eps=SMALLEST).T
    verb = plain_phrase_scores(videos.verb_frames, videos.mask, sentences.verbs, sentences.verb_mask)
    noun = plain_phrase_scores(videos.noun_frames, videos.mask, sentences.nouns, sentences.noun_mask)
    return LevelScores(whole, verb, noun)


MAX_BYTES = 1 << 26
MAX_VIDEOS = 64  # in a block: then preparing the phrases costs little beside scoring them
ARRAYS = 4  # of F numbers for each pair of a video and a phrase, alive at the same time


def score_blocks(
    videos: VideoFeatures, sentences: SentenceFeatures, *, max_bytes: int = MAX_BYTES
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield blocks ``(rows, columns, scores)`` of the mean scores ``(V, T)``, row by row, without gradients.

    Everything that a block allocates stays within ``max_bytes``; the features are not copied.
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
    """Return how many videos and sentences a block may have."""
    frames, dim = videos.verb_frames.shape[1:]
    phrases = max(sentences.verbs.shape[1], sentences.nouns.shape[1])
    numbers = max_bytes // videos.whole.element_size()
    of_video = dim + 4 * frames * (frames + 3)  # two levels, and as much while they are prepared
    of_sentence = dim + 2 * phrases * dim + 4 * phrases  # phrases that exist, and the same with unit length
    of_pair = phrases * (ARRAYS * frames + 6) + 6
    for high in (max(1, min(MAX_VIDEOS, len(videos)) >> halved) for halved in range(MAX_VIDEOS.bit_length())):
        wide = (numbers - high * of_video) // (of_sentence + high * of_pair)
        if wide >= min(high, max(1, len(sentences))):  # a block of one column would be all preparation
            return high, min(wide, max(1, len(sentences)))
    least = (of_video + of_sentence + of_pair) * videos.whole.element_size()
    raise InputError(f"max_bytes {max_bytes} is too little for one video and one sentence: give at least {least}")


SENTENCES = 512  # whose features are held at once


@torch.inference_mode()
def video_features(
    model: HGRModel, videos: Items, *, batch_size: int = 64, progress: ProgressReporter | None = None
) -> VideoFeatures:
    """Return the features of videos, each an array of frames ``(n, C)``; the next batch is prefetched.

    Of more than 20 frames, 20 evenly spaced ones are used, as when a dataset is read.
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
    """Yield indices of sentences and their features, sorted by length for less padding."""
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
    """Return the scores ``(V, T)`` of every video with every sentence.

    The features of all videos, those of ``SENTENCES`` sentences, and the matrix are held in memory.

    Args:
        model: an HGR model.
        videos: arrays of frames ``(n, C)``; of more than 20 frames, 20 evenly spaced ones are used.
        sentences: free text, which is parsed by rules; with ``graphs`` it is used unchanged.
        graphs: the role graphs of the sentences.
        progress: shows the work.
        unknown: whether a sentence without any known word is an error.

    Raises:
        InputError: a video or a sentence is invalid.
    """
    report = progress or SilentProgress()
    read = read_sentences(model.tokenizer, sentences, graphs, unknown=unknown)
    encoded = video_features(model, videos, progress=report)
    scores = np.empty((len(encoded), len(read.graphs)), dtype=np.float32)
    report.start(len(read.graphs), "scores")
    for places, features in sentence_batches(model, read):
        for rows, columns, block in score_blocks(encoded, features):
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
