"""What a model is, as one JSON object: ``config.json`` beside its weights.

It holds everything needed to build the same networks offline (no hub look-up) and to prepare their inputs, and
what is known about the model: data, recipe, scores. It needs no torch, so an exported model reads it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from vse.strict import Strict

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing


class PoolingConfig(Strict):
    """A pooling by name; ``"gpo"`` alone is short for ``{"name": "gpo"}``."""

    name: str = "gpo"
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class RegionConfig(Strict):
    """Region features from disk."""

    kind: Literal["region"] = "region"
    feature_size: PositiveInt = 2048
    head: Literal["linear", "residual-mlp"] = "residual-mlp"
    hidden_size: PositiveInt = 512
    pooling: PoolingConfig = PoolingConfig()


class BackboneConfig(Strict):
    """A vision backbone by name, see :func:`vse.encoders.create_backbone`."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class GridConfig(Strict):
    """Pictures through a backbone; ``preprocessing`` is filled in from the backbone when a model is built."""

    kind: Literal["grid"] = "grid"
    backbone: BackboneConfig
    image_size: PositiveInt | None = None
    preprocessing: dict[str, Any] | None = None
    head: Literal["linear", "residual-mlp"] = "linear"
    hidden_size: PositiveInt = 512
    pooling: PoolingConfig = PoolingConfig()

    @field_validator("preprocessing")
    @classmethod
    def _known_preprocessing(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            from vse.inputs.preprocessing import ImagePreprocessing

            ImagePreprocessing.from_json(value)
        return value


class BiGRUConfig(Strict):
    """Words through a bidirectional GRU."""

    kind: Literal["bigru"] = "bigru"
    vocabulary_size: PositiveInt
    word_size: PositiveInt = 300
    pooling: PoolingConfig = PoolingConfig()


class TransformerConfig(Strict):
    """A Hugging Face text encoder: built from ``architecture``, or fetched from ``pretrained`` when a model is new."""

    kind: Literal["transformer"] = "transformer"
    architecture: dict[str, Any] = Field(default_factory=dict)
    pretrained: str | None = None
    pooling: PoolingConfig = PoolingConfig()


class Score(Strict):
    """Measured figures with the protocol that gives them their meaning."""

    protocol: str
    data: str
    split: str
    values: dict[str, float]


class About(Strict):
    """What is known about a model beyond its shape."""

    name: str | None = None
    data: str | None = None
    source: str | None = None
    recipe: dict[str, Any] = Field(default_factory=dict)
    scores: tuple[Score, ...] = ()
    notes: tuple[str, ...] = ()


ImageConfig = Annotated[RegionConfig | GridConfig, Field(discriminator="kind")]
TextConfig = Annotated[BiGRUConfig | TransformerConfig, Field(discriminator="kind")]


class ModelConfig(Strict):
    """Two towers into one space of ``embed_size`` dimensions."""

    format: Literal[1] = 1
    runtime: Literal["torch"] = "torch"
    embed_size: PositiveInt = 1024
    image: ImageConfig
    text: TextConfig
    about: About = About()

    def preprocessing(self) -> ImagePreprocessing | None:
        """How pictures are prepared; None for a model of region features."""
        if self.image.kind == "region" or self.image.preprocessing is None:
            return None
        from vse.inputs.preprocessing import ImagePreprocessing

        return ImagePreprocessing.from_json(self.image.preprocessing)
