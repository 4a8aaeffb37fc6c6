"""From a recipe to the model at step 0: random weights from the recipe's seed, pretrained parts loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from vse.data import FeatureStore, ImageSet
from vse.data.features import read_video_header
from vse.data.video_sources import FrameFolder
from vse.encoders.functional import state_fingerprint
from vse.encoders.third_party import repair_torchvision
from vse.errors import InputError, require
from vse.inputs.tokenizer import TextTokenizer
from vse.models.checkpoint import read_state
from vse.models.config import About, AnyConfig, FrameBackboneConfig, ModelConfig
from vse.models.dual_model import base_repository, start_dual, with_pooling
from vse.models.sources import model_folder
from vse.models.storage import WEIGHTS, TorchModel, create_model, load_state, other_files, read_weights
from vse.models.system_config import CONCEPTUAL
from vse.models.vse_model import VSEModel
from vse.systems.concepts import Concepts
from vse.systems.registry import fill_concepts
from vse.training.cross_recipe import CrossRecipe
from vse.training.data import Splits
from vse.training.keyed import Purpose, keyed_seed
from vse.training.model_recipe import DualImageRecipe, ModelRecipe
from vse.training.recipe import Recipe, flat

PREFIXES = {"module", "image_encoder", "backbone", "resnet", "model"}
"""Under which checkpoints keep the tensors of an image backbone."""


def build_model(recipe: Recipe, tokenizer: TextTokenizer, splits: Splits, name: str) -> TorchModel:
    """Build the model of a recipe.

    Args:
        recipe: describes the model; its seed determines the random weights.
        tokenizer: see :func:`vse.training.data.build_tokenizer`.
        splits: the data, whose features must have the width that the model takes.
        name: recorded in the model.

    Raises:
        InputError: the features or the pretrained weights do not fit the model.
    """
    shown = {key: value for key, value in flat(recipe.identity()).items() if value not in (None, {})}
    notes = () if splits.graphs is None else (splits.graphs.note,)
    about = About(name=name, data=splits.train.name, source="trained with vse", recipe=shown, notes=notes)
    wanted = recipe.model
    if isinstance(wanted, ModelRecipe) and isinstance(wanted.image, DualImageRecipe):
        dual = _dual_model(recipe, wanted, wanted.image, about)
        return dual.double() if recipe.run.precision == "fp64" else dual
    config = wanted.config(tokenizer.vocab_size, about, frame_backbone_of(splits.train.images))
    config, concepts = _with_concepts(config, tokenizer, splits)
    if isinstance(wanted, CrossRecipe) and wanted.tags and splits.store is not None:
        config = config.model_copy(update={"tags": splits.store.tag_names()})
    with _drawn_from(recipe):
        model = create_model(config, tokenizer, pretrained=wanted.pretrained and wanted.start is None, training=True)
    if concepts is not None:
        fill_concepts(model.image_encoder, model.auxiliary, concepts)
    if wanted.start is not None:
        state, _ = read_weights(model_folder(wanted.start) / WEIGHTS)
        load_state(model, state, f"model.start {wanted.start}")
    elif wanted.backbone_weights is not None:
        _load_backbone(model, wanted.backbone_weights)
    _expect_features(recipe, splits, model.feature_size)
    if splits.store is not None and wanted.item_input != "region":  # a model of regions takes any of the right width
        _check_store(splits.store, model)
    return model.double() if recipe.run.precision == "fp64" else model


def _with_concepts(config: AnyConfig, tokenizer: TextTokenizer, splits: Splits) -> tuple[AnyConfig, Concepts | None]:
    """Return the concepts of the training captions and the configuration with them; None for a model without any."""
    if not isinstance(config, ModelConfig) or not isinstance(config.system, CONCEPTUAL):
        return config, None
    concepts = Concepts.build(splits.train.captions, tokenizer, config.system.concepts, config.system.words)
    system = config.system.model_copy(update={"words": concepts.words})
    return config.model_copy(update={"system": system}), concepts


def _dual_model(recipe: Recipe, wanted: ModelRecipe, image: DualImageRecipe, about: About) -> VSEModel:
    """Return the public model that the recipe starts from, with the recipe's pooling; its embeddings are unchanged."""
    start = str(wanted.start)
    model = start_dual(start)
    if "embed_size" in wanted.model_fields_set and wanted.embed_size != model.embed_size:
        raise InputError(
            f"model.embed_size is {wanted.embed_size}, and model.start {start} has {model.embed_size} dimensions: "
            "leave it out"
        )
    with _drawn_from(recipe):
        model = with_pooling(model, image.pooling)
    base = base_repository(model, start)
    origin = base or Path(start).name  # a card shows no paths of this machine
    shown = about.recipe | {"model.embed_size": model.embed_size, "model.start": origin}
    known = about.model_copy(update={"recipe": shown, "base_model": base})
    model.config = model.config.model_copy(update={"about": known})
    return model


def frame_backbone_of(images: ImageSet) -> FrameBackboneConfig | None:
    """Return the backbone that computed frame features, as ``features.json`` beside them describes it.

    None for other features, and for a backbone that was made of files that a user named.
    """
    source = getattr(images, "source", None)
    header = read_video_header(source.folder) if isinstance(source, FrameFolder) else None
    if header is None or other_files(header.options):
        return None
    return FrameBackboneConfig(
        name=header.backbone,
        options=header.options,
        preprocessing=header.preprocessing,
        fingerprint=header.fingerprint,
        frames=header.frames,
    )


@contextmanager
def _drawn_from(recipe: Recipe) -> Iterator[None]:
    """Make the initial weights depend on the recipe's seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(recipe.seed, 0, Purpose.WEIGHTS))
        yield


def _expect_features(recipe: Recipe, splits: Splits, wanted: int) -> None:
    """Refuse features of another width, also of dev, which is otherwise read only after the first epoch."""
    for data in (splits.train, splits.dev):
        found = data.images.feature_size
        if found is None or found == wanted:
            continue
        if splits.store:
            fix = "compute them with the recipe's backbone"
        elif data is splits.train:
            fix = f"set {recipe.model.feature_key}"
        else:
            fix = "extract them as those to train on were"
        raise InputError(
            f"{data.name}, split {data.split!r}: features of {found} values, and the model takes {wanted}: {fix}"
        )
    splits.dev.images.expect_finite()  # packing checks those to train on


def _check_store(store: FeatureStore, model: TorchModel) -> None:
    """Refuse features of another backbone or preprocessing, which may have the right width and mean something else."""
    backbone = model.image_backbone
    if backbone is None or store.header.fingerprint != state_fingerprint(backbone.state_dict()):
        raise InputError(
            f"{store.folder}: features of {store.header.backbone} with other weights than the recipe's backbone: "
            "compute them with the same one (model.pretrained, model.backbone_weights)"
        )
    how = model.preprocessing
    if how is None or store.header.preprocessing != how.to_json():
        raise InputError(f"{store.folder}: its images were preprocessed in another way than the recipe's")
    store.expect_windows(getattr(model.image_encoder, "windows", None))


COUNTER = "num_batches_tracked"


def _load_backbone(model: TorchModel, source: str) -> None:
    """Load pretrained weights into the image backbone; the tensors of a classifier are skipped."""
    backbone = model.image_backbone
    if backbone is None:
        raise InputError("model.backbone_weights: a region model has no image backbone")
    if source.startswith("timm:"):
        repair_torchvision()  # timm imports it, and a build that does not match torch's fails
        timm = require("timm", "train", "model.backbone_weights")
        state: dict[str, Tensor] = timm.create_model(source.removeprefix("timm:"), pretrained=True).state_dict()
    elif source.endswith(".safetensors"):
        state, _ = read_weights(Path(source))
    else:
        state = read_state(Path(source))
    expected = backbone.state_dict()
    renamed = {_backbone_name(name, expected): value for name, value in state.items()}
    classifier = re.compile(r"(.*\.)?(fc|classifier)\.(weight|bias)")
    wanted = {name: value for name, value in renamed.items() if name in expected or not classifier.fullmatch(name)}
    # A counter that batch norms have since torch 0.4.1 and that no frozen statistics depend on: older files lack it.
    counters = {name: value for name, value in expected.items() if name.endswith(COUNTER)}
    load_state(backbone, {**counters, **wanted}, source)


def _backbone_name(name: str, expected: dict[str, Tensor]) -> str:
    """The backbone's name of a tensor that a checkpoint keeps under prefixes, or a timm model without ours."""
    parts = name.split(".")
    for first in range(len(parts)):
        if set(parts[:first]) <= PREFIXES:
            rest = ".".join(parts[first:])
            for candidate in (rest, f"model.{rest}"):
                if candidate in expected:
                    return candidate
    return name
