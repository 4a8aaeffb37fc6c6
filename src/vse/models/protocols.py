"""What a model can do, as protocols: the rest of the package asks for a capability, never for a class. No torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing
    from vse.inputs.tokenizer import TextTokenizer
    from vse.models.curves import PoolingCurve
    from vse.models.encode import BadImage
    from vse.models.encode_videos import VideoEmbedder
    from vse.progress import ProgressReporter

Vectors: TypeAlias = NDArray[np.float32]
"""Embeddings, ``(n, D)`` float32 of unit length."""
NO_VECTORS = (
    "{model} scores pairs of {item} and a sentence and has no single vector of either: ask it with score_pairs or "
    "'vse eval', or use a VSE model, which can be indexed and searched"
)
"""Why a model that scores pairs cannot be indexed, searched or exported."""
NO_EVIDENCE = (
    "this model cannot tell what each cell of an image contributes to the score, so images have no evidence "
    "('vse inspect MODEL' lists what a model can do)"
)
NO_RERANKER = (
    "a model with one embedding per image and text, which cannot re-rank what another one found: name a model that "
    "scores pairs, such as a cross-encoder"
)
IMAGES_PER_CALL = 4  # where several threads call at once


@runtime_checkable
class Items(Protocol):
    """Anything with a length and an index: a list, a tuple, the images of a dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


Images: TypeAlias = Items | NDArray[Any] | str | os.PathLike[str]


@runtime_checkable
class TensorLike(Protocol):
    """A torch tensor, recognised without importing torch."""

    def detach(self) -> Any:
        """Return it without gradients."""


class ParallelCalls(NamedTuple):
    """How many threads should call ``embed_images`` at once, and with how many images each."""

    threads: int
    images: int

    @classmethod
    def sharing(cls, cores: int, batch_size: int) -> ParallelCalls:
        """Return one call per core with ``batch_size`` images at most in total.

        A call with few images keeps its activations in the cache of its core, and concurrent calls do not wait for
        each other at every layer as the threads of one call do.
        """
        images = min(batch_size, IMAGES_PER_CALL)
        return cls(max(min(cores, batch_size // images), 1), images)


class Capabilities(NamedTuple):
    """What a model can do.

    Attributes:
        images: It takes images.
        texts: It takes texts; without a vocabulary it takes token ids only.
        videos: It encodes video files.
        evidence: It tells what each grid cell of an image contributes (``cell_contributions``). The contributions of
            video frames need no such ability: a moment is the mean of its frames.
        features: It takes precomputed features of cells, regions or frames.
    """

    images: bool
    texts: bool
    videos: bool
    evidence: bool
    features: bool


class ItemInputs(Protocol):
    """How the images, or their features, that a model takes are prepared."""

    @property
    def feature_size(self) -> int:
        """Width of an image's features, for calls that pass features instead of images."""

    @property
    def takes_frames(self) -> bool:
        """Whether features are those of video frames, of which 20 are used, evenly spaced."""

    @property
    def preprocessing(self) -> ImagePreprocessing | None:
        """How images are prepared; None for a model that takes features only."""


class Towers(ItemInputs, Protocol):
    """What a runtime (torch, ONNX Runtime) provides: how inputs are prepared, and the embeddings of one batch."""

    @property
    def embed_size(self) -> int:
        """Dimensions of an embedding."""

    @property
    def tokenizer(self) -> TextTokenizer | None:
        """How texts become tokens; None if a converted model has no vocabulary."""

    def embed_images(self, batch: NDArray[Any], lengths: NDArray[np.int64] | None = None) -> Vectors:
        """Return the embeddings ``(B, D)`` of pixels ``(B, 3, H, W)`` or features ``(B, N, F)``."""

    def embed_tokens(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> Vectors:
        """Return the embeddings ``(B, D)`` of tokens ``(B, L)``."""


class VideoTowers(Towers, Protocol):
    """A runtime that can also encode video files."""

    def video_embedder(self) -> VideoEmbedder:
        """Return how a video file is encoded; a model that cannot read videos fails when given one."""


class EmbeddingModel(VideoTowers, Protocol):
    """A model with one embedding per image, video and text; the score of a pair is their cosine."""

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do."""

    def encode_images(
        self,
        images: Images,
        *,
        batch_size: int = ...,
        progress: ProgressReporter | None = ...,
        on_bad: Literal["report", "raise"] = ...,
        problems: list[BadImage] | None = ...,
    ) -> Vectors:
        """Return the embeddings of images or feature sets."""

    def encode_texts(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = ...,
        progress: ProgressReporter | None = ...,
        unknown: Literal["error", "allow"] = ...,
    ) -> Vectors:
        """Return the embeddings of texts."""

    def encode_videos(
        self,
        videos: Images,
        *,
        batch_size: int = ...,
        progress: ProgressReporter | None = ...,
        on_bad: Literal["report", "raise"] = ...,
        problems: list[BadImage] | None = ...,
    ) -> Vectors:
        """Return the embeddings of videos or of their frame features."""

    def parallel_calls(self, batch_size: int) -> AbstractContextManager[ParallelCalls]:
        """Share the cores between concurrent calls of ``embed_images`` within the context."""

    def cell_contributions(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], tuple[int, int] | None]:
        """Return what each grid cell of one image adds to its embedding, ``(N, D)``, and the grid's shape.

        A shape of None stands for N windows, :func:`vse.inputs.regions.window_boxes`, in place of cells.

        Raises:
            InputError: If ``capabilities.evidence`` is false.
        """

    def backbone_fingerprint(self) -> str | None:
        """Return the fingerprint of the backbone that computes cell features; None if it cannot take its features."""

    def pooling_curves(self) -> Sequence[PoolingCurve]:
        """Return the weights that the poolings give to each rank; empty if they are not recorded."""

    def architecture(self) -> dict[str, Any]:
        """Return the configuration of the torch model, as in its ``config.json``."""

    def fingerprint(self) -> str:
        """Return a short name for exactly these weights and inputs."""


@runtime_checkable
class PairScorer(Protocol):
    """A model that scores pairs of items and texts and has no single embedding of either."""

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do."""

    @property
    def tokenizer(self) -> TextTokenizer | None:
        """How texts become tokens."""

    @property
    def no_vectors(self) -> str:
        """Why it has no embeddings, for whoever asks for them; see :data:`NO_VECTORS`."""

    @property
    def reads_graphs(self) -> bool:
        """Whether ``score_pairs`` takes the role graphs of texts, as ``graphs``."""

    def score_pairs(
        self,
        items: Any,
        texts: Sequence[str],
        /,
        *,
        progress: ProgressReporter | None = ...,
        unknown: Literal["error", "allow"] = ...,
    ) -> NDArray[np.float32]:
        """Return the score ``(V, T)`` of every item with every text."""

    def architecture(self) -> dict[str, Any]:
        """Return the configuration, as in ``config.json``."""

    def fingerprint(self) -> str:
        """Return a short name for exactly these weights and inputs."""


@runtime_checkable
class CandidateScorer(Protocol):
    """A :class:`PairScorer` whose cost is that of the pairs it is asked for: a cross-encoder, SCAN, IMRAM or CAAN."""

    def score_candidates(
        self,
        images: Items,
        texts: Sequence[str],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        *,
        progress: ProgressReporter | None = ...,
    ) -> NDArray[np.float32]:
        """Return the scores ``(n,)`` of the pairs of ``images[rows[k]]`` and ``texts[columns[k]]``."""


AnyModel: TypeAlias = EmbeddingModel | PairScorer
