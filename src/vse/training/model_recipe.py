"""The model of a recipe: two towers, or HGR. What training must know of either is asked through the same members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from vse._util.strict import Strict
from vse.errors import InputError
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
from vse.pooling import pooling_builder

if TYPE_CHECKING:
    from vse.training.recipe import Recipe

Rate = Annotated[float, Field(ge=0, lt=1)]


class Table(Strict):
    """A table of a recipe, read strictly: neither ``true`` nor ``"3"`` is accepted as a number."""

    model_config = ConfigDict(strict=True)


class BiGRURecipe(Table):
    """Words through a bidirectional GRU; the size of the vocabulary follows from the data."""

    kind: Literal["bigru"] = "bigru"
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    pooling: PoolingConfig = PoolingConfig()


class WordsRecipe(Table):
    """Words of video captions, split at whitespace, through a bidirectional GRU with dropout."""

    kind: Literal["words"] = "words"
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    dropout: Rate = 0.2
    pooling: PoolingConfig = PoolingConfig()


class ModelRecipe(Table):
    """Two towers whose embeddings are compared.

    Attributes:
        kind: ``vse``.
        embed_size: dimensions of an embedding.
        image: regions, the grid cells of an image, or the frames of a video.
        text: how captions are encoded.
        pretrained: load the published weights of the image backbone.
        backbone_weights: load them from a file (``.safetensors`` or a state saved by torch) or, as ``timm:NAME``, from
            a timm model with the same layer names.
        start: the folder of a model of the same shape, from which all weights are loaded instead.
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

    def check(self, recipe: Recipe) -> None:
        """Raise ValueError for other parts of a recipe that the model does not go with."""
        if recipe.data.features is not None and self.item_input == "region":
            raise ValueError("data.features is for grid models and videos; region features are read from data.path")

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
        """Fill in the default kind of a table without one."""
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
    """Videos and sentences on three levels, see :class:`vse.hgr.HGRConfig`; ``"gpo"`` in both poolings is HGR∞."""

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

    def check(self, recipe: Recipe) -> None:
        """Raise ValueError for other parts of a recipe that the model does not go with."""
        if recipe.augmentation.text != "none":
            raise ValueError(
                f"augmentation.text {recipe.augmentation.text!r} would move the words that role graphs point to: set "
                'it to "none" for model.kind "hgr", which has dropout of words instead'
            )
        if recipe.run.compile:
            raise ValueError('run.compile is for towers of vectors: leave it out for model.kind "hgr"')

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
