"""An encoder and its inputs in a few words, the same in the card of a model and in ``vse inspect``. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vse.configuration import ImageConfig, PoolingConfig, TextConfig
from vse.curves import Tower
from vse.hgr.config import HGRConfig
from vse.inputs.preprocessing import ImagePreprocessing

if TYPE_CHECKING:
    from vse.inputs.tokenizer import TextTokenizer

NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class TowerReport:
    """One encoder; None where its folder does not tell."""

    tower: Tower
    kind: str
    network: str
    pooling: str
    feature_size: int | None = None
    parameters: int | None = None


def image_tower(config: ImageConfig, feature_size: int | None = None, parameters: int | None = None) -> TowerReport:
    """The image encoder of a configuration; what the configuration does not hold is handed in."""
    if config.kind == "region":
        network, feature_size = f"regions from disk, {config.head} head", config.feature_size
    elif config.kind == "frames":
        seen = "from disk" if config.backbone is None else f"seen by {config.backbone.name}"
        network, feature_size = f"frames of videos {seen}, linear", config.feature_size
    else:
        architecture = config.backbone.options.get("architecture", {})
        model_type = architecture.get("model_type") if isinstance(architecture, dict) else None
        network = config.backbone.name + (f" ({model_type})" if model_type else "") + f", {config.head} head"
    return TowerReport("image", config.kind, network, describe_pooling(config.pooling), feature_size, parameters)


def text_tower(config: TextConfig, feature_size: int | None = None, parameters: int | None = None) -> TowerReport:
    """The text encoder of a configuration; what the configuration does not hold is handed in."""
    if config.kind == "transformer":
        model_type = config.architecture.get("model_type", "transformer")
        network = f"{model_type}{f' from {config.pretrained}' if config.pretrained else ''}"
    else:
        network, feature_size = f"bidirectional GRU, {config.vocabulary_size:,} words", config.word_size
    return TowerReport("text", config.kind, network, describe_pooling(config.pooling), feature_size, parameters)


def hgr_towers(
    config: HGRConfig, video_parameters: int | None = None, text_parameters: int | None = None
) -> tuple[TowerReport, TowerReport]:
    """Both encoders of an HGR model, with the poolings of the whole video and the whole sentence."""
    words = f"bidirectional GRU, {config.vocabulary_size:,} words, role graph"
    pooled = describe_pooling(config.video_pooling), describe_pooling(config.sentence_pooling)
    return (
        TowerReport("image", "hgr", "frames of videos, three levels", pooled[0], config.feature_size, video_parameters),
        TowerReport("text", "hgr", words, pooled[1], config.word_size, text_parameters),
    )


def describe_pooling(config: PoolingConfig) -> str:
    """Such as ``gpo`` or ``k-max (k = 5)``."""
    options = ", ".join(f"{name} = {value}" for name, value in config.options.items())
    return f"{config.name} ({options})" if options else config.name


def describe_preprocessing(how: ImagePreprocessing | None) -> str:
    """One line; a model without preprocessing takes features."""
    if how is None:
        return "sets of features, no pictures"
    mean, std = (" ".join(f"{value:g}" for value in values) for values in (how.mean, how.std))
    fitted = "stretched to" if how.fit == "stretch" else "cropped to"
    return f"{fitted} {how.size[0]} x {how.size[1]}, {how.resize}, {how.channels}, mean {mean}, std {std}"


def describe_tokenizer(tokenizer: TextTokenizer | None) -> str:
    """One line; a converted model may have been given no vocabulary."""
    if tokenizer is None:
        return "token numbers: no vocabulary was saved with it"
    return f"{tokenizer.kind}, {tokenizer.vocab_size:,} of them known, at most {tokenizer.max_length} tokens a text"
