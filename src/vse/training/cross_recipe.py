"""The model of a recipe that is a cross-encoder: of which BERT, over which regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from vse.models.config import LARGEST, About, CrossConfig, FrameBackboneConfig
from vse.training.model_recipe import Table

if TYPE_CHECKING:
    from vse.training.recipe import Recipe


class CrossRecipe(Table):
    """A cross-encoder of regions and tokens, see :class:`vse.systems.cross_encoder.CrossEncoder`.

    Attributes:
        kind: ``cross``.
        feature_size: width of a region's feature, without its box.
        boxes: read the boxes of a feature store of regions.
        tags: read the tags of a feature store, and give them to the transformer as a second segment.
        pretrained_bert: a BERT, from whose weights it starts, and whose tokenizer it uses.
        layers: keep that many of its layers.
        architecture: of a BERT with random weights in place of ``pretrained_bert``, such as ``hidden_size``; its words
            are those of the training captions.
        start: the folder of a cross-encoder of the same shape, from which all weights are loaded.
    """

    kind: Literal["cross"] = "cross"
    feature_size: Annotated[int, Field(ge=1, le=LARGEST)] = 2048
    boxes: bool = False
    tags: bool = False
    pretrained_bert: str | None = None
    layers: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    architecture: dict[str, Any] = Field(default_factory=dict)
    start: str | None = None

    reads_graphs: ClassVar = False
    feature_key: ClassVar = "model.feature_size"
    item_input: ClassVar = "region"
    searches: ClassVar = False
    pretrained: ClassVar = False
    backbone_weights: ClassVar = None

    @property
    def token_source(self) -> str:
        """Where tokens come from: the pretrained ``transformer``, or the ``words`` of the captions."""
        return "words" if self.pretrained_bert is None else "transformer"

    @property
    def pretrained_text(self) -> str | None:
        """The transformer whose tokenizer is used."""
        return self.pretrained_bert

    def check(self, recipe: Recipe) -> None:
        """Raise ValueError for other parts of a recipe that the model does not go with."""
        if recipe.run.compile:
            raise ValueError('run.compile is for towers of vectors: leave it out for model.kind "cross"')
        if self.tags and recipe.data.features is None:
            raise ValueError("model.tags needs data.features: a store of 'vse features' with tags.jsonl inside")
        if self.boxes and recipe.data.features is None:
            raise ValueError("model.boxes needs data.features: a store of regions of 'vse features' has their boxes")

    def config(self, vocabulary_size: int, about: About, frames: FrameBackboneConfig | None) -> CrossConfig:
        """Return the configuration of the model for a vocabulary."""
        own = {"model_type": "bert", **self.architecture, "vocab_size": vocabulary_size}
        return CrossConfig(
            feature_size=self.feature_size,
            boxes=self.boxes,
            architecture={} if self.pretrained_bert is not None else own,
            pretrained=self.pretrained_bert,
            layers=self.layers,
            about=about,
        )

    @model_validator(mode="after")
    def _one_origin(self) -> CrossRecipe:
        if self.architecture and self.pretrained_bert is not None:
            raise ValueError("architecture and pretrained_bert: a pretrained BERT has its own, leave one of them out")
        if self.layers is not None and self.pretrained_bert is None:
            raise ValueError("layers is for pretrained_bert: set architecture.num_hidden_layers")
        return self
