"""From a recipe to the data of a run: its splits, the tokenizer, and the training pairs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vse.data import CaptionedImages, FeatureRows, FeatureStore, ImageFiles, attach, open_data
from vse.data.dataset import VIDEOS
from vse.data.layouts.hgr import annotation_folder
from vse.data.packed import PackedImages
from vse.data.vocabulary import WORD_FILE, WORD_LIMIT, VideoVocabulary
from vse.errors import InputError
from vse.evaluation.embeddings import split_hash
from vse.hgr.graphs import SentenceGraphs
from vse.inputs.tokenizer import TextTokenizer
from vse.inputs.vocabulary import CHARACTER_LENGTH, DEFAULT_LENGTH, Vocabulary, character_tokenizer
from vse.models.dual_model import start_tokenizer
from vse.models.storage import TorchModel
from vse.progress import ProgressReporter, SilentProgress
from vse.training.augmentation import TextAugmentation
from vse.training.batches import TokenStore, TrainingPairs
from vse.training.mining import HardNegatives
from vse.training.recipe import DataRecipe, Recipe


@dataclass(frozen=True)
class Splits:
    """The data of a run.

    Attributes:
        train: the split to train on.
        dev: the split by which the best epoch is chosen.
        store: the features that take the place of images, if any.
        graphs: role graphs of all captions, for a model that reads them.
    """

    train: CaptionedImages
    dev: CaptionedImages
    store: FeatureStore | None
    graphs: SentenceGraphs | None = None

    def identity(self, tokenizer: TextTokenizer) -> dict[str, Any]:
        """Return what must be equal for a run to resume: captions, words, image names, features."""
        words = json.dumps(tokenizer.to_json(), sort_keys=True)
        return {
            "tokenizer": hashlib.sha256(words.encode()).hexdigest()[:16],
            "train": _split_identity(self.train, stored=self.store is not None),
            "dev": _split_identity(self.dev, stored=self.store is not None),
            "features": None if self.store is None else self.store.header.fingerprint,
            **({} if self.graphs is None else {"graphs": self.graphs.digest()}),
            **({"tags": self._tags()} if getattr(self.train.images, "tags", None) is not None else {}),
        }

    def _tags(self) -> str | None:
        tags = None if self.store is None else json.dumps(self.store.tags, sort_keys=True)
        return None if tags is None else hashlib.sha256(tags.encode()).hexdigest()[:16]


def open_splits(recipe: Recipe) -> Splits:
    """Open the data that the recipe names.

    Raises:
        InputError: the data is missing, unsupported by the model, or has no captions.
    """
    store = _store(recipe)
    train, dev = open_split(recipe, recipe.data.train, store), open_split(recipe, recipe.data.dev, store)
    for each in (train, dev):
        if not each.captions:
            raise InputError(f"{each.name}, split {each.split!r}: no captions to learn from")
    if recipe.data.dev_captions is not None:
        dev = _first_captions(dev, recipe.data.dev_captions)
    return Splits(train, dev, store, graphs_of(recipe, (*train.captions, *dev.captions)))


def _first_captions(data: CaptionedImages, count: int) -> CaptionedImages:
    """Return the first captions of a split and the images up to the last that they describe."""
    owners = data.caption_to_image[:count]
    last = int(owners.max()) + 1
    if last == len(data.images) and count >= len(data.captions):
        return data
    images = data.images
    if isinstance(images, ImageFiles):
        images = replace(images, paths=images.paths[:last], ids=images.ids[:last])
    elif isinstance(images, PackedImages):
        images = images.first(last)
    elif isinstance(images, FeatureRows):
        images = replace(images, rows=images.rows[:last], ids=images.ids[:last])
    else:
        raise InputError("data.dev_captions is for images: leave it out for videos")
    return replace(data, images=images, captions=data.captions[:count], caption_to_image=owners)


def open_split(recipe: Recipe, split: str, store: FeatureStore | None = None) -> CaptionedImages:
    """Open one split of the recipe's data in the form that the recipe's model takes.

    Args:
        recipe: names the data and the model.
        split: the name of the split.
        store: the recipe's feature store, if it is open already.
    """
    data, model = recipe.data, recipe.model
    if not data.path:
        raise InputError("data.path is missing: name the dataset in the recipe, or with --data DIR")
    found = open_data(
        data.path,
        split,
        layout=data.layout,
        images=data.images,
        use="files" if model.item_input == "grid" or _reads_store(recipe) else "features",
        features=data.features if model.item_input == "frames" else None,
    )
    if model.item_input == "frames" and found.kind != VIDEOS:
        raise InputError(f"{data.path}: layout {found.layout!r} holds images, and the model takes frames of videos")
    store = store or _store(recipe)
    if store is None:
        return found
    tags = store.tag_names() if getattr(model, "tags", False) else ()
    return attach(found, store, on_bad="drop", boxes=bool(getattr(model, "boxes", False)), tags=tags)


def _store(recipe: Recipe) -> FeatureStore | None:
    return FeatureStore.open(str(recipe.data.features)) if _reads_store(recipe) else None


def _reads_store(recipe: Recipe) -> bool:
    """Whether features come from a store of images, matched by id, and not from the dataset itself."""
    return recipe.data.features is not None and recipe.model.item_input != "frames"


def _split_identity(data: CaptionedImages, *, stored: bool) -> dict[str, Any]:
    names = hashlib.sha256("\n".join(data.images.ids).encode()).hexdigest()[:16]
    counted = {"images": len(data.images), "captions": len(data.captions), "text": split_hash(data), "names": names}
    return counted if stored else counted | data.images.identity()  # a store has a fingerprint


def graphs_of(recipe: Recipe, sentences: Sequence[str]) -> SentenceGraphs | None:
    """Return the role graphs of sentences of the recipe's data; None for a model that reads none."""
    if not recipe.model.reads_graphs:
        return None
    folder = annotation_folder(Path(recipe.data.path))
    return SentenceGraphs.of(sentences, folder, limit=recipe.data.max_tokens or WORD_LIMIT)


def build_tokenizer(
    recipe: Recipe, captions: tuple[str, ...], progress: ProgressReporter | None = None
) -> TextTokenizer:
    """Return the tokenizer of the recipe's model: of a pretrained model, or of the words of the captions."""
    data, tokens = recipe.data, recipe.model.token_source
    if tokens == "start":
        return start_tokenizer(str(recipe.model.start))
    if tokens == "video words":
        return _video_words(data, captions, progress or SilentProgress()).tokenizer(data.max_tokens or WORD_LIMIT)
    if tokens == "transformer":
        pretrained = recipe.model.pretrained_text
        if pretrained is None:
            raise InputError("model.text.pretrained is missing: a transformer is trained from a pretrained one")
        return TextTokenizer.from_pretrained(pretrained, data.max_tokens)
    if tokens == "characters":
        return character_tokenizer(captions, data.max_tokens or CHARACTER_LENGTH)
    if data.vocabulary is not None:
        vocabulary = Vocabulary.load(data.vocabulary)
    else:
        vocabulary = Vocabulary.build(captions, data.min_count)
    return vocabulary.tokenizer(data.max_tokens or DEFAULT_LENGTH)


def _video_words(data: DataRecipe, captions: tuple[str, ...], report: ProgressReporter) -> VideoVocabulary:
    """The word list of the recipe or of the dataset, or the words of the training captions."""
    bundled = annotation_folder(Path(data.path)) / WORD_FILE
    file = Path(data.vocabulary) if data.vocabulary is not None else bundled
    if data.vocabulary is not None or bundled.is_file():
        vocabulary = VideoVocabulary.load(file)
        lacking = vocabulary.lacking(captions)
        if lacking is not None:
            report.note(lacking)
        return vocabulary
    return VideoVocabulary.build(captions, min_count=data.min_count)


def training_pairs(
    recipe: Recipe,
    model: TorchModel,
    data: CaptionedImages,
    graphs: SentenceGraphs | None = None,
    negatives: HardNegatives | None = None,
) -> TrainingPairs:
    """Return the training split as batches; captions are tokenized once.

    Args:
        recipe: the augmentation and the seed.
        model: its tokenizer, preprocessing and grid.
        data: the split.
        graphs: role graphs of its captions, for a model that reads them.
        negatives: wrong images and captions for each pair, for a model that scores them.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise InputError("the model has no tokenizer")
    return TrainingPairs(
        data,
        TokenStore.build(data.captions, tokenizer),
        TextAugmentation(
            recipe.augmentation.text,
            recipe.augmentation.rate,
            tokenizer,
            special_words=recipe.released.special_words,
        ),
        recipe.augmentation,
        seed=recipe.seed,
        preprocessing=model.preprocessing,
        cells=model.grid_cells,
        graphs=None if graphs is None else [graphs[caption] for caption in data.captions],
        negatives=negatives,
    )
