"""The configuration of a model: ``config.json`` beside its weights.

It holds everything needed to build the same networks offline and to prepare their inputs, and what is known about the
model: data, recipe, scores. Needs no torch, so an exported model reads it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_serializer, model_validator

from vse._util.strict import Strict, parse
from vse.inputs.regions import LARGEST as MOST_REGIONS

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing


LARGEST = 100_000  # of any width: far above what is sensible, and low enough that a typing error is not an allocation


class Named(Strict):
    """Something by name, with options; the name alone is short for ``{"name": …}``."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


RANK_POOLINGS = ("avg", "max", "k-max", "top-percent", "linear", "fspool", "gpo")


class PoolingConfig(Named):
    """A pooling by name, see :func:`vse.pooling.create_pooling`."""

    name: str = "gpo"

    @model_validator(mode="after")
    def _one_vector(self) -> PoolingConfig:
        if self.options.get("return_coefficients"):
            raise ValueError("a model needs one vector of each set: leave out return_coefficients")
        return self

    @property
    def weights_ranks(self) -> bool:
        """Whether its weights depend on ranks alone, so that the contribution of each element is defined."""
        return self.name in RANK_POOLINGS and not self.options.get("data_dependent")


class RegionConfig(Strict):
    """Region features from disk."""

    kind: Literal["region"] = "region"
    feature_size: Annotated[int, Field(ge=1, le=LARGEST)] = 2048
    head: Literal["linear", "residual-mlp"] = "residual-mlp"
    hidden_size: Annotated[int, Field(ge=1, le=LARGEST)] = 512
    pooling: PoolingConfig = PoolingConfig()


class BackboneConfig(Named):
    """A vision backbone by name, see :func:`vse.encoders.create_backbone`."""


def _known_preprocessing(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is not None:
        from vse.inputs.preprocessing import ImagePreprocessing

        ImagePreprocessing.from_json(value)
    return value


class FrameBackboneConfig(BackboneConfig):
    """The backbone that computed the frame features of a model, with its published weights and preprocessing.

    ``fingerprint`` identifies the weights; ``frames`` is how many evenly spaced frames of a video were taken.
    """

    preprocessing: Annotated[dict[str, Any], AfterValidator(_known_preprocessing)]
    fingerprint: str
    frames: Annotated[int, Field(ge=1, le=LARGEST)]


class FramesConfig(Strict):
    """Frame features of videos, from disk; ``backbone`` computed them, None if unknown."""

    kind: Literal["frames"] = "frames"
    feature_size: Annotated[int, Field(ge=1, le=LARGEST)] = 2048
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    pooling: PoolingConfig = PoolingConfig()
    backbone: FrameBackboneConfig | None = None


class GridConfig(Strict):
    """Images through a backbone; building a model fills in the ``preprocessing`` of the backbone.

    With ``windows``, the elements are means of the cells inside that many windows of several sizes.
    """

    kind: Literal["grid"] = "grid"
    backbone: BackboneConfig
    image_size: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    preprocessing: Annotated[dict[str, Any] | None, AfterValidator(_known_preprocessing)] = None
    windows: Annotated[int, Field(ge=1, le=MOST_REGIONS)] | None = None
    head: Literal["linear", "residual-mlp", "class-words"] = "linear"
    hidden_size: Annotated[int, Field(ge=1, le=LARGEST)] = 512
    pooling: PoolingConfig = PoolingConfig()

    @model_serializer(mode="wrap")
    def _without_absent(self, write: Any) -> dict[str, Any]:
        """Leave ``windows`` out of the configuration of other models."""
        plain: dict[str, Any] = write(self)
        return {key: value for key, value in plain.items() if key != "windows" or value is not None}


class BiGRUConfig(Strict):
    """Words through a bidirectional GRU."""

    kind: Literal["bigru"] = "bigru"
    vocabulary_size: Annotated[int, Field(ge=1, le=100 * LARGEST)]
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    pooling: PoolingConfig = PoolingConfig()


class WordsConfig(Strict):
    """Words of video captions through a bidirectional GRU, with dropout."""

    kind: Literal["words"] = "words"
    vocabulary_size: Annotated[int, Field(ge=1, le=100 * LARGEST)]
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    pooling: PoolingConfig = PoolingConfig()


class TransformerConfig(Strict):
    """A Hugging Face text encoder, built from ``architecture`` or, for a new model, loaded from ``pretrained``."""

    kind: Literal["transformer"] = "transformer"
    architecture: dict[str, Any] = Field(default_factory=dict)
    pretrained: str | None = None
    pooling: PoolingConfig = PoolingConfig()


OWN = "own"
"""The pooling of a public dual encoder: what the model was published with."""


class DualImageConfig(Strict):
    """The image tower of a public dual encoder, such as CLIP or SigLIP; see :mod:`vse.encoders.dual`.

    ``architecture`` is the library's configuration of the whole dual encoder. A ``pooling`` other than ``own`` is added
    to the model's own, over patch tokens.
    """

    kind: Literal["dual"] = "dual"
    library: Literal["transformers", "open_clip"] = "transformers"
    architecture: dict[str, Any]
    preprocessing: Annotated[dict[str, Any], AfterValidator(_known_preprocessing)]
    pooling: PoolingConfig = PoolingConfig(name=OWN)


class DualTextConfig(Strict):
    """The text tower of a public dual encoder; all texts are padded to ``pad_to`` tokens with ``pad_id``, if set."""

    kind: Literal["dual"] = "dual"
    library: Literal["transformers", "open_clip"] = "transformers"
    architecture: dict[str, Any]
    pad_to: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    pad_id: Annotated[int, Field(ge=0)] = 0
    pooling: PoolingConfig = PoolingConfig(name=OWN)


class Score(Strict):
    """Measured scores and their protocol."""

    protocol: str
    data: str
    split: str
    values: dict[str, float]


class About(Strict):
    """What is known about a model beyond its architecture.

    ``license`` is an identifier of the hub such as ``mit``, or any other name; ``datasets`` and ``base_model`` are hub
    ids, ``languages`` codes such as ``en``.
    """

    name: str | None = None
    data: str | None = None
    source: str | None = None
    recipe: dict[str, Any] = Field(default_factory=dict)
    scores: tuple[Score, ...] = ()
    notes: tuple[str, ...] = ()
    license: str | None = None
    datasets: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    base_model: str | None = None


MARKS = ("vse_version", "fingerprint", "tokenizer")
"""What ``config.json`` of a saved model holds beside its configuration."""


def split_marks(raw: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of ``config.json`` as configuration and marks."""
    marks = {key: raw[key] for key in MARKS if key in raw}
    return {key: value for key, value in raw.items() if key not in MARKS}, marks


ImageConfig = Annotated[RegionConfig | GridConfig | FramesConfig | DualImageConfig, Field(discriminator="kind")]
TextConfig = Annotated[BiGRUConfig | TransformerConfig | WordsConfig | DualTextConfig, Field(discriminator="kind")]


class ModelConfig(Strict):
    """Two towers with a joint space of ``embed_size`` dimensions.

    ``foreign`` says where a model comes from that was not trained with vse: source, revision, library, type.
    """

    format: Literal[1] = 1
    runtime: Literal["torch"] = "torch"
    embed_size: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    image: ImageConfig
    text: TextConfig
    about: About = About()
    foreign: dict[str, Any] | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, write: Any) -> dict[str, Any]:
        """Leave ``foreign`` out of the configuration of other models."""
        plain: dict[str, Any] = write(self)
        return {key: value for key, value in plain.items() if key != "foreign" or value is not None}

    def preprocessing(self) -> ImagePreprocessing | None:
        """Return how images are prepared; None for a model of features."""
        if not isinstance(self.image, GridConfig | DualImageConfig) or self.image.preprocessing is None:
            return None
        from vse.inputs.preprocessing import ImagePreprocessing

        return ImagePreprocessing.from_json(self.image.preprocessing)


ATTENTION = "attention"
Width = Annotated[int, Field(ge=1, le=LARGEST)]
Share = Annotated[float, Field(ge=0, lt=1)]


class HGRConfig(Strict):
    """Sizes, poolings and dropout of :class:`~vse.hgr.model.HGRModel`; the defaults are the released ones.

    The two poolings reduce a video's frames and a sentence's words to one vector. ``"attention"`` is HGR, ``"gpo"``
    HGR∞; any other of :func:`vse.pooling.list_poolings` works too. ``dropout`` applies to projected frames and word
    embeddings, ``graph_dropout`` to messages between nodes.
    """

    format: Literal[1] = 1
    runtime: Literal["torch"] = "torch"
    kind: Literal["hgr"] = "hgr"
    feature_size: Width = 2048
    vocabulary_size: Annotated[int, Field(ge=1, le=100 * LARGEST)]
    word_size: Width = 300
    embed_size: Annotated[int, Field(ge=2, le=LARGEST)] = 1024
    video_pooling: PoolingConfig = PoolingConfig(name=ATTENTION)
    sentence_pooling: PoolingConfig = PoolingConfig(name=ATTENTION)
    dropout: Share = 0.2
    graph_dropout: Share = 0.5
    about: About = About()


AnyConfig: TypeAlias = ModelConfig | HGRConfig


def read_config(described: dict[str, Any], where: str) -> AnyConfig:
    """Validate a configuration: HGR where ``kind`` says so, else two towers."""
    if described.get("kind") == HGRConfig.model_fields["kind"].default:
        return parse(HGRConfig, described, where)
    return parse(ModelConfig, described, where)


def published_traits(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return the traits of a configuration in the words of published tables: region or grid, BiGRU or BERT, poolings.

    Args:
        raw: The content of ``config.json``.
    """
    if raw.get("kind") == "hgr":
        return _hgr_traits(raw)
    image, text = raw["image"], raw["text"]
    traits = {
        "image": image["kind"],
        "text": {"transformer": "bert", "words": "bigru"}.get(text["kind"], text["kind"]),
        "image_pooling": _pooling_name(image["pooling"]),
        "text_pooling": _pooling_name(text["pooling"]),
    }
    if image["kind"] == "dual":
        traits["backbone"] = str(image["architecture"].get("model_type", image["library"]))
    if image.get("backbone") is not None:
        traits["backbone"] = _backbone_name(image["backbone"], raw.get("about", {}).get("recipe", {}))
    return traits


def _hgr_traits(raw: Mapping[str, Any]) -> dict[str, str]:
    """HGR has attention and HGR∞ GPO on both sides; the tables name no poolings of theirs."""
    poolings = [_pooling_name(raw[name]) for name in ("video_pooling", "sentence_pooling")]
    named = {("attention", "attention"): "HGR", ("gpo", "gpo"): "HGR∞"}.get((poolings[0], poolings[1]))
    described = {"video_pooling": poolings[0], "sentence_pooling": poolings[1]}
    return {"image": "frames", "text": "bigru", "method": named or "HGR", **({} if named else described)}


def _pooling_name(pooling: dict[str, Any]) -> str:
    """A pooling with options differs from the one of the paper's rows."""
    return f"{pooling['name']} {pooling['options']}" if pooling["options"] else str(pooling["name"])


def _backbone_name(backbone: dict[str, Any], recipe: dict[str, Any]) -> str:
    """The name in the tables, where it is known; weights of equal shape differ by their source."""
    if backbone["options"].get("detector"):
        return "BUTD"
    if "wsl" in str(recipe.get("backbone_source", "")):
        return "WSL"
    depths = {23: "ResNet-101", 36: "ResNet-152"}
    blocks = backbone["options"].get("blocks") or [0, 0, 0, 0]
    return depths.get(blocks[2], str(backbone["name"]))
