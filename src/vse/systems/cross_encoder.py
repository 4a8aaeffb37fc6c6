"""A single-stream cross-encoder in the manner of UNITER and OSCAR: words and regions attend to each other in one BERT.

A token is embedded as in BERT, a region as ``LN(LN(W f) + LN(V g) + t)`` with its feature f, the geometry g of its box
(left, top, right, bottom, width, height, area) and the embedding t of the second token type. The joint sequence passes
through the layers of the BERT, and the state h of the first token gives the score of the pair,
``w · tanh(U h + a) + b``: the logit of a match.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vse.encoders.functional import evaluation_mode
from vse.encoders.transformer_text import architecture_of, create_transformer, load_transformer
from vse.errors import InputError
from vse.models.config import BOX, CrossConfig
from vse.models.encode import check_known
from vse.models.protocols import Capabilities, Items
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.inputs.tokenizer import TextTokenizer

TYPES = ("bert", "roberta", "xlm-roberta", "camembert")
"""Transformers whose embeddings and layers can be used apart."""
GEOMETRY = 7
PAIRS = 64
"""Pairs that are scored together: bounds memory."""
MAX_PAIRS = 200_000
"""Pairs that are scored without being asked for one by one."""
TIMED = 32  # pairs whose time tells what all of them would take
NO_VECTORS = (
    "a cross-encoder scores pairs of an image and a text and has no single vector of either: use it with --rerank, or "
    "use a VSE model, which can be indexed and searched"
)


class RegionEmbedding(nn.Module):
    """Embed regions ``(B, N, F)``, whose last four values are their boxes if ``boxes``, as tokens ``(B, N, H)``."""

    def __init__(self, feature_size: int, size: int, *, boxes: bool, eps: float, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(feature_size, size)
        self.norm = nn.LayerNorm(size, eps=eps)
        self.box_linear = nn.Linear(GEOMETRY, size) if boxes else None
        self.box_norm = nn.LayerNorm(size, eps=eps) if boxes else None
        self.whole_norm = nn.LayerNorm(size, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, regions: Tensor, kind: Tensor) -> Tensor:
        """Return the tokens of regions; ``kind (H,)`` is the embedding of their token type."""
        if self.box_linear is None or self.box_norm is None:
            whole = self.norm(self.linear(regions)) + kind
        else:
            features, boxes = regions[..., :-BOX], regions[..., -BOX:]
            whole = self.norm(self.linear(features)) + self.box_norm(self.box_linear(geometry(boxes))) + kind
        return self.dropout(self.whole_norm(whole))


def geometry(boxes: Tensor) -> Tensor:
    """Return left, top, right, bottom, width, height and area of ``boxes (..., 4)``, which are shares of the image."""
    width, height = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    return torch.cat((boxes, torch.stack((width, height, width * height), dim=-1)), dim=-1)


class CandidateMethods:
    """``score_pairs`` of any :class:`~vse.models.protocols.CandidateScorer`, and what it cannot do."""

    takes_frames = False
    reads_graphs = False
    no_vectors = NO_VECTORS
    tokenizer: Any

    def score_candidates(
        self,
        images: Items,
        texts: Sequence[str],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        *,
        progress: ProgressReporter | None = None,
    ) -> NDArray[np.float32]:
        """Return the scores ``(n,)`` of the pairs of ``images[rows[k]]`` and ``texts[columns[k]]``."""
        raise NotImplementedError

    def score_pairs(
        self,
        images: Items,
        texts: Sequence[str],
        *,
        progress: ProgressReporter | None = None,
        unknown: Literal["error", "allow"] = "error",
        **_: Any,
    ) -> NDArray[np.float32]:
        """Return the score ``(I, T)`` of every image with every text.

        Raises:
            InputError: there are more than :data:`MAX_PAIRS` pairs, which is what re-ranking is for.
        """
        count, width = len(images), len(texts)
        if unknown == "error" and self.tokenizer is not None and width:
            check_known(self.tokenizer.encode(self.tokenizer.respell(texts)), texts, self.tokenizer)
        if count * width > MAX_PAIRS:
            raise InputError(self._cost(images, texts))
        rows, columns = np.divmod(np.arange(count * width), max(1, width))
        return self.score_candidates(images, texts, rows, columns, progress=progress).reshape(count, width)

    def _cost(self, images: Items, texts: Sequence[str]) -> str:
        """Say what all pairs would take, from the time of a few of them."""
        pairs = len(images) * len(texts)
        rows = np.arange(TIMED) % len(images)
        began = time.perf_counter()
        self.score_candidates(images, texts[:TIMED], rows, np.arange(TIMED) % min(len(texts), TIMED))
        hours = (time.perf_counter() - began) / TIMED * pairs / 3600
        return (
            f"{len(images):,} images and {len(texts):,} texts are {pairs:,} pairs, about {hours:.1f} hours of this "
            f"cross-encoder here, and at most {MAX_PAIRS:,} are scored: re-rank the candidates of a VSE model with "
            "'vse eval FIRST --rerank THIS --depth K'"
        )

    def encode_images(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InputError: an image has no single embedding."""
        raise InputError(NO_VECTORS)

    encode_videos = encode_texts = encode_images


class CrossEncoder(CandidateMethods, nn.Module):
    """The cross-encoder of a configuration, with random weights or around a given transformer.

    It is a :class:`~vse.models.protocols.PairScorer` and a :class:`~vse.models.protocols.CandidateScorer` of region
    features and texts.
    """

    preprocessing = None  # regions come as features
    image_backbone = None
    grid_cells = None

    def __init__(self, config: CrossConfig, transformer: Any, tokenizer: TextTokenizer | None = None) -> None:
        super().__init__()
        described = transformer.config
        if described.model_type not in TYPES or getattr(described, "is_decoder", False):
            raise InputError(
                f"a cross-encoder is made of {', '.join(TYPES)}, whose layers take a joint sequence; not of a "
                f"{described.model_type!r}"
            )
        if tokenizer is not None and tokenizer.vocab_size > described.vocab_size:
            raise InputError(
                f"the tokenizer knows {tokenizer.vocab_size} tokens, the cross-encoder {described.vocab_size}"
            )
        size, eps = described.hidden_size, described.layer_norm_eps
        self.config = config
        self.tokenizer = tokenizer
        self.transformer = transformer
        self.regions = RegionEmbedding(
            config.feature_size, size, boxes=config.boxes, eps=eps, dropout=described.hidden_dropout_prob
        )
        self.kind = nn.Parameter(torch.zeros(size))
        self._tag_tokens = tokens_of_tags(config.tags, tokenizer) if tokenizer is not None and config.tags else []
        self.pooler = nn.Linear(size, size)
        self.head = nn.Linear(size, 1)

    @classmethod
    def build(cls, config: CrossConfig, tokenizer: TextTokenizer | None = None) -> CrossEncoder:
        """Build the model with random weights, or around the pretrained BERT that the configuration names.

        The image side of a pretrained BERT is random, apart from its token type: BERT's second one, as in UNITER.
        """
        if config.architecture:
            transformer = create_transformer(config.architecture)
        elif config.pretrained is not None:
            transformer = load_transformer(config.pretrained)
        else:
            raise InputError("a cross-encoder needs 'pretrained' (a folder or hub id of a BERT) or an 'architecture'")
        if config.layers is not None:
            _keep_layers(transformer, config.layers)
        described = config.model_copy(update={"architecture": architecture_of(transformer), "layers": None})
        model = cls(described, transformer, tokenizer)
        types = transformer.embeddings.token_type_embeddings.weight
        with torch.no_grad():
            model.kind.copy_(types[min(1, len(types) - 1)])
        return model

    @property
    def feature_size(self) -> int:
        """Width of a region's feature, with its box and a tag if the model reads them."""
        return self.config.feature_size + (BOX if self.config.boxes else 0) + (1 if self.config.tags else 0)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of images that it knows; a value behind each region is the number of one, or -1."""
        return self.config.tags

    @property
    def reads_boxes(self) -> bool:
        """Whether the last four values of a region are its box."""
        return self.config.boxes

    @property
    def embed_size(self) -> int:
        """Width of the hidden states."""
        return self.pooler.in_features

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do: it scores region features of images with texts."""
        return Capabilities(images=False, texts=self.tokenizer is not None, videos=False, evidence=False, features=True)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.kind.device

    def forward(
        self,
        regions: Tensor,
        tokens: Tensor,
        region_lengths: Tensor | None = None,
        token_lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the scores ``(B,)`` of pairs.

        Args:
            regions: ``(B, N, F)``, padded.
            tokens: ``(B, L)``, padded.
            region_lengths: ``(B,)``, the regions of each image; all by default.
            token_lengths: ``(B,)``, the tokens of each text; all by default.
        """
        if regions.dim() != 3 or regions.shape[2] != self.feature_size:
            raise InputError(f"regions must have shape (B, N, {self.feature_size}), got {tuple(regions.shape)}")
        longest = self.max_tokens
        if tokens.shape[1] > longest:
            raise InputError(f"a text of {tokens.shape[1]} tokens is longer than the {longest} this transformer reads")
        mask = torch.cat((_mask(tokens, token_lengths), _mask(regions, region_lengths)), dim=1)  # (B, L + N)
        padding = ~mask[:, tokens.shape[1] :, None]
        regions = regions.to(self.kind.dtype).masked_fill(padding, 0)  # padding may hold anything
        words = self.transformer.embeddings(input_ids=tokens)  # (B, L, H)
        if self.config.tags:
            numbers, regions = regions[..., -1].masked_fill(padding.squeeze(2), -1), regions[..., :-1]
            tagged, tag_mask = self._second_segment(numbers, mask[:, : tokens.shape[1]].sum(1))
            words = torch.cat((words, tagged), dim=1)
            mask = torch.cat((mask[:, : tokens.shape[1]], tag_mask, mask[:, tokens.shape[1] :]), dim=1)
        states = torch.cat((words, self.regions(regions, self.kind)), dim=1)
        barrier = torch.zeros_like(mask, dtype=states.dtype).masked_fill(~mask, torch.finfo(states.dtype).min)
        states = self.transformer.encoder(states, attention_mask=barrier[:, None, None, :]).last_hidden_state
        return self.head(torch.tanh(self.pooler(states[:, 0]))).squeeze(1)

    def _second_segment(self, numbers: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings ``(B, T, H)`` of the tags of images, behind their texts, and which are valid.

        A tag that an image has twice is read once, and what the position table does not reach is cut.
        """
        rows, known = [], self._tag_tokens
        for listed, length in zip(numbers.tolist(), lengths.tolist(), strict=True):
            distinct = dict.fromkeys(int(number) for number in listed if number >= 0)
            if distinct and max(distinct) >= len(known):
                raise InputError(f"tag {max(distinct)} of an image: the model knows {len(known)} tags")
            found = [token for number in distinct for token in known[number]]
            rows.append(found[: max(0, self.max_tokens - length)])
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=torch.int64).to(numbers.device)
        counts = torch.tensor([len(row) for row in rows], device=numbers.device)
        places = lengths.to(numbers.device)[:, None] + torch.arange(longest, device=numbers.device)
        places = self._first_position + places.clamp(max=self.max_tokens - 1)
        types = torch.full_like(ids, min(1, self.transformer.config.type_vocab_size - 1))
        words: Tensor = self.transformer.embeddings(input_ids=ids, token_type_ids=types, position_ids=places)
        return words, _mask(ids, counts)

    @property
    def _first_position(self) -> int:
        config = self.transformer.config
        return 0 if config.model_type == "bert" else (config.pad_token_id or 0) + 1

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens of a text, from the position table."""
        return int(self.transformer.config.max_position_embeddings) - self._first_position

    def score_candidates(
        self,
        images: Items,
        texts: Sequence[str],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        *,
        progress: ProgressReporter | None = None,
    ) -> NDArray[np.float32]:
        """Return the scores ``(n,)`` of pairs, :data:`PAIRS` at once; texts of similar length share a batch.

        Args:
            images: region features ``(N, F)`` of each image.
            texts: the texts.
            rows: ``(n,)``, the image of each pair.
            columns: ``(n,)``, the text of each pair.
            progress: shows the work.

        Raises:
            InputError: features of another width, or a model without a tokenizer.
        """
        if self.tokenizer is None:
            raise InputError("this cross-encoder has no tokenizer and cannot read text")
        report = progress or SilentProgress()
        batch = self.tokenizer.encode(self.tokenizer.respell(texts)) if len(texts) else None
        scores = np.empty(len(rows), dtype=np.float32)
        order = np.argsort(batch.lengths[columns], kind="stable") if batch is not None else np.arange(0)
        report.start(len(order), "scoring pairs")
        with torch.inference_mode(), evaluation_mode(self):
            for start in range(0, len(order), PAIRS):
                part = order[start : start + PAIRS]
                if batch is None:  # no texts have no pairs
                    break
                regions, lengths = self._stacked([images[int(row)] for row in rows[part]], rows[part])
                longest = int(batch.lengths[columns[part]].max())
                scores[part] = (
                    self(
                        torch.from_numpy(regions).to(self.device),
                        torch.from_numpy(batch.tokens[columns[part], :longest]).to(self.device),
                        torch.from_numpy(lengths).to(self.device),
                        torch.from_numpy(batch.lengths[columns[part]]).to(self.device),
                    )
                    .float()
                    .cpu()
                    .numpy()
                )
                report.advance(len(part))
        report.finish()
        return scores

    def _stacked(self, sets: Sequence[Any], rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return sets of regions padded to the largest, with their sizes."""
        arrays = [np.asarray(each) for each in sets]
        for row, array in zip(rows.tolist(), arrays, strict=True):
            if array.ndim != 2 or array.shape[1] != self.feature_size or not len(array):
                shown = f"an array {array.shape}" if array.ndim else f"{str(sets[0])[:60]!r}"
                raise InputError(
                    f"image {row} is {shown}; this cross-encoder takes sets of features (N, {self.feature_size})"
                )
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        padded = np.zeros((len(arrays), int(lengths.max()), self.feature_size), dtype=np.float32)
        for place, array in zip(padded, arrays, strict=True):
            place[: len(array)] = array
        return padded, lengths

    def compile_encoders(self) -> NoReturn:
        """Raise InputError: a cross-encoder is not compiled."""
        raise InputError("a cross-encoder is not compiled: leave out run.compile")

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


def tokens_of_tags(tags: Sequence[str], tokenizer: TextTokenizer) -> list[list[int]]:
    """Return the tokens of each tag, without those that begin and end a text, and without unknown words."""
    batch = tokenizer.encode(tokenizer.respell(tags))
    special = {tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id, tokenizer.unk_id}
    return [
        [token for token in row[:length].tolist() if token not in special]
        for row, length in zip(batch.tokens, batch.lengths.tolist(), strict=True)
    ]


def _mask(elements: Tensor, lengths: Tensor | None) -> Tensor:
    """Return which of ``elements (B, N, …)`` are valid, ``(B, N)``."""
    places = torch.arange(elements.shape[1], device=elements.device)
    if lengths is None:
        return torch.ones(elements.shape[:2], dtype=torch.bool, device=elements.device)
    return places < lengths[:, None]


def _keep_layers(transformer: Any, count: int) -> None:
    """Drop the layers of a transformer behind the first ``count``."""
    layers = transformer.encoder.layer
    if count > len(layers):
        raise InputError(f"layers is {count}, and the transformer has {len(layers)}: lower it")
    transformer.encoder.layer = layers[:count]
    transformer.config.num_hidden_layers = count
