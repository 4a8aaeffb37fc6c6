"""From a recipe to what is trained: data, tokenizer, model."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from vse.configuration import About, BiGRUConfig, ModelConfig, TransformerConfig
from vse.convert.checkpoint import read_state
from vse.data import CaptionedImages, FeatureRows, FeatureStore, attach, open_data
from vse.encoders.grid import GridEncoder
from vse.encoders.torchvision_operators import mend_torchvision
from vse.errors import InputError, require
from vse.evaluation.embeddings import split_hash
from vse.features import backbone_fingerprint
from vse.inputs.tokenizer import TextTokenizer
from vse.inputs.vocabulary import DEFAULT_LENGTH, Vocabulary
from vse.model import VSEModel
from vse.storage import load_state, read_weights
from vse.training.augmentation import TextAugmentation
from vse.training.batches import TrainingPairs
from vse.training.keyed import Purpose, keyed_seed
from vse.training.recipe import Recipe
from vse.training.token_store import TokenStore

PREFIXES = {"module", "image_encoder", "backbone", "resnet", "model"}
"""Under which checkpoints keep the tensors of an image backbone."""


@dataclass(frozen=True)
class Splits:
    """The two splits a run needs, and the store its features come from, if any."""

    train: CaptionedImages
    dev: CaptionedImages
    store: FeatureStore | None

    def identity(self, tokenizer: TextTokenizer) -> dict[str, Any]:
        """What must be equal for a run to be continued: captions, words, pictures' names, features."""
        words = json.dumps(tokenizer.to_json(), sort_keys=True)
        return {
            "tokenizer": hashlib.sha256(words.encode()).hexdigest()[:16],
            "train": _split_identity(self.train, stored=self.store is not None),
            "dev": _split_identity(self.dev, stored=self.store is not None),
            "features": None if self.store is None else self.store.header.fingerprint,
        }


def open_splits(recipe: Recipe) -> Splits:
    """The data that the recipe names; one that cannot be trained on is an error."""
    data = recipe.data
    if not data.path:
        raise InputError("data.path is missing: name the data set in the recipe, or with --data DIR")
    region = recipe.model.image.kind == "region"

    def opened(split: str) -> CaptionedImages:
        return open_data(
            data.path, split, layout=data.layout, images=data.images, use="features" if region else "files"
        )

    train, dev = opened(data.train), opened(data.dev)
    store = None
    if data.features is not None:
        store = FeatureStore.open(data.features)
        train, dev = attach(train, store, on_bad="drop"), attach(dev, store, on_bad="drop")
    for each in (train, dev):
        if not each.captions:
            raise InputError(f"{each.name}, split {each.split!r}: no captions to learn from")
    return Splits(train, dev, store)


def build_tokenizer(recipe: Recipe, captions: tuple[str, ...]) -> TextTokenizer:
    """The words of the training captions, or the tokenizer of the pretrained transformer."""
    text, data = recipe.model.text, recipe.data
    if text.kind == "transformer":
        if text.pretrained is None:
            raise InputError("model.text.pretrained is missing: a transformer is trained from a pretrained one")
        return TextTokenizer.from_pretrained(text.pretrained, data.max_tokens)
    if data.vocabulary is not None:
        vocabulary = Vocabulary.load(data.vocabulary)
    else:
        vocabulary = Vocabulary.build(captions, data.min_count)
    return vocabulary.tokenizer(data.max_tokens or DEFAULT_LENGTH)


def build_model(recipe: Recipe, tokenizer: TextTokenizer, splits: Splits, name: str) -> VSEModel:
    """The model at step 0: random weights drawn from the recipe's seed, pretrained parts loaded."""
    wanted = recipe.model
    text: BiGRUConfig | TransformerConfig
    if wanted.text.kind == "bigru":
        text = BiGRUConfig(vocabulary_size=tokenizer.vocab_size, **wanted.text.model_dump())
    else:
        text = wanted.text
    shown = {key: value for key, value in flat(recipe.identity()).items() if value not in (None, {})}
    about = About(name=name, data=splits.train.name, source="trained with vse", recipe=shown)
    config = ModelConfig(embed_size=wanted.embed_size, image=wanted.image, text=text, about=about)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(recipe.seed, 0, Purpose.WEIGHTS))
        model = VSEModel.build(config, tokenizer, pretrained=wanted.pretrained)
    if wanted.backbone_weights is not None:
        _load_backbone(model, wanted.backbone_weights)
    images = splits.train.images
    if isinstance(images, FeatureRows) and images.dim != model.feature_size:
        raise InputError(
            f"{splits.train.name}: features of {images.dim} values, and the model takes {model.feature_size}: "
            + ("compute them with the recipe's backbone" if splits.store else "set model.image.feature_size")
        )
    if splits.store is not None:
        backbone = cast(Any, model.image_encoder).backbone
        if splits.store.header.fingerprint != backbone_fingerprint(backbone):
            raise InputError(
                f"{splits.store.folder}: features of {splits.store.header.backbone} with other weights than the "
                "recipe's backbone: compute them with the same one (model.pretrained, model.backbone_weights)"
            )
        how = model.preprocessing
        if how is None or splits.store.header.preprocessing != how.to_json():
            raise InputError(f"{splits.store.folder}: its pictures were prepared in another way than the recipe's")
    return model.double() if recipe.run.precision == "fp64" else model


def training_pairs(recipe: Recipe, model: VSEModel, data: CaptionedImages) -> TrainingPairs:
    """The training split as batches, tokenized once."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise InputError("the model has no tokenizer")
    cells = None
    if isinstance(model.image_encoder, GridEncoder) and model.preprocessing is not None:
        rows, columns = model.image_encoder.backbone.grid(*model.preprocessing.size)
        cells = rows * columns
    return TrainingPairs(
        data,
        TokenStore.build(data.captions, tokenizer),
        TextAugmentation(recipe.augmentation.text, recipe.augmentation.rate, tokenizer),
        recipe.augmentation,
        seed=recipe.seed,
        preprocessing=model.preprocessing,
        cells=cells,
    )


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables with dotted keys."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def _load_backbone(model: VSEModel, source: str) -> None:
    """Pretrained weights for the image backbone; what only a classifier needs is left out."""
    if not isinstance(model.image_encoder, GridEncoder):
        raise InputError("model.backbone_weights: a region model has no image backbone")
    backbone = model.image_encoder.backbone
    if source.startswith("timm:"):
        mend_torchvision()  # timm loads it, and a build that does not match torch's fails
        timm = require("timm", "train", "model.backbone_weights")
        state: dict[str, Tensor] = timm.create_model(source.removeprefix("timm:"), pretrained=True).state_dict()
    elif source.endswith(".safetensors"):
        state, _ = read_weights(Path(source))
    else:
        state = read_state(Path(source))
    own = backbone.state_dict()
    found = {_own_name(name, own): value for name, value in state.items()}
    classifier = re.compile(r"(.*\.)?(fc|classifier)\.(weight|bias)")
    wanted = {name: value for name, value in found.items() if name in own or not classifier.fullmatch(name)}
    load_state(backbone, wanted, source)


def _own_name(name: str, own: dict[str, Tensor]) -> str:
    """The backbone's own name of a tensor that a checkpoint keeps under prefixes, or a timm model without ours."""
    parts = name.split(".")
    for first in range(len(parts)):
        if set(parts[:first]) <= PREFIXES:
            rest = ".".join(parts[first:])
            for candidate in (rest, f"model.{rest}"):
                if candidate in own:
                    return candidate
    return name


def _split_identity(data: CaptionedImages, *, stored: bool) -> dict[str, Any]:
    names = hashlib.sha256("\n".join(data.images.ids).encode()).hexdigest()[:16]
    counted = {"images": len(data.images), "captions": len(data.captions), "text": split_hash(data), "names": names}
    if isinstance(data.images, FeatureRows) and not stored:  # a store has a fingerprint
        # A few rows stand for all: a large file takes minutes to read, and features of another origin differ anywhere.
        rows = [data.images[place] for place in (0, len(data.images) // 2, len(data.images) - 1)]
        sample = hashlib.sha256(b"".join(row.tobytes() for row in rows)).hexdigest()[:16]
        return counted | {"regions": data.images.regions, "width": data.images.dim, "sample": sample}
    return counted
