"""The score of a video and a sentence: as wholes, by verbs, by nouns, and the mean of the three."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import normalize

from vse.errors import InputError
from vse.hgr.level_features import SentenceFeatures, VideoFeatures
from vse.hgr.phrase_scores import SMALLEST, FrameSet, phrase_scores, plain_phrase_scores


@dataclass(frozen=True, eq=False)
class LevelScores:
    """Scores ``(V, T)`` of every video with every sentence, between -1 and 1."""

    sentence: Tensor
    verb: Tensor
    noun: Tensor

    @property
    def mean(self) -> Tensor:
        """The score that ranks. A sentence without verbs or nouns has 0 there, and the mean is still over three."""
        return (self.sentence + self.verb + self.noun) / 3


@dataclass(frozen=True, eq=False)
class ScoredVideos:
    """Videos prepared once for many batches of sentences."""

    whole: Tensor
    verb: FrameSet
    noun: FrameSet

    @classmethod
    def of(cls, videos: VideoFeatures) -> ScoredVideos:
        """What the scores need of ``videos``."""
        whole = normalize(videos.whole, dim=1, eps=SMALLEST)
        return cls(whole, *(FrameSet.of(each, videos.mask) for each in (videos.verb_frames, videos.noun_frames)))

    def scores(self, sentences: SentenceFeatures) -> LevelScores:
        """The scores of these videos with ``sentences``; differentiable."""
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
    """The three scores of every video with every sentence; differentiable."""
    return ScoredVideos.of(videos).scores(sentences)


def plain_level_scores(videos: VideoFeatures, sentences: SentenceFeatures) -> LevelScores:
    """The definition of :func:`level_scores`, which needs D numbers for every pair of a video and a phrase."""
    whole = normalize(videos.whole, dim=1, eps=SMALLEST) @ normalize(sentences.whole, dim=1, eps=SMALLEST).T
    verb = plain_phrase_scores(videos.verb_frames, videos.mask, sentences.verbs, sentences.verb_mask)
    noun = plain_phrase_scores(videos.noun_frames, videos.mask, sentences.nouns, sentences.noun_mask)
    return LevelScores(whole, verb, noun)
