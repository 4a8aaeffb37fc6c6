"""The model of a recipe: two towers, HGR, or a system of pairs, which training asks through the same members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from vse._util.strict import Strict
from vse.encoders.text import known_encoder
from vse.errors import InputError
from vse.models.config import (
    ATTENTION,
    LARGEST,
    OWN,
    About,
    BiGRUConfig,
    CharactersConfig,
    FrameBackboneConfig,
    FramesConfig,
    GridConfig,
    GRUConfig,
    HGRConfig,
    ModelConfig,
    PairConfig,
    PluginTextConfig,
    PoolingConfig,
    RegionConfig,
    TextConfig,
    TransformerConfig,
    WordsConfig,
)
from vse.models.pair_options import UNPOOLED, System, check_sets, read_options, without_pooling
from vse.models.system_config import LAST, SystemConfig
from vse.pooling import pooling_builder
from vse.systems.registry import check_recipe, check_towers

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


class GRURecipe(Table):
    """Words through a GRU of one direction; by default the text is its last state."""

    kind: Literal["gru"] = "gru"
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    pooling: PoolingConfig = PoolingConfig(name=LAST)


class CharactersRecipe(Table):
    """Words from their characters, see :class:`vse.models.config.CharactersConfig`."""

    kind: Literal["characters"] = "characters"
    character_size: Annotated[int, Field(ge=1, le=LARGEST)] = 24
    characters: Annotated[int, Field(ge=1, le=LARGEST)] = 26
    hidden_sizes: Annotated[tuple[Annotated[int, Field(ge=1, le=LARGEST)], ...], Field(strict=False)] = (384, 448)
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    slope: Annotated[float, Field(ge=0, le=1)] = 0.1
    pooling: PoolingConfig = PoolingConfig(name=LAST)


class PluginTextRecipe(Table):
    """Words through an encoder of another distribution, by its name in the entry point group ``vse.encoders``."""

    kind: Literal["plugin"] = "plugin"
    encoder: Annotated[str, AfterValidator(known_encoder)]
    options: dict[str, Any] = Field(default_factory=dict)
    pooling: PoolingConfig = PoolingConfig()


COUNTED: dict[str, type[Any]] = {
    "bigru": BiGRUConfig,
    "words": WordsConfig,
    "gru": GRUConfig,
    "characters": CharactersConfig,
    "plugin": PluginTextConfig,
}
"""Texts whose vocabulary follows from the data."""


class DualImageRecipe(Table):
    """The image tower of the public dual encoder that ``model.start`` names.

    A ``pooling`` other than ``own`` is added to the model's own, over patch tokens; its weight starts at 0.
    """

    kind: Literal["dual"] = "dual"
    pooling: PoolingConfig = PoolingConfig(name=OWN)


class DualTextRecipe(Table):
    """The text tower of the public dual encoder that ``model.start`` names, with its tokenizer."""

    kind: Literal["dual"] = "dual"


ImageRecipe = Annotated[RegionConfig | GridConfig | FramesConfig | DualImageRecipe, Field(discriminator="kind")]
TextRecipe = Annotated[
    BiGRURecipe | TransformerConfig | WordsRecipe | DualTextRecipe | GRURecipe | CharactersRecipe | PluginTextRecipe,
    Field(discriminator="kind"),
]


class ModelRecipe(Table):
    """Two towers whose embeddings are compared.

    Attributes:
        kind: ``vse``.
        embed_size: dimensions of an embedding; those of ``start`` for a dual encoder.
        image: regions, the grid cells of an image, the frames of a video, or the image half of a dual encoder.
        text: how captions are encoded.
        pretrained: load the published weights of the image backbone.
        backbone_weights: load them from a file (``.safetensors`` or a state saved by torch) or, as ``timm:NAME``, from
            a timm model with the same layer names.
        start: the folder of a model of the same shape, from which all weights are loaded instead. For a dual encoder
            the model that is trained: anything that :func:`vse.load` runs on torch, such as a hub id of CLIP.
        system: a named system of :mod:`vse.systems.registry`, which adds to the towers and to the loss.
    """

    kind: Literal["vse"] = "vse"
    embed_size: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    image: ImageRecipe = RegionConfig()
    text: TextRecipe = BiGRURecipe()
    pretrained: bool = False
    backbone_weights: str | None = None
    start: str | None = None
    system: SystemConfig | None = None

    reads_graphs: ClassVar = False
    feature_key: ClassVar = "model.image.feature_size"

    def check(self, recipe: Recipe) -> None:
        """Raise ValueError for other parts of a recipe that the model does not go with."""
        if isinstance(self.image, DualImageRecipe):
            self._check_dual(recipe, self.image)
        if isinstance(self.text, CharactersRecipe) and recipe.augmentation.text == "released":
            raise ValueError(
                'augmentation.text "released" masks whole words: set it to "drop" or "none" for characters'
            )
        if self.system is not None:
            check_recipe(self.system, recipe)

    def _check_dual(self, recipe: Recipe, image: DualImageRecipe) -> None:
        for name in ("features", "vocabulary", "max_tokens"):
            if getattr(recipe.data, name) is not None:
                raise ValueError(f"data.{name} is not for a dual encoder, which reads images and texts its own way")
        if image.pooling.name == OWN and recipe.augmentation.image != "none":
            raise ValueError(
                f'augmentation.image "{recipe.augmentation.image}" drops patches before a pooling over them: set '
                'augmentation.image to "none", or model.image.pooling to "gpo"'
            )

    @property
    def searches(self) -> bool:
        """Whether the percentage of a pooling is searched in training."""
        return any(_is_searched(getattr(side, "pooling", None)) for side in (self.image, self.text))

    @property
    def item_input(self) -> str:
        """What the model takes of an image or video: ``region``, ``grid`` (image files) or ``frames``."""
        return "grid" if self.image.kind == "dual" else self.image.kind

    @property
    def token_source(self) -> str:
        """Where tokens come from: ``transformer``, ``words``, ``video words``, ``characters`` or ``start``."""
        known = {"transformer": "transformer", "words": "video words", "dual": "start", "characters": "characters"}
        return known.get(self.text.kind, "words")

    @property
    def pretrained_text(self) -> str | None:
        """The transformer that texts are encoded with."""
        return getattr(self.text, "pretrained", None)

    def config(self, vocabulary_size: int, about: About, frames: FrameBackboneConfig | None) -> ModelConfig:
        """Return the configuration of the model for a vocabulary and the backbone of frame features."""
        text: TextConfig
        if isinstance(self.image, DualImageRecipe) or isinstance(self.text, DualTextRecipe):
            raise InputError('the configuration of a model of kind "dual" is that of model.start')
        if isinstance(self.text, TransformerConfig):
            text = self.text
        else:
            text = COUNTED[self.text.kind](vocabulary_size=vocabulary_size, **self.text.model_dump())
        image = self.image
        if isinstance(image, FramesConfig):
            if image.backbone is not None:
                raise InputError(
                    "model.image.backbone of frames is known from their features: leave it out of the recipe"
                )
            image = image.model_copy(update={"backbone": frames})
        return ModelConfig(embed_size=self.embed_size, image=image, text=text, about=about, system=self.system)

    @model_validator(mode="before")
    @classmethod
    def _usual_kinds(cls, value: Any) -> Any:
        """Fill in the default kind of a table without one."""
        if not isinstance(value, dict):
            return value
        usual = {"image": "grid" if "backbone" in _table(value.get("image")) else "region", "text": "bigru"}
        if _table(value.get("image")).get("kind") == "dual":
            usual["text"] = "dual"
            value = {"text": {}, **value}
        return value | {
            side: {"kind": kind, **value[side]} for side, kind in usual.items() if isinstance(value.get(side), dict)
        }

    @model_validator(mode="after")
    def _known_poolings(self) -> ModelRecipe:
        for side in (self.image, self.text):
            if isinstance(side, DualTextRecipe) or (isinstance(side, DualImageRecipe) and side.pooling.name == OWN):
                continue
            if side.pooling.name != LAST or side.kind not in {"gru", "characters"}:
                pooling_builder(side.pooling.name)
        if self.system is not None:
            check_towers(self.system, self.image, self.text)
        return self

    @model_validator(mode="after")
    def _whole_dual(self) -> ModelRecipe:
        kinds = (self.image.kind, self.text.kind)
        if "dual" not in kinds:
            return self
        if kinds != ("dual", "dual"):
            raise ValueError(
                f'image.kind is "{kinds[0]}" and text.kind "{kinds[1]}": both towers of a dual encoder are trained '
                'together, so both kinds are "dual"'
            )
        if self.start is None:
            raise ValueError('start is missing: kind "dual" needs a public model, such as openai/clip-vit-base-patch32')
        if self.pretrained or self.backbone_weights is not None:
            raise ValueError('pretrained and backbone_weights are not for kind "dual": all weights come from start')
        return self


def _is_searched(pooling: PoolingConfig | None) -> bool:
    return pooling is not None and pooling.options.get("percent") == "search"


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
    searches: ClassVar = False
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
            if _is_searched(pooling):
                raise ValueError('percent = "search" is for models of two towers')
            if pooling.name != ATTENTION:
                pooling_builder(pooling.name)
        return self


class PairRecipe(Table):
    """Images and captions as sets, and a system that scores pairs of sets: SCAN, IMRAM or CAAN.

    Attributes:
        kind: ``pairs``.
        system: how two sets are compared.
        options: of the system, see :mod:`vse.models.pair_options`.
        embed_size: dimensions of an element.
        image: regions, or the grid cells of an image; its pooling is ``none``.
        text: how captions are encoded; its pooling is ``none``.
        pretrained: as of two towers, as are ``backbone_weights`` and ``start``.
    """

    kind: Literal["pairs"] = "pairs"
    system: System
    options: dict[str, Any] = Field(default_factory=dict)
    embed_size: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    image: Annotated[RegionConfig | GridConfig, Field(discriminator="kind")] = RegionConfig(
        head="linear", pooling=PoolingConfig(name=UNPOOLED)
    )
    text: BiGRURecipe = BiGRURecipe(pooling=PoolingConfig(name=UNPOOLED))
    pretrained: bool = False
    backbone_weights: str | None = None
    start: str | None = None

    reads_graphs: ClassVar = False
    feature_key: ClassVar = "model.image.feature_size"
    searches: ClassVar = False
    token_source: ClassVar = "words"
    pretrained_text: ClassVar = None

    @property
    def item_input(self) -> str:
        """What the model takes of an image: ``region`` or ``grid`` (image files)."""
        return self.image.kind

    def check(self, recipe: Recipe) -> None:
        """Raise ValueError for other parts of a recipe that the model does not go with."""
        if recipe.run.compile:
            raise ValueError('run.compile is for towers of vectors: leave it out for model.kind "pairs"')

    def config(self, vocabulary_size: int, about: About, frames: FrameBackboneConfig | None) -> PairConfig:
        """Return the configuration of the model for a vocabulary."""
        return PairConfig(
            embed_size=self.embed_size,
            image=self.image,
            text=BiGRUConfig(vocabulary_size=vocabulary_size, **self.text.model_dump()),
            system=self.system,
            options=self.options,
            about=about,
        )

    @model_validator(mode="before")
    @classmethod
    def _usual_tables(cls, value: Any) -> Any:
        """Fill in the default kind and pooling of a table without them."""
        if not isinstance(value, dict):
            return value
        kind = "grid" if "backbone" in _table(value.get("image")) else "region"
        image = {"image": {"kind": kind, **value["image"]}} if isinstance(value.get("image"), dict) else {}
        return without_pooling(value | image)

    @model_validator(mode="after")
    def _known_system(self) -> PairRecipe:
        check_sets(self.image, self.text)
        read_options(self.system, self.options)
        return self


AnyModelRecipe = Annotated[ModelRecipe | HGRRecipe | PairRecipe, Field(discriminator="kind")]
