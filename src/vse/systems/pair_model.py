"""Models of two encoders of sets and a score of pairs of sets: SCAN, IMRAM and CAAN, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vse.encoders.functional import evaluation_mode, unit_norm
from vse.encoders.image import GridEncoder
from vse.encoders.text import BiGRUEncoder
from vse.errors import InputError
from vse.hgr.encoders import join
from vse.models.build import build_image_encoder, build_text_encoder
from vse.models.config import PairConfig, PoolingConfig
from vse.models.encode import as_sources, as_texts, image_batches, token_batches
from vse.models.pair_options import CaanOptions, ImramOptions, read_options, system_label
from vse.models.protocols import NO_VECTORS, Capabilities, Images
from vse.pooling.functional import Lengths
from vse.progress import ProgressReporter, SilentProgress
from vse.systems.context_attention import ContextAwareAttention
from vse.systems.cross_attention import PairScoring, RecurrentAttentionMemory, Sets, StackedCrossAttention

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing
    from vse.inputs.tokenizer import TextTokenizer

MAX_BYTES = 1 << 27
"""Memory of a block of scores."""
GRADIENT_BYTES = 1 << 29
"""Memory of the scores of a batch in training; a larger batch computes its blocks again in the backward pass."""
MAX_PAIRS = 1024
"""Candidates of a text that are scored together: their elements are copied."""
TEXTS = 512  # whose elements are held at once
GROUPS, LEAST_ALIKE = 4, 16  # groups of texts of similar length in training, and the fewest texts of a group


def create_scoring(config: PairConfig) -> PairScoring:
    """Return the scores of a configuration's system."""
    options = read_options(config.system, config.options)
    if isinstance(options, CaanOptions):
        return ContextAwareAttention(options, config.embed_size)
    if isinstance(options, ImramOptions):
        return RecurrentAttentionMemory(options, config.embed_size)
    return StackedCrossAttention(options)


def block_shape(scoring: PairScoring, images: Sets, texts: Sets, max_bytes: int) -> tuple[int, int]:
    """Return how many images and texts a block may have."""
    regions, size = images.elements.shape[1:]
    each = scoring.numbers(regions, texts.elements.shape[1], size) * images.elements.element_size()
    pairs = max(1, max_bytes // each)
    wide = min(len(texts), max(1, round(pairs**0.5)))
    high = max(1, min(len(images), pairs // max(1, wide)))
    return high, max(1, min(len(texts), pairs // high))


def score_blocks(
    scoring: PairScoring, images: Sets, texts: Sets, *, max_bytes: int = MAX_BYTES
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield blocks ``(rows, columns, scores)`` of the scores ``(B, T)``, row by row, without gradients.

    A block allocates about ``max_bytes``, or what one pair needs if that is more; the sets are not copied.
    """
    high, wide = block_shape(scoring, images, texts, max_bytes)
    for rows in _slices(len(images), high):
        for columns in _slices(len(texts), wide):
            with torch.no_grad():
                block = scoring(images.rows(rows), texts.rows(columns).trimmed())
            yield rows, columns, block
            del block


def pair_scores(scoring: PairScoring, images: Sets, texts: Sets, *, max_bytes: int = GRADIENT_BYTES) -> Tensor:
    """Return the scores ``(B, T)`` of every image with every text; differentiable.

    Texts of similar length are scored together, so that little of the work is padding. Where more than ``max_bytes``
    would be kept for the backward pass, the scores are computed in blocks, and once more in the backward pass.
    """
    order = texts.mask.sum(dim=1).argsort(stable=True)
    high, wide = block_shape(scoring, images, texts, max_bytes // 2)  # as much again is kept for the gradients
    again = high < len(images) or wide < len(texts)
    if again:
        high, wide = block_shape(scoring, images, texts, min(MAX_BYTES, max_bytes) // 2)
    alike = min(wide, max(LEAST_ALIKE, -(-len(texts) // GROUPS)))

    def block(*tensors: Tensor) -> Tensor:
        return cast(Tensor, scoring(Sets(*tensors[:2]), Sets(*tensors[2:])))

    def scored(rows: slice, group: Sets) -> Tensor:
        parts = (images.elements[rows], images.mask[rows], group.elements, group.mask)
        return (
            cast(Tensor, checkpoint(block, *parts, use_reentrant=False, preserve_rng_state=False))
            if again
            else (block(*parts))
        )

    groups = [texts.rows(order[columns]).trimmed() for columns in _slices(len(texts), alike)]
    lines = [torch.cat([scored(rows, group) for group in groups], dim=1) for rows in _slices(len(images), high)]
    return torch.cat(lines)[:, order.argsort()]


def _slices(count: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


class PairModel(nn.Module):
    """``image_encoder`` and ``text_encoder`` give sets of unit vectors, ``scoring`` the score of two sets.

    :meth:`scores` is differentiable and serves as input of the losses of :mod:`vse.losses`. An image is compared with
    a text element by element, so neither has a single embedding.
    """

    reads_graphs = False
    side_types = (Sets, Sets)
    takes_frames = False

    def __init__(
        self,
        image_encoder: nn.Module,
        text_encoder: nn.Module,
        scoring: PairScoring,
        config: PairConfig,
        tokenizer: TextTokenizer | None = None,
    ) -> None:
        super().__init__()
        self.image_encoder = image_encoder
        self.text_encoder = text_encoder
        self.scoring = scoring
        self.config = config
        self.tokenizer = tokenizer
        self._preprocessing = config.preprocessing()

    @classmethod
    def build(
        cls, config: PairConfig, tokenizer: TextTokenizer | None = None, *, pretrained: bool = False
    ) -> PairModel:
        """Build a model with random weights.

        Args:
            config: describes the model.
            tokenizer: of its texts.
            pretrained: load the published weights of an image backbone.

        Raises:
            InputError: configuration and tokenizer do not match.
        """
        free = {"pooling": PoolingConfig(name="avg")}  # without parameters, and never called
        image_encoder, image = build_image_encoder(
            config.image.model_copy(update=free), config.embed_size, pretrained=pretrained
        )
        text_encoder, _ = build_text_encoder(config.text.model_copy(update=free), config.embed_size)
        words = cast(BiGRUEncoder, text_encoder).embed.num_embeddings
        if tokenizer is not None and tokenizer.vocab_size != words:
            raise InputError(f"the tokenizer knows {tokenizer.vocab_size} words, the text encoder {words}")
        complete = config.model_copy(update={"image": image.model_copy(update={"pooling": config.image.pooling})})
        return cls(image_encoder, text_encoder, create_scoring(config), complete, tokenizer)

    @property
    def embed_size(self) -> int:
        """Dimensions of an element."""
        return self.config.embed_size

    @property
    def feature_size(self) -> int:
        """Width of the features that the image encoder projects."""
        return int(cast(Any, self.image_encoder).feature_size)

    @property
    def image_backbone(self) -> nn.Module | None:
        """The network that computes the cells of an image; None for a model of features."""
        return self.image_encoder.backbone if isinstance(self.image_encoder, GridEncoder) else None

    @property
    def grid_cells(self) -> int | None:
        """The number of cells or windows of an image; None for a model of features."""
        encoder, how = self.image_encoder, self.preprocessing
        return encoder.cells(*how.size) if isinstance(encoder, GridEncoder) and how is not None else None

    @property
    def preprocessing(self) -> ImagePreprocessing | None:
        """How images are prepared; None for a model of features."""
        return self._preprocessing

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do: it scores images or their features with texts."""
        images = self.preprocessing is not None
        return Capabilities(images, texts=self.tokenizer is not None, videos=False, evidence=False, features=True)

    @property
    def no_vectors(self) -> str:
        """Why it has no embeddings."""
        label = system_label(self.config.system, self.config.options)
        model = f"{'an' if label.startswith('I') else 'a'} {label} model"
        return f"{NO_VECTORS.format(model=model, item='an image')}, and re-rank its results with this one"

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def embed_images(self, images: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None) -> Sets:
        """Encode pixels ``(B, 3, H, W)`` or features ``(B, N, F)`` into sets of unit vectors."""
        return _unit_sets(*cast(Any, self.image_encoder).elements(images, lengths, mask))

    def embed_texts(self, tokens: Tensor, lengths: Lengths | None = None) -> Sets:
        """Encode ``tokens (B, L)`` into sets of unit vectors, one for each token."""
        return _unit_sets(*cast(Any, self.text_encoder).elements(tokens, lengths))

    def scores(self, images: Sets, texts: Sets) -> Tensor:
        """Return the scores ``(B, T)`` of every image with every text; differentiable, see :func:`pair_scores`."""
        if images.elements.shape[2] != texts.elements.shape[2]:
            widths = (images.elements.shape[2], texts.elements.shape[2])
            raise InputError(f"images of {widths[0]} and texts of {widths[1]} dimensions have no scores")
        return pair_scores(self.scoring, images, texts)

    def forward(
        self,
        images: Tensor,
        tokens: Tensor,
        image_lengths: Tensor | None = None,
        text_lengths: Tensor | None = None,
        image_mask: Tensor | None = None,
    ) -> tuple[Sets, Sets]:
        """Encode both sides in one call, as distributed training needs."""
        return self.embed_images(images, image_lengths, image_mask), self.embed_texts(tokens, text_lengths)

    @torch.inference_mode()
    def image_sets(self, images: Images, *, batch_size: int = 64, progress: ProgressReporter | None = None) -> Sets:
        """Return the sets of image files or of arrays of features ``(N, F)``; the next batch is prefetched.

        Raises:
            InputError: there are no images, one of them cannot be read, or its features have another width.
        """
        sources = as_sources(images, self)
        if len(sources) == 0:
            raise InputError("images is empty: expected at least one image")
        parts, order = [], []
        with evaluation_mode(self):
            for rows, batch, lengths in image_batches(self, sources, batch_size, progress=progress or SilentProgress()):
                sizes = None if lengths is None else torch.from_numpy(lengths).to(self.device)
                parts.append(self.embed_images(self._tensor(batch), sizes))
                order += rows
        joined = join(parts)
        return joined if order == sorted(order) else joined.rows(torch.tensor(np.argsort(order)))

    @torch.inference_mode()
    def text_sets(
        self, texts: Sequence[str], *, unknown: Literal["error", "allow"] = "error"
    ) -> Iterator[tuple[NDArray[np.int64], Sets]]:
        """Yield the rows and the sets of texts, those of similar length together.

        Raises:
            InputError: the model has no vocabulary, or a text is of unknown words only and ``unknown`` is ``error``.
        """
        for rows, tokens, lengths in token_batches(self.tokenizer, texts, TEXTS, unknown=unknown):
            with evaluation_mode(self):
                yield rows, self.embed_texts(self._tensor(tokens), self._tensor(lengths))

    def score_pairs(
        self,
        images: Images,
        texts: Sequence[str],
        *,
        progress: ProgressReporter | None = None,
        unknown: Literal["error", "allow"] = "error",
    ) -> NDArray[np.float32]:
        """Return the score ``(images, texts)`` of every image with every text.

        The elements of all images, those of 512 texts, a block of pairs and the matrix are held in memory.

        Args:
            images: image files, or arrays of features ``(N, F)``.
            texts: the texts.
            progress: shows the work.
            unknown: whether a text without any known word is an error.

        Raises:
            InputError: an image or a text is invalid.
        """
        report, wanted = progress or SilentProgress(), as_texts(texts)
        if not wanted:
            raise InputError("texts is empty: expected at least one text")
        encoded = self.image_sets(images, progress=report)
        scores = np.empty((len(encoded), len(wanted)), dtype=np.float32)
        report.start(len(wanted), "scores")
        for places, sets in self.text_sets(wanted, unknown=unknown):
            for rows, columns, block in score_blocks(self.scoring, encoded, sets):
                scores[rows, places[columns]] = block.float().cpu().numpy()
            report.advance(len(places))
        report.finish()
        return scores

    def score_candidates(
        self,
        images: Images,
        texts: Sequence[str],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        *,
        progress: ProgressReporter | None = None,
    ) -> NDArray[np.float32]:
        """Return the scores ``(n,)`` of the pairs of ``images[rows[k]]`` and ``texts[columns[k]]``.

        Each image and text that occurs is encoded once, and no other pair is scored. :data:`MAX_PAIRS` sets of images
        are copied at once.

        Raises:
            InputError: an image or a text is invalid.
        """
        report, wanted, sources = progress or SilentProgress(), as_texts(texts), as_sources(images, self)
        scores = np.empty(len(rows), dtype=np.float32)
        if not len(rows):
            return scores
        used, place = np.unique(rows, return_inverse=True)
        said, which = np.unique(columns, return_inverse=True)
        encoded = self.image_sets([sources[int(row)] for row in used], progress=report)
        order = np.argsort(which, kind="stable")
        first = np.searchsorted(which[order], np.arange(len(said) + 1))
        report.start(len(rows), "scoring pairs")
        for numbers, sets in self.text_sets([wanted[int(column)] for column in said], unknown="allow"):
            for row, number in enumerate(numbers):
                pairs = order[first[number] : first[number + 1]]
                for part in _slices(len(pairs), MAX_PAIRS):
                    chosen = encoded.rows(torch.from_numpy(place[pairs[part]]).to(self.device))
                    for block, _, found in score_blocks(self.scoring, chosen, sets.rows(slice(row, row + 1))):
                        scores[pairs[part][block]] = found[:, 0].float().cpu().numpy()
                report.advance(len(pairs))
        report.finish()
        return scores

    def compile_encoders(self) -> NoReturn:
        """Raise InputError: the encoders of sets are not compiled."""
        raise InputError("a model that scores pairs is not compiled: leave out run.compile")

    def encode_images(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InputError: an image has no single embedding."""
        raise InputError(self.no_vectors)

    encode_texts: Callable[..., NoReturn] = encode_images
    encode_videos: Callable[..., NoReturn] = encode_images

    def backbone_fingerprint(self) -> str | None:
        """Return the fingerprint of the image backbone; None for a model of features."""
        from vse.encoders.functional import state_fingerprint

        backbone = self.image_backbone
        return None if backbone is None else state_fingerprint(backbone.state_dict())

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

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array).to(self.device)
        return tensor.to(next(self.parameters()).dtype) if tensor.is_floating_point() else tensor


def _unit_sets(elements: Tensor, mask: Tensor | None) -> Sets:
    if mask is None:
        mask = torch.ones(elements.shape[:2], dtype=torch.bool, device=elements.device)
    return Sets(unit_norm(elements).masked_fill(~mask.unsqueeze(-1), 0), mask)
