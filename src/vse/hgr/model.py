"""The two encoders and their scores of three levels: the model that is trained."""

from __future__ import annotations

from torch import Tensor, nn

from vse.hgr.attention_pool import build_level_pooling
from vse.hgr.config import HGRConfig
from vse.hgr.graph_attention import GraphAttention
from vse.hgr.level_features import SentenceFeatures, VideoFeatures
from vse.hgr.scores import level_scores
from vse.hgr.text_encoder import TextEncoder
from vse.hgr.video_encoder import VideoEncoder
from vse.hgr.word_states import WordStates
from vse.pooling.sets import Lengths


class HGRModel(nn.Module):
    """HGR, or HGR∞ when both poolings of ``config`` are ``"gpo"``; new, with random weights.

    Everything is differentiable. A loss over a batch is one over :meth:`scores`, as in :mod:`vse.losses`.
    """

    def __init__(self, config: HGRConfig) -> None:
        super().__init__()
        size = config.embed_size
        self.config = config
        video_pooling, sentence_pooling = (
            build_level_pooling(each, size) for each in (config.video_pooling, config.sentence_pooling)
        )
        words = WordStates(config.vocabulary_size, config.word_size, size, config.dropout)
        graph = GraphAttention(size, config.graph_dropout)
        self.video_encoder = VideoEncoder(config.feature_size, size, video_pooling, config.dropout)
        self.text_encoder = TextEncoder(words, sentence_pooling, graph)

    def encode_videos(self, frames: Tensor, lengths: Lengths | None = None) -> VideoFeatures:
        """``frames (V, F, C)``, of which the first ``lengths (V,)`` count, to features of each level."""
        features: VideoFeatures = self.video_encoder(frames, lengths)
        return features

    def encode_sentences(
        self,
        tokens: Tensor,
        lengths: Lengths | None,
        *,
        verb_words: Tensor,
        noun_words: Tensor,
        roles: Tensor,
        edges: Tensor,
    ) -> SentenceFeatures:
        """``tokens (T, L)`` and their graphs, the arrays of a ``GraphBatch`` as tensors, to features of each level."""
        features: SentenceFeatures = self.text_encoder(tokens, lengths, verb_words, noun_words, roles, edges)
        return features

    def scores(self, videos: VideoFeatures, sentences: SentenceFeatures) -> Tensor:
        """The score ``(V, T)`` of every video with every sentence; see ``score_blocks`` for very many."""
        return level_scores(videos, sentences).mean

    def forward(
        self,
        frames: Tensor,
        tokens: Tensor,
        frame_lengths: Tensor | None = None,
        token_lengths: Tensor | None = None,
        *,
        verb_words: Tensor,
        noun_words: Tensor,
        roles: Tensor,
        edges: Tensor,
    ) -> tuple[VideoFeatures, SentenceFeatures]:
        """Both encoders at once, which is what several processes share."""
        sentences = self.encode_sentences(
            tokens, token_lengths, verb_words=verb_words, noun_words=noun_words, roles=roles, edges=edges
        )
        return self.encode_videos(frames, frame_lengths), sentences
