"""Initialise the joint space with ImageNet's classes, so that untrained images are near the names of what they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vse.encoders.backbones.efficientnet_lite import EfficientNetLite
from vse.encoders.functional import evaluation_mode
from vse.encoders.image import ClassWordsProjection, GridEncoder
from vse.encoders.transformer_text import TransformerTextEncoder
from vse.errors import InputError, require
from vse.pooling import GPO

if TYPE_CHECKING:
    from vse.inputs.tokenizer import TextTokenizer

CLASSES = 1000
BATCH = 100
FAINT = 0.05
"""Scale of random initial values relative to the known ones."""


def begin_with_class_words(image: nn.Module, text: nn.Module, tokenizer: TextTokenizer | None) -> None:
    """Initialise image and text encoder so that images are near the names of their ImageNet classes.

    The text encoder's linear layer becomes the identity on its first H dimensions, minus the mean of all class names.
    In the head, ``words`` becomes the embeddings of the class names and ``classes`` the packaged classifier. An image
    of a zebra is then near sentences about zebras even if the training data has no zebras.

    Raises:
        InputError: If backbone, head, sizes or text encoder do not support it.
    """
    head = image.projection if isinstance(image, GridEncoder) else None
    if not isinstance(image, GridEncoder) or not isinstance(head, ClassWordsProjection):
        raise InputError("class words need a grid encoder with head 'class-words'")
    known = image.backbone.classifier() if isinstance(image.backbone, EfficientNetLite) else None
    if known is None or known[0].shape[1] != image.backbone.channels:
        raise InputError(
            "head 'class-words' needs a backbone with a packaged classifier, efficientnet-lite0, 1 or 2, uncut"
        )
    if not isinstance(text, TransformerTextEncoder) or tokenizer is None:
        raise InputError("head 'class-words' needs a pretrained sentence encoder: model.text.kind = 'transformer'")
    weight, bias = known
    sentences = class_sentences()
    if len(head.classes_bias) != len(sentences):
        raise InputError(f"head 'class-words' needs hidden_size = {len(sentences)}, one for each class")
    size, width = text.linear.weight.shape
    if size < width:
        raise InputError(f"embed_size {size} is narrower than the {width} values of the sentence encoder")
    with torch.no_grad():
        for pooling in (image.pooling, text.pooling):
            if isinstance(pooling, GPO):  # sentence encoder and classifier were both trained with mean pooling
                pooling.begin_as_average()
        text.linear.weight.mul_(FAINT)
        text.linear.weight[:width] = torch.eye(width)
        text.linear.bias.zero_()
        named = _pooled(text, tokenizer, [sentence for each in sentences for sentence in each])  # (2 · classes, D)
        named = nn.functional.normalize(named, dim=-1).unflatten(0, (len(sentences), -1)).mean(1)
        # The bias is added before normalization, where a sentence has a larger norm.
        raw = _pooled(text, tokenizer, [each[0] for each in sentences]).mean(0)
        text.linear.bias.copy_(-raw)
        head.words.weight.copy_(nn.functional.normalize(named - named.mean(0), dim=-1).T)
        head.words.bias.zero_()
        head.fc.weight.mul_(FAINT)
        head.classes_weight.copy_(weight)
        head.classes_bias.copy_(bias)


def class_sentences() -> list[tuple[str, str]]:
    """Return two sentences for each of ImageNet's 1,000 classes, in order: its name and WordNet's description."""
    require("timm", "train", "the names of ImageNet's classes")
    from timm.data.imagenet_info import ImageNetInfo

    info = ImageNetInfo()
    names = [info.index_to_description(index) for index in range(CLASSES)]
    details = [info.index_to_description(index, detailed=True) for index in range(CLASSES)]
    return [(f"a photo of a {name.split(',')[0]}", more) for name, more in zip(names, details, strict=True)]


def _pooled(text: TransformerTextEncoder, tokenizer: TextTokenizer, sentences: Sequence[str]) -> Tensor:
    """Return the sentences' embeddings before normalization, ``(S, D)``."""
    rows = []
    with evaluation_mode(text):
        for start in range(0, len(sentences), BATCH):
            batch = tokenizer.encode(sentences[start : start + BATCH])
            projected, mask = text.elements(torch.from_numpy(batch.tokens), torch.from_numpy(batch.lengths))
            rows.append(text.pooling.pool(projected, mask))
    return torch.cat(rows)
