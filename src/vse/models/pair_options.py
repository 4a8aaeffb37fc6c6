"""The options of the systems that score pairs of sets (SCAN, IMRAM, CAAN), and what their encoders may be. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field

from vse._util.strict import Strict, parse

System = Literal["scan", "imram", "caan"]
FeatureNorm = Literal["clipped_l2norm", "l2norm", "clipped_l1norm", "l1norm", "clipped", "softmax", "no_norm"]
Sharpness = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Slope = Annotated[float, Field(ge=0, lt=1)]


class Options(Strict):
    """Options of a system, read strictly: neither ``true`` nor ``"3"`` is accepted as a number."""

    model_config = ConfigDict(strict=True)


class ScanOptions(Options):
    """Stacked cross attention (SCAN).

    Attributes:
        direction: ``t2i``: each word attends to the regions; ``i2t``: each region attends to the words.
        aggregation: how the cosines of words (or regions) become one score: LogSumExp, mean, maximum or sum.
        lambda_softmax: inverse temperature of the attention.
        lambda_lse: inverse temperature of LogSumExp.
        raw_feature_norm: how similarities are normalized before the softmax, over the attending elements.
        slope: what ``clipped`` keeps of negative similarities: 0.1 in the released code, 0 in the paper.
    """

    direction: Literal["t2i", "i2t"] = "t2i"
    aggregation: Literal["lse", "mean", "max", "sum"] = "lse"
    lambda_softmax: Sharpness = 9.0
    lambda_lse: Sharpness = 6.0
    raw_feature_norm: FeatureNorm = "clipped_l2norm"
    slope: Slope = 0.1


class ImramOptions(Options):
    """Recurrent attention memory (IMRAM).

    Attributes:
        mode: ``text``: words attend to regions; ``image``: regions attend to words; ``full``: the sum of both.
        steps: how often they attend, with a memory that is updated in between; K in the paper.
        lambda_softmax: inverse temperature of the attention.
        raw_feature_norm: as of SCAN.
        slope: as of SCAN.
        unit_memory: whether the memory is scaled to unit length after each update.
    """

    mode: Literal["image", "text", "full"] = "full"
    steps: Annotated[int, Field(ge=1, le=10)] = 3
    lambda_softmax: Sharpness = 9.0
    raw_feature_norm: FeatureNorm = "clipped_l2norm"
    slope: Slope = 0.1
    unit_memory: bool = False


class CaanOptions(Options):
    """Context-aware attention (CAAN).

    Attributes:
        intra: relations inside an image or a text: ``semantic``, second-order attention by way of the other side;
            ``feature``, similarities of the elements themselves; ``none``.
        hidden_size: width of the layer that weights the elements; that of the elements if None.
        normalise: how the affinities of an element become weights: ``l2norm`` scales them to unit length, ``softmax``
            lets them add up to 1.
    """

    intra: Literal["semantic", "feature", "none"] = "semantic"
    hidden_size: Annotated[int, Field(ge=1, le=100_000)] | None = None
    normalise: Literal["l2norm", "softmax"] = "l2norm"


PairOptions: TypeAlias = ScanOptions | ImramOptions | CaanOptions
OPTIONS: dict[str, type[ScanOptions] | type[ImramOptions] | type[CaanOptions]] = {
    "scan": ScanOptions,
    "imram": ImramOptions,
    "caan": CaanOptions,
}


def read_options(system: System, options: Mapping[str, Any]) -> PairOptions:
    """Return the options of a system, with its defaults.

    Raises:
        InputError: an option is unknown or invalid.
    """
    return parse(OPTIONS[system], options, f"options of {system!r}")


def system_label(system: System, options: Mapping[str, Any]) -> str:
    """Return the system as cards and tables call it, such as ``SCAN t2i`` or ``IMRAM full``."""
    variant = {"scan": "direction", "imram": "mode", "caan": "intra"}[system]
    chosen = getattr(read_options(system, options), variant)
    return system.upper() if chosen == "semantic" else f"{system.upper()} {chosen}"


UNPOOLED = "none"
"""The pooling of a side whose elements are compared one by one."""


def without_pooling(value: Any) -> Any:
    """Fill in the pooling of both sides of a model that pools nothing, where a table leaves it out."""
    if not isinstance(value, dict):
        return value
    sides = {side: value[side] for side in ("image", "text") if isinstance(value.get(side), dict)}
    return value | {side: {"pooling": UNPOOLED, **table} for side, table in sides.items()}


def check_sets(image: Any, text: Any) -> None:
    """Raise ValueError for encoders whose elements a system of pairs cannot compare."""
    for side, config, kinds in (("image", image, ("region", "grid")), ("text", text, ("bigru",))):
        if config.kind not in kinds:
            raise ValueError(f'{side}.kind is "{config.kind}": a system of pairs takes {" or ".join(kinds)}')
        if config.pooling.name != UNPOOLED:
            raise ValueError(
                f'{side}.pooling is "{config.pooling.name}": a system of pairs compares elements and pools none of '
                f'them, set it to "{UNPOOLED}"'
            )
