"""Encode texts with BERT or any other Hugging Face encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vse.encoders.functional import unit_norm
from vse.encoders.text import check_tokens
from vse.encoders.third_party import (
    TEXT_TYPES,
    describe_config,
    import_transformers,
    load_pretrained,
    network_config,
    published_config,
)
from vse.errors import InputError, first_line
from vse.inputs.pretrained import packaged_folder
from vse.pooling import Pooling
from vse.pooling.functional import Lengths, compiled, read_sets

TOGETHER = 32  # texts padded to the same length

# RoBERTa and similar models number positions from the padding id, so the first rows of the table are unused.
POSITIONS_AFTER_PADDING = {"roberta", "xlm-roberta", "camembert", "mpnet", "data2vec-text", "xlm-roberta-xl"}


class TransformerTextEncoder(nn.Module):
    """``tokens (B, L)`` → transformer ``(B, L, H)`` → linear → pooling over all tokens → unit norm ``(B, D)``.

    [CLS] and [SEP] are ordinary tokens: ``lengths (B,)`` counts them and they are pooled.
    """

    def __init__(self, transformer: Any, size: int, pooling: Pooling) -> None:
        super().__init__()
        config = transformer.config
        if getattr(config, "is_encoder_decoder", False) or not all(
            isinstance(getattr(config, name, None), int) for name in ("hidden_size", "vocab_size")
        ):
            raise InputError(f"a {config.model_type!r} is not a text encoder with one hidden state per token")
        self.transformer: Any = transformer
        self.linear = nn.Linear(transformer.config.hidden_size, size)
        self.pooling = pooling

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:
        projected, mask = self.elements(tokens, lengths)
        return unit_norm(self.pooling.pool(projected, mask))

    def elements(self, tokens: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the projected state of each token ``(B, L, D)`` before pooling, and its mask."""
        tokens = check_tokens(tokens, self.transformer.config.vocab_size)
        longest = self.max_tokens
        if longest is not None and tokens.shape[1] > longest:
            raise InputError(f"a text of {tokens.shape[1]} tokens is longer than the {longest} this transformer reads")
        mask = read_sets(tokens.unsqueeze(-1).float(), lengths)
        return self.project(self._states(tokens, mask)), mask

    def _states(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Return the last hidden states ``(B, L, H)``.

        Texts of similar length share a pass: a whole batch of captions would be padded to twice their usual length, and
        padding costs as much as words. Compiled and exported, all texts share one pass.
        """
        if mask is None or compiled() or len(tokens) < 2 * TOGETHER:
            attended = torch.ones_like(tokens) if mask is None else mask.long()
            return self.transformer(input_ids=tokens, attention_mask=attended).last_hidden_state
        lengths = mask.sum(1)
        parts = lengths.argsort().split(TOGETHER)
        states = []
        for part in parts:
            longest = int(lengths[part].max())
            found = self.transformer(input_ids=tokens[part, :longest], attention_mask=mask[part, :longest].long())
            states.append(nn.functional.pad(found.last_hidden_state, (0, 0, 0, tokens.shape[1] - longest)))
        return torch.cat(states)[torch.cat(parts).argsort()]

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of tokens, from the position table; None if there is no limit."""
        config = self.transformer.config
        positions = getattr(config, "max_position_embeddings", None)
        if positions is None or config.model_type not in POSITIONS_AFTER_PADDING:
            return positions
        return positions - (config.pad_token_id or 0) - 1

    def project(self, hidden: Tensor) -> Tensor:
        """Map ``(B, L, H)`` to the joint space ``(B, L, D)``."""
        return self.linear(hidden)


def create_transformer(architecture: Mapping[str, Any]) -> Any:
    """Create a transformer with random weights from its configuration, ``{"model_type": "bert", …}``.

    Raises:
        InputError: If it is no text encoder of :data:`~vse.encoders.third_party.TEXT_TYPES`.
    """
    transformers = import_transformers("a transformer text encoder")
    config = network_config(transformers, architecture, TEXT_TYPES, "a transformer text encoder")
    try:
        return transformers.AutoModel.from_config(config, **_without_pooler(config.model_type))
    except (ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise InputError(f"transformers cannot build a {config.model_type!r} encoder: {first_line(error)}") from None


def load_transformer(source: str) -> Any:
    """Load a pretrained transformer from a local folder, a package (``all-minilm-l6-v2``) or a hub id."""
    transformers = import_transformers("a transformer text encoder")
    source = str(packaged_folder(source) or source)
    config = published_config(transformers, source, TEXT_TYPES, "a transformer text encoder")
    return load_pretrained(transformers, source, config=config, **_without_pooler(config.model_type))


def architecture_of(transformer: Any) -> dict[str, Any]:
    """Return the configuration from which :func:`create_transformer` builds the same network."""
    return describe_config(transformer.config)


def _without_pooler(model_type: str) -> dict[str, Any]:
    # BERT's pooler is for its pretraining task; the sentence is pooled here, so drop the unused weights.
    return {"add_pooling_layer": False} if model_type in {"bert", "roberta", "xlm-roberta", "mpnet"} else {}
