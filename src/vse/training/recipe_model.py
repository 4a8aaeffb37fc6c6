"""What is trained, as tables of a recipe."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vse.configuration import LARGEST, ImageConfig, PoolingConfig, RegionConfig, TransformerConfig
from vse.hgr.config import ATTENTION
from vse.pooling.registry import pooling_builder
from vse.training.recipe_table import Rate, Table


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

    @model_validator(mode="after")
    def _known_poolings(self) -> HGRRecipe:
        for pooling in (self.video_pooling, self.sentence_pooling):
            if pooling.name != ATTENTION:
                pooling_builder(pooling.name)
        return self


AnyModelRecipe = Annotated[ModelRecipe | HGRRecipe, Field(discriminator="kind")]
