"""The photo model while it is trained: how it starts, its towers over stored maps, losses, scores, description."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from photo_data import Data, Tokens, padded, tokenize
from vse.evaluation import retrieval_metrics
from vse.inputs.tokenizer import TextTokenizer
from vse.models import VSEModel
from vse.models.config import About, BackboneConfig, GridConfig, ModelConfig, PoolingConfig, Score, TransformerConfig
from vse.models.storage import load_towers

FIRST = 5
"""The first stage of the backbone that is computed here; the maps are the output of the stages before it."""
TOGETHER = 64
"""Images that pass through the backbone at once: the maps of more do not fit the cache, and take 1.5 times as long."""
CERTAIN = 0.4
"""Probability from which the published classifier's class of an image counts as a word."""
DATA = (
    "Flickr8k (train split, 6,000 images) and COCO (27,304 images of train2017, none of Karpathy's val and test splits)"
)
NOTES = (
    "Captions of COCO: Creative Commons Attribution 4.0. Images of COCO and Flickr8k: the terms of use of Flickr; each "
    "image belongs to its photographer. No image is part of this model.",
    "It does not read text, count, tell left from right, or know names of people and places. It knows few things that "
    "neither COCO's everyday scenes nor Flickr8k nor ImageNet's classes show.",
)


def build(start: Path | None, *, pooling: str = "gpo", seed: int = 0) -> VSEModel:
    """Return the model in ``start``, else one with published weights, class words and poolings that average."""
    if start is not None:
        return load_towers(start)
    chosen = PoolingConfig(name=pooling)
    config = ModelConfig(
        embed_size=512,
        image=GridConfig(
            backbone=BackboneConfig(name="efficientnet-lite2"), head="class-words", hidden_size=1000, pooling=chosen
        ),
        text=TransformerConfig(pretrained="all-minilm-l6-v2", pooling=chosen),
        about=About(name="photo", data="coco, flickr8k", source="trained with vse"),
    )
    torch.manual_seed(seed)
    return VSEModel.build(config, TextTokenizer.from_pretrained("all-minilm-l6-v2", 64), pretrained=True)


class Towers:
    """Both towers of a model, over stored maps instead of pixels and over tokens."""

    def __init__(self, model: VSEModel) -> None:
        self.model = model
        self.image: Any = model.image_encoder
        self.text: Any = model.text_encoder
        self.net = self.image.backbone.model
        self.folded = False

    def cells(self, maps: Tensor) -> Tensor:
        """Return the cells ``(B, 81, 1280)`` of stored maps."""
        return torch.cat([self._cells(part) for part in maps.split(TOGETHER)])

    def _cells(self, maps: Tensor) -> Tensor:
        x = maps.float().contiguous(memory_format=torch.channels_last)
        for block in (block for stage in self.net.blocks[FIRST:] for block in stage):
            y = x
            for conv, norm in layers(block):
                y = _activated(conv, norm, y) if self.folded else norm(conv(y))
            x = x + y if block.has_skip else y
        head = (self.net.conv_head, self.net.bn2)
        x = _activated(*head, x) if self.folded else head[1](head[0](x))
        return x.flatten(2).transpose(1, 2)

    @torch.no_grad()
    def fold_norms(self) -> None:
        """Move the batch norms of the trained stages into their convolutions; a step takes 0.7 times as long.

        Their statistics are fixed, so that a norm is a linear map: ``W' = s W``, ``b' = beta - s mean`` with
        ``s = gamma / sqrt(var + eps)``. What is left of the norm adds b'.
        """
        pairs = [pair for stage in self.net.blocks[FIRST:] for block in stage for pair in layers(block)]
        for conv, norm in (*pairs, (self.net.conv_head, self.net.bn2)):
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            conv.weight.mul_(scale.view(-1, 1, 1, 1))
            norm.bias.sub_(scale * norm.running_mean)
            norm.weight.fill_(1)
            norm.running_mean.zero_()
            norm.running_var.fill_(1 - norm.eps)
        self.folded = True

    def images(self, maps: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return embeddings; ``keep (B, n)`` are the cells of each image that count."""
        cells = self.cells(maps)
        if keep is not None:
            cells = cells.gather(1, keep.unsqueeze(-1).expand(-1, -1, cells.shape[2]))
        with torch.autocast("cpu", torch.bfloat16):
            projected = self.image.projection(cells)
        return nn.functional.normalize(self.image.pooling.pool(projected.float(), None), dim=-1)

    def texts(self, rows: list[Tokens]) -> Tensor:
        """Return embeddings of tokenized texts."""
        tokens, lengths = padded(rows)
        with torch.autocast("cpu", torch.bfloat16):
            projected, mask = self.text.elements(tokens, lengths)
        return nn.functional.normalize(self.text.pooling.pool(projected.float(), mask), dim=-1)


def layers(block: Any) -> list[tuple[Any, Any]]:
    """Return the convolutions of a block, each with its batch norm."""
    return [(block.conv_pw, block.bn1), (block.conv_dw, block.bn2), (block.conv_pwl, block.bn3)]


def _activated(conv: Any, norm: Any, x: Tensor) -> Tensor:
    """Return ``act(conv(x) + b')`` for a folded norm."""
    from timm.layers.conv2d_same import Conv2dSame, conv2d_same

    if isinstance(conv, Conv2dSame):
        y = conv2d_same(x, conv.weight, norm.bias, conv.stride, conv.padding, conv.dilation, conv.groups)
    else:
        y = conv._conv_forward(x, conv.weight, norm.bias)
    return norm.act(y)


def pair_loss(images: Tensor, texts: Tensor, rows: NDArray[np.int64], scale: Tensor) -> Tensor:
    """Return the cross-entropy over a batch in both directions; another caption of the same image is no negative."""
    ids = torch.from_numpy(rows)
    same = (ids[:, None] == ids[None]) & ~torch.eye(len(ids), dtype=torch.bool)
    logits = (images @ texts.T * scale).masked_fill(same, -1e4)
    own = torch.arange(len(ids))
    return (nn.functional.cross_entropy(logits, own) + nn.functional.cross_entropy(logits.T, own)) / 2


def word_loss(images: Tensor, words: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    """Return the cross-entropy of words against images; ``target (W, B)`` says which image has which word."""
    found = (words @ images.T * scale).log_softmax(1)
    count = target.sum(1)
    return -((found * target).sum(1) / count + count.log()).mean()


@torch.inference_mode()
def evaluate(towers: Towers, data: Data) -> dict[str, Any]:
    """Return retrieval scores on both dev splits, and precision@8 of the everyday queries on that of COCO."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
    from everyday import QUERIES, judged

    towers.model.eval()
    result: dict[str, Any] = {}
    for split in ("coco-dev", "f8k-dev"):
        rows = data.rows(split)
        images = torch.cat([towers.images(data.maps(part)) for part in np.array_split(rows, 16)]).numpy()
        captions = [tokens for row in rows.tolist() for tokens in data.tokens[row][:5]]
        owner = np.repeat(np.arange(len(rows)), [len(data.tokens[row][:5]) for row in rows.tolist()])
        order = np.argsort([len(each) for each in captions], kind="stable")
        texts = np.empty((len(captions), images.shape[1]), np.float32)
        for part in np.array_split(order, 20):
            texts[part] = towers.texts([captions[one] for one in part.tolist()]).numpy()
        figures = retrieval_metrics(images, texts, owner).figures()
        result[split] = {key: round(float(figures[key]), 2) for key in figures if "_r" in key or key == "rsum"}
        if split == "coco-dev":
            known = [tuple(data.captions[row]) for row in rows.tolist()]
            relevant = np.array([[query.mentions(each) > 0 for each in known] for query in QUERIES])
            asked = towers.texts(tokenize(towers.model.tokenizer, [query.text for query in QUERIES])).numpy()
            found = judged(asked @ images.T, relevant)
            result["everyday"] = round(found["precision_at_8"], 4)
            result["low"] = {k: v["hits"] for k, v in found["queries"].items() if v["hits"] < 0.5 * v["of"]}
    return result


def describe(model: VSEModel, recipe: dict[str, Any], found: dict[str, Any]) -> None:
    """Record in the model where it comes from, and its scores on the dev splits."""
    named = {"coco-dev": "coco", "f8k-dev": "flickr8k"}
    scores = [
        Score(protocol="dev images, one ranking", data=data, split="dev", values=found[split])
        for split, data in named.items()
    ]
    everyday = {"precision_at_8": found["everyday"]}
    scores.append(Score(protocol="60 everyday queries", data="coco", split="dev", values=everyday))
    about = About(
        name="photo",
        data=DATA,
        source="trained with vse",
        recipe=recipe,
        scores=tuple(scores),
        notes=NOTES,
        license="apache-2.0",
        languages=("en",),
    )
    model.config = model.config.model_copy(update={"about": about})


@torch.inference_mode()
def certain_classes(data: Data) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of ImageNet's classes, and the class of each training image where the classifier is certain.

    Computed once with the published weights, and stored beside the maps.
    """
    path = data.folder / "classes.npy"
    if not path.exists():
        from timm.data.imagenet_info import ImageNetInfo

        towers = Towers(build(None).eval())
        head = towers.image.projection
        seen = np.full(len(data.meta), -1)
        for part in np.array_split(data.train_rows(), len(data.meta) // 64):
            logits = nn.functional.linear(towers.cells(data.maps(part)).mean(1), head.classes_weight, head.classes_bias)
            best = logits.softmax(-1).max(-1)
            seen[part] = torch.where(best.values > CERTAIN, best.indices, -1).numpy()
        info = ImageNetInfo()
        names = [info.index_to_description(index).split(",")[0] for index in range(1000)]
        path.with_suffix(".json").write_text(json.dumps(names), "utf-8")
        np.save(path, seen)
    return json.loads(path.with_suffix(".json").read_text("utf-8")), np.load(path)
