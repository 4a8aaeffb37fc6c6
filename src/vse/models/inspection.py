"""Describe a saved model from its folder alone: no torch, no weights are loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vse._util.strict import read_json
from vse.errors import InputError, unknown_choice
from vse.inputs.preprocessing import ImagePreprocessing
from vse.models.card import (
    TowerReport,
    cross_towers,
    hgr_towers,
    image_tower,
    text_tower,
)
from vse.models.coefficients import is_foreign, own_coefficients, own_relevance
from vse.models.config import (
    OWN,
    About,
    AnyConfig,
    CrossConfig,
    HGRConfig,
    ModelConfig,
    PairConfig,
    read_config,
    split_marks,
)
from vse.models.curves import CURVES_FILE, PoolingCurve, read_curves
from vse.models.foreign import Foreign, embedding_size, image_inputs, recognise_folder, text_inputs
from vse.models.protocols import Capabilities
from vse.models.sources import is_model, recorded_runtime
from vse.models.system_config import READING_OUT, SystemConfig

if TYPE_CHECKING:
    from vse.inputs.tokenizer import TextTokenizer

Shapes = dict[str, tuple[int, ...]]

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
RUNTIMES = ("torch", "onnx")
LONGEST_HEADER = 100_000_000  # the limit of the safetensors format
AUXILIARY = "auxiliary."
BUFFERS = (
    *("running_mean", "running_var", "num_batches_tracked", "position_ids", "coefficient_table"),
    *("adjacency", "of_token"),
)
"""Last names of saved tensors that are not trained, so that they are no parameters."""


@dataclass(frozen=True)
class ModelReport:
    """What the files of a model say about it.

    ``confidence`` is what its own coefficients were fitted on; None if search uses the bundled ones or, for a
    ``foreign`` model, none. ``relevance`` is what those of relevance were fitted on; None if there are none.
    ``capabilities`` are those of the loaded model. ``system`` is the name of a system of two towers, and
    ``training_parameters`` are those that only its training needs.
    """

    folder: str
    runtime: str
    embed_size: int | None
    fingerprint: str | None
    version: str | None
    precision: str | None
    towers: tuple[TowerReport, ...]
    preprocessing: ImagePreprocessing | None
    tokenizer: TextTokenizer | None
    about: About
    curves: tuple[PoolingCurve, ...]
    file_sizes: dict[str, int]
    confidence: str | None
    relevance: str | None
    capabilities: Capabilities
    foreign: bool = False
    plot: str | None = None
    system: str | None = None
    training_parameters: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return every field under its name; a score that is not a number is null."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["towers"] = [asdict(tower) for tower in self.towers]
        plain["preprocessing"] = self.preprocessing and self.preprocessing.to_json()
        read = self.tokenizer
        plain["tokenizer"] = read and {name: getattr(read, name) for name in ("kind", "vocab_size", "max_length")}
        plain["about"] = self.about.model_dump(mode="json")
        plain["capabilities"] = self.capabilities._asdict()
        plain["curves"] = [curve.to_json() for curve in self.curves]
        return dict(_finite(plain))


def inspect_folder(path: str | Path) -> ModelReport:
    """Describe the model in a folder.

    Args:
        path: Folder of a saved or exported model, or of a public one (:mod:`vse.models.foreign`).

    Returns:
        The report.

    Raises:
        InputError: If files are missing, corrupt or of different models.
    """
    folder = Path(path)
    if is_model(folder) and recorded_runtime(folder) is None and (found := recognise_folder(folder)) is not None:
        if found.kind == "cross":
            raise InputError(
                f"{folder}: a public cross-encoder ({found.model_type}), which re-ranks what a VSE model finds and has "
                "no towers to inspect: use it with --rerank"
            )
        return _public_report(folder, found)
    raw = read_json(folder / CONFIG)
    runtime = raw.get("runtime", "torch")
    if runtime not in RUNTIMES:
        raise InputError(f"{folder / CONFIG}: {unknown_choice('runtime', runtime, RUNTIMES)}")
    exported = runtime == "onnx"
    # An exported folder keeps the configuration of the model that it was made from.
    described = raw.get("source") if exported else raw
    config = None
    # What is known of other libraries' exports may be their origin alone.
    if isinstance(described, dict) and ("embed_size" in described or not isinstance(described.get("foreign"), dict)):
        config = read_config(split_marks(described)[0], str(folder / CONFIG))
    shapes: Shapes = {}
    if not exported:
        shapes, metadata = read_header(folder / WEIGHTS)
        if metadata.get("fingerprint", raw.get("fingerprint")) != raw.get("fingerprint"):
            raise InputError(
                f"{folder}: {CONFIG} and {WEIGHTS} belong to different models (was saving interrupted?); save it again"
            )
    how = raw.get("preprocessing") if exported else None
    preprocessing = ImagePreprocessing.from_json(how) if how else _preprocessing(config)
    tokenizer = _tokenizer(folder)
    curves = folder / CURVES_FILE
    weights = sorted(folder.glob("*.onnx*")) if exported else [folder / WEIGHTS]
    return ModelReport(
        folder=str(folder),
        runtime=runtime,
        embed_size=getattr(config, "dimensions", getattr(config, "embed_size", raw.get("embed_size"))),
        fingerprint=_text(raw, "fingerprint"),
        version=_text(raw, "vse_version"),
        precision=_text(raw, "precision"),
        towers=_towers(config, shapes, raw.get("feature_size")) if config else (),
        preprocessing=preprocessing,
        tokenizer=tokenizer,
        about=config.about if config else About(),
        curves=read_curves(curves) if curves.is_file() else (),
        file_sizes={file.name: file.stat().st_size for file in weights},
        confidence=own.source if (own := own_coefficients(folder)) else None,
        relevance=fits.source if (fits := own_relevance(folder)) else None,
        capabilities=_capabilities(raw, config, preprocessing is not None, tokenizer is not None),
        foreign=is_foreign(folder),
        system=None if (system := _system(config)) is None else system.name,
        training_parameters=None if system is None or not shapes else _count(shapes, AUXILIARY),
    )


def _public_report(folder: Path, found: Foreign) -> ModelReport:
    """Describe a public model; its fingerprint needs the weights, so it has none here."""
    weights = [folder / name for name in found.needed if not name.endswith(".json")]
    shapes: Shapes = {}
    for file in weights if found.pair is None else ():
        shapes |= read_header(file)[0]

    def tower(name: Literal["image", "text"]) -> TowerReport:
        half = [key for key in shapes if key.startswith("vis") == (name == "image") and not key.endswith(BUFFERS)]
        return TowerReport(
            name,
            "dual",
            f"{found.model_type}, {name} half",
            OWN,
            parameters=sum(math.prod(shapes[key]) for key in half) if shapes else None,
        )

    return ModelReport(
        folder=str(folder),
        runtime="torch" if found.pair is None else "onnx",
        embed_size=None if found.kind == "rclip" else embedding_size(found),
        fingerprint=None,
        version=None,
        precision=None,
        towers=(tower("image"), tower("text")),
        preprocessing=image_inputs(folder, found),
        tokenizer=text_inputs(folder, found),
        about=About(name=folder.resolve().name, notes=(f"a public model in the layout of {found.kind}",)),
        curves=(),
        file_sizes={file.relative_to(folder).as_posix(): file.stat().st_size for file in weights},
        confidence=own.source if (own := own_coefficients(folder)) else None,
        relevance=fits.source if (fits := own_relevance(folder)) else None,
        capabilities=Capabilities(images=True, texts=True, videos=True, evidence=False, features=False),
        foreign=True,
    )


def read_header(path: Path) -> tuple[Shapes, dict[str, str]]:
    """Return the shapes of the tensors in a safetensors file and its metadata; only the header is read.

    The file is an 8-byte little-endian length, that many bytes of JSON ``{name: {"dtype", "shape", "data_offsets"}}``
    and the data, which must end at the last offset.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; a model folder holds {CONFIG} and {WEIGHTS}")
    size = path.stat().st_size
    broken = f"{path}: not a complete safetensors file, {size} bytes"
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, LONGEST_HEADER):
            raise InputError(f"{broken} with a header of {length}; copy or save it again")
        head = file.read(length)
    try:
        entries = json.loads(head)
        metadata = dict(entries.pop("__metadata__", {}))
        shapes = {name: tuple(int(side) for side in entry["shape"]) for name, entry in entries.items()}
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise InputError(f"{broken} and its header cannot be read; copy or save it again") from None
    if 8 + length + end != size:
        raise InputError(f"{broken} where its header announces {8 + length + end}; copy or save it again")
    return shapes, metadata


def _preprocessing(config: AnyConfig | None) -> ImagePreprocessing | None:
    return config.preprocessing() if isinstance(config, ModelConfig) else None


def _capabilities(raw: Mapping[str, Any], config: AnyConfig | None, images: bool, texts: bool) -> Capabilities:
    """Return what the loaded model can do, given whether it takes images and texts."""
    if raw.get("runtime") == "onnx":
        return Capabilities(images, texts, images, images and raw.get("explains") is True, not images)
    if isinstance(config, PairConfig):
        return Capabilities(images, texts, videos=False, evidence=False, features=True)
    tower = config.image if isinstance(config, ModelConfig) else None
    reads_videos = tower is not None and tower.kind == "frames" and tower.backbone is not None
    explains = tower is not None and tower.pooling.weights_ranks and not isinstance(_system(config), READING_OUT)
    dual = tower is not None and tower.kind == "dual"
    return Capabilities(images, texts, images or reads_videos, images and explains and not dual, not dual)


def _towers(config: AnyConfig, shapes: Shapes, feature_size: Any) -> tuple[TowerReport, ...]:
    def count(prefix: str) -> int | None:
        return _count(shapes, prefix) if shapes else None

    def width(name: str) -> int | None:
        shape = shapes.get(name, ())
        return shape[1] if len(shape) == 2 else None

    if isinstance(config, HGRConfig):
        return hgr_towers(config, count("video_encoder."), count("text_encoder."))
    if isinstance(config, CrossConfig):
        return cross_towers(config, count("regions."), count("transformer."))
    image = width("image_encoder.projection.fc.weight") or (feature_size if isinstance(feature_size, int) else None)
    return (
        image_tower(config.image, image, count("image_encoder.")),
        text_tower(config.text, width("text_encoder.linear.weight"), count("text_encoder.")),
    )


def _count(shapes: Shapes, prefix: str) -> int:
    """Return the number of parameters below a prefix."""
    own = (shape for name, shape in shapes.items() if name.startswith(prefix) and not name.endswith(BUFFERS))
    return sum(map(math.prod, own))


def _system(config: AnyConfig | None) -> SystemConfig | None:
    return config.system if isinstance(config, ModelConfig) and not isinstance(config, PairConfig) else None


def _text(raw: Mapping[str, Any], key: str) -> str | None:
    return None if raw.get(key) is None else str(raw[key])


def _tokenizer(folder: Path) -> TextTokenizer | None:
    if not (folder / "tokenizer.json").is_file():
        return None
    from vse.inputs.tokenizer import TextTokenizer

    return TextTokenizer.load(folder)


def _finite(value: Any) -> Any:
    """Return ``value`` without NaN and infinity, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
