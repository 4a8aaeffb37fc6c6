"""What a training run is, as strict TOML: one table for each part, every key typed, unknown keys refused."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from vse._util.strict import Strict
from vse.data.open import AUTO, LAYOUTS
from vse.errors import InputError, unknown_choice
from vse.losses import MARGIN, TEMPERATURE
from vse.models.config import (
    ATTENTION,
    LARGEST,
    About,
    BiGRUConfig,
    FrameBackboneConfig,
    FramesConfig,
    HGRConfig,
    ImageConfig,
    ModelConfig,
    PoolingConfig,
    RegionConfig,
    TextConfig,
    TransformerConfig,
    WordsConfig,
)
from vse.pooling.registry import pooling_builder

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Table(Strict):
    """A table of a recipe. ``true`` is no number and ``"3"`` neither."""

    model_config = ConfigDict(strict=True)


class BiGRURecipe(Table):
    """Words through a bidirectional GRU; how many words there are is known once the data is."""

    kind: Literal["bigru"] = "bigru"
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    pooling: PoolingConfig = PoolingConfig()


class WordsRecipe(Table):
    """Words of video captions, split at white space, through a bidirectional GRU with dropout."""

    kind: Literal["words"] = "words"
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    dropout: Rate = 0.2
    pooling: PoolingConfig = PoolingConfig()


class ModelRecipe(Table):
    """Two towers whose vectors are compared: of regions, of cells of pictures, or of frames of videos.

    ``pretrained`` asks for the published weights of the image backbone. ``backbone_weights`` loads them from a file
    (``.safetensors`` or a state saved by torch) or, as ``timm:NAME``, from a timm model of the same layer names.
    ``start`` is the folder of a model of the same shape, from which all weights are taken in the place of these.
    """

    kind: Literal["vse"] = "vse"
    embed_size: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    image: ImageConfig = RegionConfig()
    text: Annotated[BiGRURecipe | TransformerConfig | WordsRecipe, Field(discriminator="kind")] = BiGRURecipe()
    pretrained: bool = False
    backbone_weights: str | None = None
    start: str | None = None

    reads_graphs: ClassVar = False
    feature_key: ClassVar = "model.image.feature_size"

    @property
    def item_input(self) -> str:
        """What the model takes of an image or video: ``region``, ``grid`` or ``frames``."""
        return self.image.kind

    @property
    def token_source(self) -> str:
        """Where tokens come from: ``transformer``, ``words`` or ``video words``."""
        return {"transformer": "transformer", "words": "video words"}.get(self.text.kind, "words")

    @property
    def pretrained_text(self) -> str | None:
        """The transformer that texts are encoded with."""
        return getattr(self.text, "pretrained", None)

    def config(self, vocabulary_size: int, about: About, frames: FrameBackboneConfig | None) -> ModelConfig:
        """Return the configuration of the model for a vocabulary and the backbone of frame features."""
        text: TextConfig
        if isinstance(self.text, BiGRURecipe):
            text = BiGRUConfig(vocabulary_size=vocabulary_size, **self.text.model_dump())
        elif isinstance(self.text, WordsRecipe):
            text = WordsConfig(vocabulary_size=vocabulary_size, **self.text.model_dump())
        else:
            text = self.text
        image = self.image
        if isinstance(image, FramesConfig):
            if image.backbone is not None:
                raise InputError(
                    "model.image.backbone of frames is known from their features: leave it out of the recipe"
                )
            image = image.model_copy(update={"backbone": frames})
        return ModelConfig(embed_size=self.embed_size, image=image, text=text, about=about)

    @model_validator(mode="before")
    @classmethod
    def _usual_kinds(cls, value: Any) -> Any:
        """A table without a kind is the usual one."""
        if not isinstance(value, dict):
            return value
        usual = {"image": "grid" if "backbone" in _table(value.get("image")) else "region", "text": "bigru"}
        return value | {
            side: {"kind": kind, **value[side]} for side, kind in usual.items() if isinstance(value.get(side), dict)
        }

    @model_validator(mode="after")
    def _known_poolings(self) -> ModelRecipe:
        for side in (self.image, self.text):
            pooling_builder(side.pooling.name)
        return self


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class HGRRecipe(Table):
    """Videos and sentences of three levels, see :class:`vse.hgr.HGRConfig`; ``"gpo"`` in both poolings is HGR∞."""

    kind: Literal["hgr"] = "hgr"
    feature_size: Annotated[int, Field(ge=1, le=LARGEST)] = 2048
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    embed_size: Annotated[int, Field(ge=2, le=LARGEST)] = 1024
    video_pooling: PoolingConfig = PoolingConfig(name=ATTENTION)
    sentence_pooling: PoolingConfig = PoolingConfig(name=ATTENTION)
    dropout: Rate = 0.2
    graph_dropout: Rate = 0.5

    reads_graphs: ClassVar = True
    feature_key: ClassVar = "model.feature_size"
    item_input: ClassVar = "frames"
    token_source: ClassVar = "video words"
    pretrained_text: ClassVar = None
    pretrained: ClassVar = False
    backbone_weights: ClassVar = None
    start: ClassVar = None

    def config(self, vocabulary_size: int, about: About, frames: FrameBackboneConfig | None) -> HGRConfig:
        """Return the configuration of the model for a vocabulary."""
        return HGRConfig(vocabulary_size=vocabulary_size, about=about, **self.model_dump(exclude={"kind"}))

    @model_validator(mode="after")
    def _known_poolings(self) -> HGRRecipe:
        for pooling in (self.video_pooling, self.sentence_pooling):
            if pooling.name != ATTENTION:
                pooling_builder(pooling.name)
        return self


AnyModelRecipe = Annotated[ModelRecipe | HGRRecipe, Field(discriminator="kind")]


class DataRecipe(Table):
    """Where images and captions come from.

    ``path`` is the data set and ``layout`` how it is laid out (``auto`` finds out); ``images`` the folder of its
    pictures, if they are elsewhere. ``max_tokens`` cuts longer captions (those of videos are cut at 30 words).
    ``features`` is a store of ``vse features`` that takes the place of pictures (the backbone is then not trained), or
    of videos their frames: a file, a folder, or a kind that the data has.
    ``vocabulary`` is a file of words for a BiGRU; without it the ``word2int.json`` of videos, where they have one, or
    the words that occur at least ``min_count`` times in the training captions are taken. ``captions_per_image`` draws
    that many captions of each image anew for every epoch; without it an epoch goes through all.
    """

    path: str = ""
    layout: str = AUTO
    images: str | None = None
    features: str | None = None
    train: str = "train"
    dev: str = "dev"
    vocabulary: str | None = None
    min_count: Count = 4
    max_tokens: Count | None = None
    captions_per_image: Count | None = None

    @field_validator("layout")
    @classmethod
    def _known_layout(cls, value: str) -> str:
        if value not in {AUTO, *LAYOUTS}:
            raise ValueError(unknown_choice("layout", value, (AUTO, *LAYOUTS)))
        return value


class LossRecipe(Table):
    """What is minimised, and how it changes while training.

    - ``triplet``: the hinge of :func:`vse.losses.triplet_from_scores`: all negatives for the first ``warmup_epochs``,
      then ``negatives``.
    - ``annealed``: the smooth hinge of :func:`vse.losses.smooth_triplet_from_scores`, whose temperature falls
      geometrically from ``temperature`` to ``final_temperature`` over the whole run: from all negatives, softly
      weighted, to the hardest one.
    - ``contrastive``: cross-entropy over the batch at ``temperature``.

    ``margin`` is the distance that the hinges ask for; ``reduction`` adds the pairs of a batch up or averages them.
    ``same_image`` says what other captions of the same image are: ``masked`` (left out) or ``negatives``, as in the
    released code.
    """

    objective: Literal["triplet", "annealed", "contrastive"] = "triplet"
    negatives: Literal["hardest", "semi-hard", "all"] = "semi-hard"
    warmup_epochs: NonNegative = 1
    margin: Positive = MARGIN
    temperature: Positive = TEMPERATURE
    final_temperature: Positive = 0.01
    reduction: Literal["sum", "mean"] = "sum"
    same_image: Literal["masked", "negatives"] = "masked"


class OptimizerRecipe(Table):
    """Adam or AdamW; the learning rate of pretrained parts is multiplied by their factor.

    ``clip`` bounds the norm of all gradients together; 0 does not. ``backbone_parts`` are beginnings of names in the
    image backbone, such as ``model.blocks.6``: of it they alone are trained, all of it if there are none. Layers below
    the first of them cost no gradients.
    """

    name: Literal["adamw", "adam"] = "adamw"
    lr: Positive = 5e-4
    weight_decay: NonNegative = 1e-4
    clip: NonNegative = 2.0
    backbone_factor: Positive = 0.1
    backbone_parts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    transformer_factor: Positive = 0.1


class ScheduleRecipe(Table):
    """How long, how fast.

    The learning rate rises linearly over ``warmup_epochs`` from epoch ``warmup_from`` on (0 is the first; before it,
    it is the full one), and afterwards ``decay`` lowers it: ``step`` by ``decay_factor`` for the last
    ``decay_epochs``, ``cosine`` smoothly to nothing. The image backbone is not trained in the first ``frozen_epochs``.
    """

    epochs: Count = 25
    batch_size: Annotated[int, Field(ge=2)] = 128
    warmup_from: NonNegative = 0
    warmup_epochs: NonNegative = 0
    decay: Literal["step", "cosine"] = "step"
    decay_epochs: Annotated[int, Field(ge=0)] = 10
    decay_factor: Positive = 0.1
    frozen_epochs: Annotated[int, Field(ge=0)] = 1


class AugmentationRecipe(Table):
    """Size augmentation of either side, and random views of pictures.

    ``drop`` removes each element with probability ``rate``, at least one stays. ``released`` is what the authors' code
    does: regions as ``drop``, grid cells at a rate drawn for each picture, words masked, exchanged or deleted.
    """

    image: Literal["none", "drop", "released"] = "drop"
    text: Literal["none", "drop", "released"] = "drop"
    rate: Rate = 0.2
    views: bool = True


class GuardRecipe(Table):
    """What happens when the embeddings collapse: the spread of images or of texts stays below ``spread`` for
    ``patience`` steps.

    A model that learns has a spread above 0.5, most of the time above 0.9. On Flickr8k the paper's schedule falls to
    0.09 in its second epoch and needs another one to come back; on MSVD the texts of VSE fall to 0.07 and come back in
    the tenth epoch; at 0 all is lost.

    ``warn`` says so once, ``stop`` ends the run, ``soften`` goes back to all negatives until the spread has recovered.
    """

    action: Literal["off", "warn", "stop", "soften"] = "soften"
    spread: Positive = 0.15
    patience: Count = 30


class RunRecipe(Table):
    """How the machine is used.

    ``micro_batches`` splits a batch to save memory; negatives stay those of the batch. ``average`` keeps an exponential
    average of the weights with that decay beside the trained ones. ``fp16`` needs a GPU. ``compile`` compiles the image
    tower, and a transformer's text tower. ``device`` is torch's name of one, ``auto`` the GPU if there is one.
    ``threads`` are torch's (None leaves them), ``readers`` those that prepare batches. A checkpoint is written every
    ``checkpoint_minutes`` (0: only after epochs). ``tensorboard`` writes its files beside ``metrics.jsonl``.
    """

    precision: Literal["fp32", "bf16", "fp16", "fp64"] = "fp32"
    micro_batches: Count = 1
    average: Annotated[float, Field(gt=0, lt=1)] | None = None
    compile: bool = False
    device: str = "auto"
    threads: Count | None = None
    readers: Count = 2
    checkpoint_minutes: NonNegative = 5
    tensorboard: bool = False


FREE: Any = {
    "about": True,
    "data": {"path", "images", "features", "vocabulary"},
    "model": {"backbone_weights", "start"},
    "run": {"micro_batches", "compile", "device", "threads", "readers", "checkpoint_minutes", "tensorboard"},
}
"""What may differ when a run is continued: places (the data itself is compared), and how the machine is used."""


class Recipe(Table):
    """One training run."""

    about: str = ""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    data: DataRecipe = DataRecipe()
    model: AnyModelRecipe = ModelRecipe()
    loss: LossRecipe = LossRecipe()
    optimizer: OptimizerRecipe = OptimizerRecipe()
    schedule: ScheduleRecipe = ScheduleRecipe()
    augmentation: AugmentationRecipe = AugmentationRecipe()
    guard: GuardRecipe = GuardRecipe()
    run: RunRecipe = RunRecipe()

    @model_validator(mode="before")
    @classmethod
    def _usual_model(cls, value: Any) -> Any:
        """A model without a kind has two towers."""
        if isinstance(value, dict) and isinstance(value.get("model"), dict):
            return value | {"model": {"kind": "vse", **value["model"]}}
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.schedule.decay == "step" and self.schedule.decay_epochs >= self.schedule.epochs:
            raise ValueError(
                f"schedule.decay_epochs is {self.schedule.decay_epochs}, which leaves no epoch of "
                f"{self.schedule.epochs} at the full rate: lower it, or --set schedule.decay_epochs=0 for none"
            )
        if self.schedule.batch_size % self.run.micro_batches:
            raise ValueError(
                f"schedule.batch_size {self.schedule.batch_size} cannot be split into {self.run.micro_batches} equal "
                "micro batches"
            )
        if self.run.compile and self.run.micro_batches > 1:
            raise ValueError("run.compile and run.micro_batches: compiled dropout may differ between the two passes")
        if self.model.kind == "hgr":
            self._consistent_hgr()
        elif self.data.features is not None and self.model.image.kind == "region":
            raise ValueError("data.features is for grid models and videos; region features are read from data.path")
        return self

    def _consistent_hgr(self) -> None:
        if self.augmentation.text != "none":
            raise ValueError(
                f"augmentation.text {self.augmentation.text!r} would move the words that role graphs point to: set it "
                'to "none" for model.kind "hgr", which has dropout of words instead'
            )
        if self.run.compile:
            raise ValueError('run.compile is for towers of vectors: leave it out for model.kind "hgr"')

    def identity(self) -> dict[str, Any]:
        """Everything that the result depends on: what must be equal for a run to be continued."""
        return self.model_dump(mode="json", exclude=FREE)


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one, with dotted keys.

    >>> flat({"run": {"threads": 2}, "seed": 0})
    {'run.threads': 2, 'seed': 0}
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


class Member(Table):
    """One model of an ensemble: a recipe by name, and the seed it is trained with."""

    recipe: str
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


class EnsembleRecipe(Table):
    """Models that are trained one after the other and asked together: the mean of their scores."""

    about: str = ""
    members: Annotated[tuple[Member, ...], Field(min_length=2, strict=False)]
