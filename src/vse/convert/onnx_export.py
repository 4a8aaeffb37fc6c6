"""Export a torch model for ONNX Runtime: both towers, tokenizer, preprocessing, model card.

Everything is written to a temporary folder and compared with torch; only an export that passed is moved to its place.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from vse._util.atomic import settle, write_json
from vse._util.strict import read_json
from vse._version import __version__
from vse.convert.onnx_graph import (
    TowerAgreement,
    random_feature_batches,
    random_token_batches,
    recalls,
    tower_bytes,
    write_graph,
    write_mark,
)
from vse.convert.onnx_precision import halve_weights, quantize
from vse.convert.onnx_towers import DualTower, FeatureTower, PixelTower, TextTower
from vse.errors import InputError, VSEError, unknown_choice
from vse.models.card import write_card
from vse.models.coefficients import COEFFICIENT_FILES, RELEVANCE_FILE
from vse.models.coefficients import FILE as CONFIDENCE
from vse.models.config import About, Score
from vse.models.integrity import write_checksums
from vse.models.onnx import IMAGE_FILE, TEXT_FILE, WEIGHTS_ENDING, OnnxConfig, OnnxModel, Precision
from vse.models.protocols import Items
from vse.models.storage import TOKENIZER_FILES, fingerprint
from vse.models.vse_model import VSEModel
from vse.progress import ProgressReporter, SilentProgress
from vse.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from vse.data.dataset import CaptionedImages
    from vse.models.coefficients import Coefficients, RelevanceCoefficients

LARGEST_SET = 256  # elements of a set of region features that the pooling's table covers
LONGEST_TEXT = 128
TOLERANCE = 1e-4  # of a float32 export
CALIBRATION_IMAGES = 64
CALIBRATION_BATCH = 8


@dataclass(frozen=True)
class ExportReport:
    """Where the export is and how well it agrees with torch."""

    folder: Path
    precision: Precision
    bytes: dict[str, int]
    agreement: dict[str, TowerAgreement]
    recalls: dict[str, dict[str, float]]  # "torch" and "export", when data was given

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "folder": str(self.folder),
            "precision": self.precision,
            "bytes": self.bytes,
            "agreement": {tower: value.to_json() for tower, value in self.agreement.items()},
            "recalls": self.recalls,
            "recall_lost": self.recall_lost(),
        }

    def recall_lost(self) -> dict[str, float]:
        """Return the points of recall that the export loses on the given data."""
        if not self.recalls:
            return {}
        before, after = self.recalls["torch"], self.recalls["export"]
        return {name: before[name] - after[name] for name in before}


def export_onnx(
    model: VSEModel,
    folder: str | Path,
    *,
    precision: Precision = "fp32",
    data: CaptionedImages | None = None,
    images: Items | None = None,
    largest_set: int | None = None,
    confidence: Coefficients | None = None,
    relevance: RelevanceCoefficients | None = None,
    progress: ProgressReporter | None = None,
) -> ExportReport:
    """Export a model for ONNX Runtime and compare it with torch.

    Args:
        model: The model.
        folder: Where to write the export; created if needed.
        precision: ``"fp32"``, ``"fp16"``, ``"int8"`` or ``"mixed"`` (fp16 images, int8 texts).
        data: Measure the loss of recall on this split; the card then reports the scores of the export.
        images: Calibrate the convolutions of an int8 export; generated scenes by default.
        largest_set: Largest set of features, for a model of features.
        confidence: Coefficients of the model, saved with the export.
        relevance: Its coefficients for relevance, saved with the export.
        progress: Reports the stages.

    Returns:
        Sizes, agreement with torch, and recall if ``data`` is given.

    Raises:
        InputError: If ``folder`` holds something else, or an argument is invalid.
        VSEError: If a float32 export differs from torch by more than 1e-4.
    """
    if precision not in get_args(Precision):
        raise InputError(unknown_choice("precision", precision, get_args(Precision)))
    _refuse_untraceable(model)
    target = Path(folder)
    _check_target(target)
    report = progress or SilentProgress()
    model = copy.deepcopy(model).cpu().eval()
    target.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".exporting-", dir=target))
    try:
        report.start(4, "image tower")
        sizes = _write_towers(model, staging, largest_set or LARGEST_SET, report)
        report.advance(description=f"{precision} weights")
        samples = _images(model, images)
        for name in (IMAGE_FILE, TEXT_FILE):
            if precision == "fp16" or (precision == "mixed" and name == IMAGE_FILE):
                halve_weights(staging / name)
            elif precision in {"int8", "mixed"}:
                measured = None if model.config.image.kind == "dual" else samples  # a ViT is matrix products
                batches = _batches(measured) if measured is not None and name == IMAGE_FILE else None
                quantize(staging / name, batches, tables=precision == "int8")
        mark = fingerprint(model) if precision == "fp32" else f"{fingerprint(model)}-{precision}"
        for name in (IMAGE_FILE, TEXT_FILE):
            write_mark(staging / name, mark)
        _write_rest(model, staging, precision, sizes, mark)
        if confidence is not None:
            write_json(staging / CONFIDENCE, asdict(confidence))
        if relevance is not None:
            write_json(staging / RELEVANCE_FILE, asdict(relevance))
        report.advance(description="comparing with torch")
        result = _compare(model, staging, target, precision, samples, data)
        write_card(staging, model)
        weights = [path.name for path in staging.glob(f"*{WEIGHTS_ENDING}")]
        write_checksums(staging, (IMAGE_FILE, TEXT_FILE, *weights, *TOKENIZER_FILES))
        _install(staging, target)
        report.advance()
        report.finish()
        return result
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        with suppress(OSError):  # remove an empty folder after a failed export; keep one with content
            target.rmdir()


@dataclass(frozen=True)
class _Sizes:
    largest_set: int
    longest_text: int
    grid: tuple[int, int] | None
    explains: bool


def _write_towers(model: VSEModel, folder: Path, largest: int, report: ProgressReporter) -> _Sizes:
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    how = model.preprocessing
    encoder = cast(Any, model.image_encoder)
    tower: FeatureTower | PixelTower | DualTower
    example: tuple[torch.Tensor, ...]
    dynamic: tuple[dict[int, Any], ...]
    if how is None:
        grid, tower = None, FeatureTower(encoder, largest)
        example = (torch.randn(3, 4, model.feature_size), torch.tensor([4, 2, 3]))
        dynamic, inputs = ({0: batch, 1: length}, {0: batch}), ["features", "lengths"]
    elif model.config.image.kind == "dual":
        grid, tower = None, DualTower(encoder)
        example, dynamic, inputs = (torch.randn(2, 3, *how.size),), ({0: batch},), ["pixels"]
    else:
        grid = encoder.backbone.grid(*how.size) if encoder.windows is None else None
        largest = encoder.windows if grid is None else grid[0] * grid[1]
        tower = PixelTower(encoder, largest)
        example, dynamic, inputs = (torch.randn(2, 3, *how.size),), ({0: batch},), ["pixels"]
    outputs = ["vectors", "contributions"] if tower.explains else ["vectors"]
    write_graph(tower, example, dynamic, inputs, outputs, folder / IMAGE_FILE)
    report.advance(description="text tower")
    longest = model.tokenizer.max_length if model.tokenizer is not None else LONGEST_TEXT
    longest = min(longest, getattr(model.text_encoder, "max_tokens", None) or longest)
    tokens = (torch.ones(3, 4, dtype=torch.int64), torch.tensor([4, 2, 3]))
    write_graph(
        TextTower(model.text_encoder, longest),
        tokens,
        ({0: batch, 1: length}, {0: batch}),
        ["tokens", "lengths"],
        ["vectors"],
        folder / TEXT_FILE,
    )
    return _Sizes(largest, longest, grid, tower.explains)


def _write_rest(model: VSEModel, folder: Path, precision: Precision, sizes: _Sizes, mark: str) -> None:
    if model.tokenizer is not None:
        model.tokenizer.save(folder)
    config = OnnxConfig(
        vse_version=__version__,
        fingerprint=mark,
        precision=precision,
        embed_size=model.embed_size,
        feature_size=model.feature_size,
        preprocessing=None if model.preprocessing is None else model.preprocessing.to_json(),
        grid=sizes.grid,
        largest_image_set=sizes.largest_set,
        longest_text=sizes.longest_text,
        vocabulary_size=_vocabulary(model),
        explains=sizes.explains,
        agreement={},
        source=model.config.model_dump(mode="json"),
    )
    write_json(folder / "config.json", asdict(config))


def _compare(
    model: VSEModel,
    staging: Path,
    target: Path,
    precision: Precision,
    samples: NDArray[np.float32] | None,
    data: CaptionedImages | None,
) -> ExportReport:
    exported = OnnxModel.load(staging)
    batches: dict[str, list[tuple[Any, Any]]] = {
        "image": [(batch, None) for batch in _batches(samples)]
        if samples is not None
        else random_feature_batches(model.feature_size, exported.config.largest_image_set),
        "text": random_token_batches(_vocabulary(model), exported.config.longest_text),
    }
    agreement = {}
    for tower, inputs in batches.items():
        ours, theirs = (
            np.concatenate([getattr(each, f"embed_{'images' if tower == 'image' else 'tokens'}")(*b) for b in inputs])
            for each in (model, exported)
        )
        agreement[tower] = TowerAgreement.between(ours, theirs)
        difference = agreement[tower].max_difference
        if precision == "fp32" and not difference <= TOLERANCE:
            raise VSEError(f"the exported {tower} tower differs from torch by {difference:.1e}, over {TOLERANCE:.0e}")
    measured = {}
    if data is not None:
        for name, each in (("torch", model), ("export", exported)):
            images = each.encode_images(data.images, on_bad="raise")
            texts = each.encode_texts(data.captions, unknown="allow")
            measured[name] = recalls(images, texts, data.caption_to_image)
        model.config = model.config.model_copy(update={"about": _with_score(model, data, measured["export"])})
    found = {f"{tower}_{key}": figure for tower, value in agreement.items() for key, figure in value.to_json().items()}
    result = ExportReport(
        target,
        precision,
        {"image": tower_bytes(staging / IMAGE_FILE), "text": tower_bytes(staging / TEXT_FILE)},
        agreement,
        measured,
    )
    lost = {f"recall_lost_{name}": value for name, value in result.recall_lost().items()}
    source = model.config.model_dump(mode="json")
    config = replace(exported.config, agreement=found | lost, source=source)
    write_json(staging / "config.json", asdict(config))
    return result


def _with_score(model: VSEModel, data: CaptionedImages, values: dict[str, float]) -> About:
    """Return what is known about the model, with the scores of the export on ``data``."""
    figures = values | {"rsum": sum(values.values())}
    protocol = f"{len(data.images):,} images, {len(data.captions):,} captions, the export"
    score = Score(protocol=protocol, data=data.name, split=data.split, values=figures)
    about = model.config.about
    return about.model_copy(update={"scores": (*about.scores, score)})


def _refuse_untraceable(model: VSEModel) -> None:
    """Refuse a model whose towers torch's exporter cannot trace, with the reason."""
    system = model.config.system
    reason = None if system is None else SYSTEMS[system.name].untraceable
    if reason is None and model.config.text.kind == "characters":
        reason = SYSTEMS["liwe"].untraceable
    if reason is not None:
        raise InputError(f"this model cannot be exported to ONNX: {reason}; use the torch model")


def _vocabulary(model: VSEModel) -> int:
    text = model.config.text
    if text.kind == "dual":
        return int(cast(Any, model.text_encoder).vocabulary_size)
    return text.vocabulary_size if text.kind != "transformer" else int(text.architecture.get("vocab_size", 1000))


def _images(model: VSEModel, given: Items | None) -> NDArray[np.float32] | None:
    """Return images ``(n, 3, H, W)`` to calibrate and compare with; None for a model of features."""
    if model.preprocessing is None:
        return None
    from vse.inputs.preprocessing import load_pixels

    if given is None:
        from vse.data.scenes import render, sample_scene

        given = [render(sample_scene(0, "test", index)) for index in range(CALIBRATION_IMAGES)]
    chosen = [given[index] for index in range(min(len(given), CALIBRATION_IMAGES))]
    if not chosen:
        raise InputError("no images to calibrate with: the folder holds none")
    return np.stack([load_pixels(image, model.preprocessing) for image in chosen])


def _batches(samples: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    for start in range(0, len(samples), CALIBRATION_BATCH):
        yield samples[start : start + CALIBRATION_BATCH]


def _check_target(target: Path) -> None:
    """Reject a folder that holds something other than an export."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not target.is_dir() or not (target / "config.json").is_file():
        raise InputError(f"{target}: exists and is not an export; choose another folder or remove it")
    if read_json(target / "config.json").get("runtime") != "onnx":
        raise InputError(f"{target}: holds a model, not an export; choose another folder")


def _install(staging: Path, target: Path) -> None:
    """Move the files in, the configuration last; other files in ``target`` stay, except those of another model.

    Towers and configuration carry the same mark, and the checksums are those of all files, so that loading detects a
    crash between two moves.
    """
    for name in (*TOKENIZER_FILES, *COEFFICIENT_FILES):
        if not (staging / name).exists():
            (target / name).unlink(missing_ok=True)
    new = sorted(staging.iterdir(), key=lambda path: path.name == "config.json")
    for path in new:
        settle(path)
        path.replace(target / path.name)
    for path in target.glob(f"*{WEIGHTS_ENDING}"):  # of the export that was replaced
        if path.name not in {each.name for each in new}:
            path.unlink()
