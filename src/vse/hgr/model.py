"""The HGR model: two encoders and their scores on three levels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vse.encoders.text import WordStates
from vse.errors import InputError
from vse.hgr.encoders import (
    GraphAttention,
    SentenceFeatures,
    TextEncoder,
    VideoEncoder,
    VideoFeatures,
    build_level_pooling,
)
from vse.hgr.scores import level_scores
from vse.models.config import HGRConfig
from vse.models.protocols import NO_VECTORS, Capabilities, Items
from vse.pooling.functional import Lengths
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.hgr.graphs import SentenceGraphs
    from vse.inputs.tokenizer import TextTokenizer


class HGRModel(nn.Module):
    """HGR, or HGR∞ if both poolings of ``config`` are ``"gpo"``, with random weights.

    :meth:`scores` is differentiable and serves as input of the losses of :mod:`vse.losses`. A sentence is compared with
    the frames of a video phrase by phrase, so neither has a single embedding.
    """

    no_vectors = NO_VECTORS.format(model="an HGR model", item="a video")
    reads_graphs = True
    side_types = (VideoFeatures, SentenceFeatures)
    preprocessing = None  # frames come as features
    image_backbone = None
    grid_cells = None

    def __init__(self, config: HGRConfig, tokenizer: TextTokenizer | None = None) -> None:
        super().__init__()
        size = config.embed_size
        if tokenizer is not None and tokenizer.vocab_size != config.vocabulary_size:
            raise InputError(
                f"the tokenizer knows {tokenizer.vocab_size} words, the text encoder {config.vocabulary_size}"
            )
        self.config = config
        self.tokenizer = tokenizer
        video_pooling, sentence_pooling = (
            build_level_pooling(each, size) for each in (config.video_pooling, config.sentence_pooling)
        )
        words = WordStates(config.vocabulary_size, config.word_size, size, config.dropout)
        graph = GraphAttention(size, config.graph_dropout)
        self.video_encoder = VideoEncoder(config.feature_size, size, video_pooling, config.dropout)
        self.text_encoder = TextEncoder(words, sentence_pooling, graph)

    @property
    def embed_size(self) -> int:
        """Dimensions of the features of each level."""
        return self.config.embed_size

    @property
    def feature_size(self) -> int:
        """The width of a frame's features."""
        return self.config.feature_size

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do: it scores frame features of videos with texts."""
        return Capabilities(images=False, texts=self.tokenizer is not None, videos=False, evidence=False, features=True)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """Return an array as a tensor where the parameters are."""
        return torch.from_numpy(array).to(self.device)

    def embed_videos(self, frames: Tensor, lengths: Lengths | None = None) -> VideoFeatures:
        """Encode ``frames (V, F, C)``, of which the first ``lengths (V,)`` are valid, into features of each level."""
        features: VideoFeatures = self.video_encoder(frames, lengths)
        return features

    def embed_sentences(
        self,
        tokens: Tensor,
        lengths: Lengths | None,
        *,
        verb_words: Tensor,
        noun_words: Tensor,
        roles: Tensor,
        edges: Tensor,
    ) -> SentenceFeatures:
        """Encode ``tokens (T, L)`` and the arrays of a ``GraphBatch`` into features of each level."""
        features: SentenceFeatures = self.text_encoder(tokens, lengths, verb_words, noun_words, roles, edges)
        return features

    def scores(self, videos: VideoFeatures, sentences: SentenceFeatures) -> Tensor:
        """Return the score ``(V, T)`` of every video with every sentence; see ``score_blocks`` for very many."""
        return level_scores(videos, sentences).mean

    def score_pairs(
        self,
        videos: Items,
        sentences: Sequence[str],
        *,
        graphs: SentenceGraphs | None = None,
        progress: ProgressReporter | None = None,
        unknown: Literal["error", "allow"] = "error",
    ) -> NDArray[np.float32]:
        """Return the score ``(V, T)`` of arrays of frames with texts; see :func:`vse.hgr.scores.score_pairs`."""
        from vse.hgr.scores import score_pairs

        return score_pairs(self, videos, sentences, graphs=graphs, progress=progress, unknown=unknown)

    def compile_encoders(self) -> NoReturn:
        """Raise InputError: HGR is not compiled."""
        raise InputError("an HGR model is not compiled: leave out run.compile")

    def encode_images(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InputError: HGR reads no images."""
        raise InputError(self.no_vectors)

    def encode_videos(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InputError: a video has no single embedding."""
        raise InputError(self.no_vectors)

    def encode_texts(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InputError: a sentence has no single embedding."""
        raise InputError(self.no_vectors)

    def save(self, folder: str | Path) -> Path:
        """Write ``config.json``, ``model.safetensors`` and the tokenizer into ``folder``, and return it."""
        from vse.models.storage import save_model

        return save_model(self, Path(folder))

    def architecture(self) -> dict[str, Any]:
        """Return the configuration, as in ``config.json``."""
        return self.config.model_dump()

    def fingerprint(self) -> str:
        """Return a hash of weights and input processing; models with equal fingerprints give equal scores."""
        from vse.models.storage import fingerprint

        return fingerprint(self)

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
        """Encode both sides in one call, as distributed training needs."""
        sentences = self.embed_sentences(
            tokens, token_lengths, verb_words=verb_words, noun_words=noun_words, roles=roles, edges=edges
        )
        return self.embed_videos(frames, frame_lengths), sentences
