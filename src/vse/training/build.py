"""From a recipe to what is trained: data, tokenizer, model."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from vse.data import CaptionedImages, FeatureRows, FeatureStore, ImageFiles, VideoFrames, attach, open_data
from vse.data.clip_folder import read_clip_header
from vse.data.dataset import ImageSet
from vse.data.layouts.hgr import annotation_folder
from vse.data.reading import Use
from vse.data.video_sources import FrameFolder
from vse.data.vocabulary import WORD_FILE, WORD_LIMIT, VideoVocabulary
from vse.encoders.image import GridEncoder
from vse.encoders.third_party import mend_torchvision
from vse.errors import InputError, require
from vse.evaluation.embeddings import split_hash
from vse.hgr.graphs import SentenceGraphs
from vse.hgr.model import HGRModel
from vse.inputs.tokenizer import TextTokenizer
from vse.inputs.vocabulary import DEFAULT_LENGTH, Vocabulary
from vse.models.checkpoint import read_state
from vse.models.config import (
    About,
    BiGRUConfig,
    FrameBackboneConfig,
    FramesConfig,
    HGRConfig,
    ModelConfig,
    TextConfig,
    WordsConfig,
)
from vse.models.extract import backbone_fingerprint
from vse.models.sources import model_folder
from vse.models.storage import WEIGHTS, TorchModel, load_state, other_files, read_weights
from vse.models.vse_model import VSEModel
from vse.progress import ProgressReporter, SilentProgress
from vse.training.augmentation import TextAugmentation
from vse.training.batches import TokenStore, TrainingPairs
from vse.training.keyed import Purpose, keyed_seed
from vse.training.recipe import DataRecipe, ModelRecipe, Recipe


def remember_backbone(image: FramesConfig, images: ImageSet) -> FramesConfig:
    """``image`` with the backbone of frames that ``vse features`` computed; of others it is not known."""
    if image.backbone is not None:
        raise InputError("model.image.backbone of frames is known from their features: leave it out of the recipe")
    return image.model_copy(update={"backbone": seen_by(images)})


def seen_by(images: ImageSet) -> FrameBackboneConfig | None:
    """What ``features.json`` beside the frames says; a backbone that is made of other files cannot be had again."""
    if not isinstance(images, VideoFrames) or not isinstance(images.source, FrameFolder):
        return None
    header = read_clip_header(images.source.folder)
    if header is None or other_files(header.options):
        return None
    return FrameBackboneConfig(
        name=header.backbone,
        options=header.options,
        preprocessing=header.preprocessing,
        fingerprint=header.fingerprint,
        frames=header.frames,
    )


PREFIXES = {"module", "image_encoder", "backbone", "resnet", "model"}
"""Under which checkpoints keep the tensors of an image backbone."""


@dataclass(frozen=True)
class Splits:
    """The two splits a run needs, the store its features come from and the graphs of its sentences, if any."""

    train: CaptionedImages
    dev: CaptionedImages
    store: FeatureStore | None
    graphs: SentenceGraphs | None = None

    def identity(self, tokenizer: TextTokenizer) -> dict[str, Any]:
        """What must be equal for a run to be continued: captions, words, pictures' names, features."""
        words = json.dumps(tokenizer.to_json(), sort_keys=True)
        return {
            "tokenizer": hashlib.sha256(words.encode()).hexdigest()[:16],
            "train": _split_identity(self.train, stored=self.store is not None),
            "dev": _split_identity(self.dev, stored=self.store is not None),
            "features": None if self.store is None else self.store.header.fingerprint,
            **({} if self.graphs is None else {"graphs": self.graphs.digest()}),
        }


def open_splits(recipe: Recipe) -> Splits:
    """The data that the recipe names; one that cannot be trained on is an error."""
    store = _store(recipe)
    train, dev = open_split(recipe, recipe.data.train, store), open_split(recipe, recipe.data.dev, store)
    for each in (train, dev):
        if not each.captions:
            raise InputError(f"{each.name}, split {each.split!r}: no captions to learn from")
    return Splits(train, dev, store, graphs_of(recipe, (*train.captions, *dev.captions)))


def open_split(recipe: Recipe, split: str, store: FeatureStore | None = None) -> CaptionedImages:
    """One split of the recipe's data, as the recipe's model takes it; ``store`` is that of its features, if open."""
    data = recipe.data
    if not data.path:
        raise InputError("data.path is missing: name the data set in the recipe, or with --data DIR")
    seen = _seen(recipe)
    use: Use = "files" if seen == "grid" else "features"
    frames = data.features if seen == "frames" else None
    found = open_data(data.path, split, layout=data.layout, images=data.images, use=use, features=frames)
    if seen == "frames" and not isinstance(found.images, VideoFrames):
        raise InputError(f"{data.path}: layout {found.layout!r} holds images, and the model takes frames of videos")
    store = store or _store(recipe)
    return found if store is None else attach(found, store, on_bad="drop")


def graphs_of(recipe: Recipe, sentences: Sequence[str]) -> SentenceGraphs | None:
    """The role graphs of sentences of the recipe's data, for a model that reads them."""
    if recipe.model.kind != "hgr":
        return None
    folder = annotation_folder(Path(recipe.data.path))
    return SentenceGraphs.of(sentences, folder, limit=recipe.data.max_tokens or WORD_LIMIT)


def _seen(recipe: Recipe) -> str:
    return "frames" if recipe.model.kind == "hgr" else recipe.model.image.kind


def _store(recipe: Recipe) -> FeatureStore | None:
    features = recipe.data.features
    return None if features is None or _seen(recipe) == "frames" else FeatureStore.open(features)


def build_tokenizer(
    recipe: Recipe, captions: tuple[str, ...], progress: ProgressReporter | None = None
) -> TextTokenizer:
    """The words of the training captions, or the tokenizer of the pretrained transformer."""
    data = recipe.data
    if recipe.model.kind == "hgr" or recipe.model.text.kind == "words":
        return _video_words(data, captions, progress or SilentProgress()).tokenizer(data.max_tokens or WORD_LIMIT)
    text = recipe.model.text
    if text.kind == "transformer":
        if text.pretrained is None:
            raise InputError("model.text.pretrained is missing: a transformer is trained from a pretrained one")
        return TextTokenizer.from_pretrained(text.pretrained, data.max_tokens)
    if data.vocabulary is not None:
        vocabulary = Vocabulary.load(data.vocabulary)
    else:
        vocabulary = Vocabulary.build(captions, data.min_count)
    return vocabulary.tokenizer(data.max_tokens or DEFAULT_LENGTH)


def _video_words(data: DataRecipe, captions: tuple[str, ...], report: ProgressReporter) -> VideoVocabulary:
    """A file of words that the recipe or the data has, or the words of the training captions."""
    own = annotation_folder(Path(data.path)) / WORD_FILE
    file = Path(data.vocabulary) if data.vocabulary is not None else own
    if data.vocabulary is not None or own.is_file():
        vocabulary = VideoVocabulary.load(file)
        lacking = vocabulary.lacking(captions)
        if lacking is not None:
            report.note(lacking)
        return vocabulary
    return VideoVocabulary.build(captions, min_count=data.min_count)


def build_model(recipe: Recipe, tokenizer: TextTokenizer, splits: Splits, name: str) -> TorchModel:
    """The model at step 0: random weights drawn from the recipe's seed, pretrained parts loaded."""
    shown = {key: value for key, value in flat(recipe.identity()).items() if value not in (None, {})}
    notes = () if splits.graphs is None else (splits.graphs.note,)
    about = About(name=name, data=splits.train.name, source="trained with vse", recipe=shown, notes=notes)
    model: TorchModel
    if recipe.model.kind == "hgr":
        size = tokenizer.vocab_size
        config = HGRConfig(vocabulary_size=size, about=about, **recipe.model.model_dump(exclude={"kind"}))
        with _drawn_from(recipe):
            model = HGRModel(config, tokenizer)
    else:
        model = _build_towers(recipe, recipe.model, tokenizer, splits, about)
    _expect_features(recipe, splits, model.feature_size)
    if splits.store is not None and isinstance(model, VSEModel):
        _check_store(splits.store, model)
    return model.double() if recipe.run.precision == "fp64" else model


def _expect_features(recipe: Recipe, splits: Splits, wanted: int) -> None:
    """Refuse what the model could not take, also of the dev split, which is else read when the first epoch is over."""
    for data in (splits.train, splits.dev):
        if not isinstance(data.images, FeatureRows | VideoFrames) or data.images.dim == wanted:
            continue
        where = "model.feature_size" if recipe.model.kind == "hgr" else "model.image.feature_size"
        if splits.store:
            fix = "compute them with the recipe's backbone"
        else:
            fix = f"set {where}" if data is splits.train else "extract them as those to train on were"
        raise InputError(
            f"{data.name}, split {data.split!r}: features of {data.images.dim} values, and the model takes {wanted}: "
            + fix
        )
    if isinstance(splits.dev.images, VideoFrames):
        splits.dev.images.expect_finite()  # packing looks at those to train on


@contextmanager
def _drawn_from(recipe: Recipe) -> Iterator[None]:
    """The first weights depend on the recipe's seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(recipe.seed, 0, Purpose.WEIGHTS))
        yield


def _build_towers(
    recipe: Recipe, wanted: ModelRecipe, tokenizer: TextTokenizer, splits: Splits, about: About
) -> VSEModel:
    text: TextConfig
    if wanted.text.kind == "bigru":
        text = BiGRUConfig(vocabulary_size=tokenizer.vocab_size, **wanted.text.model_dump())
    elif wanted.text.kind == "words":
        text = WordsConfig(vocabulary_size=tokenizer.vocab_size, **wanted.text.model_dump())
    else:
        text = wanted.text
    image = remember_backbone(wanted.image, splits.train.images) if wanted.image.kind == "frames" else wanted.image
    config = ModelConfig(embed_size=wanted.embed_size, image=image, text=text, about=about)
    with _drawn_from(recipe):
        model = VSEModel.build(config, tokenizer, pretrained=wanted.pretrained and wanted.start is None)
    if wanted.start is not None:
        state, _ = read_weights(model_folder(wanted.start) / WEIGHTS)
        load_state(model, state, f"model.start {wanted.start}")
    elif wanted.backbone_weights is not None:
        _load_backbone(model, wanted.backbone_weights)
    return model


def _check_store(store: FeatureStore, model: VSEModel) -> None:
    """Features of another backbone or of other pictures may have the right width and mean something else."""
    backbone = cast(Any, model.image_encoder).backbone
    if store.header.fingerprint != backbone_fingerprint(backbone):
        raise InputError(
            f"{store.folder}: features of {store.header.backbone} with other weights than the recipe's backbone: "
            "compute them with the same one (model.pretrained, model.backbone_weights)"
        )
    how = model.preprocessing
    if how is None or store.header.preprocessing != how.to_json():
        raise InputError(f"{store.folder}: its pictures were prepared in another way than the recipe's")


def training_pairs(
    recipe: Recipe, model: TorchModel, data: CaptionedImages, graphs: SentenceGraphs | None = None
) -> TrainingPairs:
    """The training split as batches, tokenized once."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise InputError("the model has no tokenizer")
    cells = None
    if isinstance(model, VSEModel) and isinstance(model.image_encoder, GridEncoder) and model.preprocessing is not None:
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
        graphs=None if graphs is None else [graphs[caption] for caption in data.captions],
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
    images = data.images
    if isinstance(images, ImageFiles) or stored:  # a store has a fingerprint
        return counted
    # A few rows stand for all: a large file takes minutes to read, and features of another origin differ anywhere.
    rows = [images[place] for place in (0, len(images) // 2, len(images) - 1)]
    sample = hashlib.sha256(b"".join(row.tobytes() for row in rows)).hexdigest()[:16]
    size = {"regions": images.regions} if isinstance(images, FeatureRows) else {"frames": int(images.sizes.sum())}
    return counted | size | {"width": images.dim, "sample": sample}
