"""The configuration of a model: ``config.json`` beside its weights.

It holds everything needed to build the same networks offline and to prepare their inputs, and what is known about the
model: data, recipe, scores. Needs no torch, so an exported model reads it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_serializer, model_validator

from vse._util.strict import Strict, parse
from vse.inputs.regions import LARGEST as MOST_REGIONS
from vse.models.pair_options import System, check_sets, read_options, without_pooling
from vse.models.system_config import LAST, SystemConfig

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
    head: Literal["linear", "residual-mlp", "leaky-unit"] = "residual-mlp"
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
    head: Literal["linear", "residual-mlp", "leaky-unit", "class-words"] = "linear"
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


class GRUConfig(Strict):
    """Words through a GRU of one direction; by default the text is its last state."""

    kind: Literal["gru"] = "gru"
    vocabulary_size: Annotated[int, Field(ge=1, le=100 * LARGEST)]
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    pooling: PoolingConfig = PoolingConfig(name=LAST)


class CharactersConfig(Strict):
    """Words from their first ``characters`` characters through layers of ``hidden_sizes``, then a bidirectional GRU.

    The defaults are LIWE's released ones; ``slope`` is that of its leaky ReLU.
    """

    kind: Literal["characters"] = "characters"
    vocabulary_size: Annotated[int, Field(ge=7, le=100 * LARGEST)]
    character_size: Annotated[int, Field(ge=1, le=LARGEST)] = 24
    characters: Annotated[int, Field(ge=1, le=LARGEST)] = 26
    hidden_sizes: tuple[Annotated[int, Field(ge=1, le=LARGEST)], ...] = (384, 448)
    word_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    slope: Annotated[float, Field(ge=0, le=1)] = 0.1
    pooling: PoolingConfig = PoolingConfig(name=LAST)


class PluginTextConfig(Strict):
    """Words through ``encoder`` of another distribution, see :class:`vse.encoders.text.PluginTextEncoder`."""

    kind: Literal["plugin"] = "plugin"
    encoder: str
    vocabulary_size: Annotated[int, Field(ge=1, le=100 * LARGEST)]
    options: dict[str, Any] = Field(default_factory=dict)
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
TextConfig = Annotated[
    BiGRUConfig | TransformerConfig | WordsConfig | DualTextConfig | GRUConfig | CharactersConfig | PluginTextConfig,
    Field(discriminator="kind"),
]


class ModelConfig(Strict):
    """Two towers with a joint space of ``embed_size`` dimensions.

    ``foreign`` is where a model from elsewhere comes from, ``system`` what a named system adds to the towers.
    """

    format: Literal[1] = 1
    runtime: Literal["torch"] = "torch"
    embed_size: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    image: ImageConfig
    text: TextConfig
    about: About = About()
    foreign: dict[str, Any] | None = None
    system: SystemConfig | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, write: Any) -> dict[str, Any]:
        """Leave ``foreign`` and ``system`` out of the configuration of other models."""
        plain: dict[str, Any] = write(self)
        return {key: value for key, value in plain.items() if key not in {"foreign", "system"} or value is not None}

    @property
    def dimensions(self) -> int:
        """Of an embedding: ``embed_size``, or twice as many if a system puts two vectors side by side."""
        return self.embed_size * (2 if getattr(self.system, "consensus_share", 0) else 1)

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


BOX = 4
"""Values of a box: left, top, right, bottom."""


class CrossConfig(Strict):
    """A cross-encoder of regions and tokens, see :class:`~vse.systems.cross_encoder.CrossEncoder`.

    ``architecture`` is that of its BERT; a new model may name a ``pretrained`` one instead, and keep the first
    ``layers`` of it. With ``boxes``, four values behind the ``feature_size`` of a region are its box. With the names
    ``tags``, one more value is the number of a tag of the image.
    """

    format: Literal[1] = 1
    runtime: Literal["torch"] = "torch"
    kind: Literal["cross"] = "cross"
    feature_size: Width = 2048
    boxes: bool = False
    tags: Annotated[tuple[str, ...], Field(strict=False)] = ()
    architecture: dict[str, Any] = Field(default_factory=dict)
    pretrained: str | None = None
    layers: Width | None = None
    about: About = About()

    @model_serializer(mode="wrap")
    def _without_absent(self, write: Any) -> dict[str, Any]:
        """Leave empty ``tags`` out, so that fingerprints of models without them stay as they were."""
        plain: dict[str, Any] = write(self)
        return {key: value for key, value in plain.items() if key != "tags" or value}


class PairConfig(ModelConfig):
    """Two encoders of sets, whose elements have ``embed_size`` dimensions, and a system that scores pairs of sets.

    ``options`` are those of the system in :mod:`vse.models.pair_options`, completed by their defaults. The poolings of
    both sides are ``none``.
    """

    kind: Literal["pairs"] = "pairs"
    system: System  # type: ignore[assignment]  # scores pairs, where those of ModelConfig add to towers
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _unpooled(cls, value: Any) -> Any:
        return without_pooling(value)

    @model_validator(mode="after")
    def _sets(self) -> PairConfig:
        check_sets(self.image, self.text)
        object.__setattr__(self, "options", read_options(self.system, self.options).model_dump())
        return self


AnyConfig: TypeAlias = ModelConfig | PairConfig | HGRConfig | CrossConfig
KINDS: dict[str, type[Strict]] = {"hgr": HGRConfig, "pairs": PairConfig, "cross": CrossConfig}
"""The configurations of models that score pairs, by their ``kind``."""


def read_config(described: dict[str, Any], where: str) -> AnyConfig:
    """Validate a configuration: of a model that scores pairs where ``kind`` names one, else two towers."""
    kind = described.get("kind")
    chosen: type[Any] = KINDS.get(kind, ModelConfig) if isinstance(kind, str) else ModelConfig
    read: AnyConfig = parse(chosen, described, where)
    return read
