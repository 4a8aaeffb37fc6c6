"""Public cross-encoders of transformers as re-rankers: ViLT, BLIP (ITM), BridgeTower, LXMERT and VisualBERT.

The library's own classes compute the scores, and its own image processors the pixels. A configuration is judged before
any weights are read, only safetensors are opened, and nothing is fetched or run that the folder brings along.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from vse.encoders.functional import state_fingerprint
from vse.encoders.third_party import (
    check_size,
    describe_config,
    import_transformers,
    load_pretrained,
    network_config,
    offline,
    stored_shapes,
)
from vse.errors import InputError, first_line
from vse.inputs.decoding import decode_image
from vse.models.protocols import Capabilities, Items
from vse.progress import ProgressReporter, SilentProgress
from vse.systems.cross_encoder import CandidateMethods

if TYPE_CHECKING:
    from vse.inputs.tokenizer import TextTokenizer

PAIRS = 16
"""Pairs of equal image size that are scored together."""
LONGEST = 2000  # pixels of a decoded image: more than any of the models reads
LARGEST_SIDE = 2048
SETTINGS = (
    *("size", "crop_size", "resample", "do_resize", "do_center_crop", "do_rescale", "rescale_factor", "do_normalize"),
    *("image_mean", "image_std", "do_pad", "size_divisor"),
)
"""What is taken from a folder's ``preprocessor_config.json``."""


class Family(NamedTuple):
    """How the models of one type are called.

    Attributes:
        network: the class with the matching head.
        processor: the image processor; None for a model of region features.
        output: the attribute of the result that holds the logits.
        match: which of two classes is a match; None for a single logit.
        features: for a model of region features, the value of its configuration that is their width.
        boxes: the same for the values of a box behind a feature; None for a model without boxes.
    """

    network: str
    processor: str | None
    output: str
    match: int | None
    features: str | None = None
    boxes: str | None = None


FAMILIES = {
    "vilt": Family("ViltForImageAndTextRetrieval", "ViltImageProcessor", "logits", None),
    "blip": Family("BlipForImageTextRetrieval", "BlipImageProcessor", "itm_score", 1),
    "bridgetower": Family("BridgeTowerForImageAndTextRetrieval", "BridgeTowerImageProcessor", "logits", 1),
    "lxmert": Family(
        "LxmertForPreTraining", None, "cross_relationship_score", 1, "visual_feat_dim", boxes="visual_pos_dim"
    ),
    "visual_bert": Family("VisualBertForPreTraining", None, "seq_relationship_logits", 0, "visual_embedding_dim"),
}


class PublicCrossEncoder(CandidateMethods):
    """A public cross-encoder in evaluation mode.

    The score of a pair is the logit of a match; of two classes, the logit of a match minus that of none.

    Args:
        network: a model of the library.
        processor: its image processor; None for a model of region features with boxes.
        tokenizer: of its texts.
        name: what results call it.
    """

    def __init__(self, network: Any, processor: Any, tokenizer: TextTokenizer, name: str) -> None:
        self.network = network.eval()
        self.processor = processor
        self.tokenizer = tokenizer
        self.name = name
        self.family = FAMILIES[network.config.model_type]

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do: LXMERT and VisualBERT take regions, the others read image files."""
        reads = self.processor is not None
        return Capabilities(images=reads, texts=True, videos=False, evidence=False, features=not reads)

    @property
    def feature_size(self) -> int | None:
        """Width of a region's feature, with its box where the model reads boxes; None for a model that reads images."""
        if self.family.features is None:
            return None
        return int(getattr(self.network.config, self.family.features)) + self._box

    @property
    def reads_boxes(self) -> bool:
        """Whether the last four values of a region are its box."""
        return self.family.boxes is not None

    @property
    def _box(self) -> int:
        return 0 if self.family.boxes is None else int(getattr(self.network.config, self.family.boxes))

    def score_candidates(
        self,
        images: Items,
        texts: Sequence[str],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        *,
        progress: ProgressReporter | None = None,
    ) -> NDArray[np.float32]:
        """Return the scores ``(n,)`` of pairs; each image is read once, and images of equal size share a batch.

        Raises:
            InputError: an image cannot be read, or is not of the form that the model takes.
        """
        report = progress or SilentProgress()
        scores = np.empty(len(rows), dtype=np.float32)
        if not len(rows):
            return scores
        batch = self.tokenizer.encode(self.tokenizer.respell(texts))
        report.start(len(rows), "scoring pairs")
        for part, inputs in self._batches(images, rows):
            lengths = batch.lengths[columns[part]]
            tokens = batch.tokens[columns[part], : int(lengths.max())]
            mask = np.arange(tokens.shape[1]) < lengths[:, None]
            scores[part] = self._scores(tokens, mask, inputs)
            report.advance(len(part))
        report.finish()
        return scores

    def _batches(
        self, images: Items, rows: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], dict[str, torch.Tensor]]]:
        """Yield pairs with the inputs of their images, image by image, those of equal shapes together."""
        waiting: list[int] = []
        inputs: list[dict[str, torch.Tensor]] = []
        row, read = -1, {}
        for pair in np.argsort(rows, kind="stable").tolist():
            if rows[pair] != row:
                row = int(rows[pair])
                read = self._read(images[row], row)
            shapes = {name: value.shape for name, value in read.items()}
            if waiting and (len(waiting) == PAIRS or shapes != {k: v.shape for k, v in inputs[-1].items()}):
                yield np.array(waiting), _stacked(inputs)
                waiting, inputs = [], []
            waiting.append(pair)
            inputs.append(read)
        yield np.array(waiting), _stacked(inputs)

    def _read(self, image: Any, row: int) -> dict[str, torch.Tensor]:
        """Return the inputs of one image, without a batch dimension."""
        if self.processor is not None:
            pixels = decode_image(image, longest=LONGEST)
            try:
                found = self.processor(images=[pixels], return_tensors="pt", input_data_format="channels_last")
            except (ValueError, TypeError, RuntimeError, ZeroDivisionError) as error:
                raise InputError(f"image {row} cannot be prepared for {self.name}: {first_line(error)}") from None
            return {name: found[name][0] for name in ("pixel_values", "pixel_mask") if name in found}
        array = np.asarray(image)
        if array.ndim != 2 or array.shape[1] != self.feature_size or not len(array):
            shown = f"an array {array.shape}" if array.ndim else f"{str(image)[:60]!r}"
            boxes = " with boxes" if self.reads_boxes else ""
            raise InputError(
                f"image {row} is {shown}; {self.name} takes sets of features{boxes} (N, {self.feature_size})"
            )
        regions = torch.from_numpy(array.astype(np.float32))
        if not self.reads_boxes:
            return {"visual_embeds": regions}
        return {"visual_feats": regions[:, : -self._box], "visual_pos": regions[:, -self._box :]}

    @torch.inference_mode()
    def _scores(
        self, tokens: NDArray[np.int64], mask: NDArray[np.bool_], inputs: Mapping[str, torch.Tensor]
    ) -> NDArray[np.float32]:
        device = next(self.network.parameters()).device
        given = {
            "input_ids": torch.from_numpy(tokens),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            **inputs,
        }
        found = self.network(**{name: value.to(device) for name, value in given.items()}, return_dict=True)
        logits, match = getattr(found, self.family.output).float(), self.family.match
        return (logits[:, 0] if match is None else logits[:, match] - logits[:, 1 - match]).cpu().numpy()

    def architecture(self) -> dict[str, Any]:
        """Return what it is, in the form of a configuration."""
        return {"kind": "cross", "architecture": describe_config(self.network.config)}

    def fingerprint(self) -> str:
        """Return a hash of weights and input processing; models with equal fingerprints give equal scores."""
        inputs = {"tokenizer": self.tokenizer.to_json(), "processor": _settings(self.processor)}
        return state_fingerprint(self.network.state_dict(), json.dumps(inputs, sort_keys=True, default=str))


def load_public_cross(
    folder: Path,
    config: Mapping[str, Any],
    weights: Sequence[Path],
    tokenizer: TextTokenizer,
    *,
    name: str,
    device: Any,
) -> PublicCrossEncoder:
    """Load a public cross-encoder from a folder of published files.

    Args:
        folder: its files.
        config: the content of ``config.json``.
        weights: its safetensors files.
        tokenizer: of its texts.
        name: what results call it.
        device: where to put it.

    Raises:
        InputError: the configuration, the weights and the processor do not belong together or ask for other files.
    """
    transformers = import_transformers("a public cross-encoder")
    shapes = stored_shapes(weights)
    described = network_config(transformers, config, tuple(FAMILIES), str(folder), parts=len(shapes))
    family = FAMILIES[described.model_type]
    network_class = getattr(transformers, family.network)
    with offline():
        check_size(lambda: network_class(described), shapes, str(folder))
        network = load_pretrained(
            transformers, str(folder), factory=network_class, config=described, local_files_only=True
        )
    processor = None if family.processor is None else _processor(transformers, family.processor, folder)
    return PublicCrossEncoder(network.to(device), processor, tokenizer, name)


def _processor(transformers: Any, name: str, folder: Path) -> Any:
    """Build the library's image processor from the plain settings of a folder; nothing else of the file is used."""
    path = folder / "preprocessor_config.json"
    try:
        given = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise InputError(f"{path}: not a complete JSON file ({first_line(error)}); fetch it again") from None
    if not isinstance(given, dict):
        raise InputError(f"{path}: holds a {type(given).__name__}, expected a JSON object")
    settings = {key: value for key, value in given.items() if key in SETTINGS and value is not None}
    _check_sides(settings, str(path))
    made = getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)  # the former is that of version 5
    try:
        return made(**settings)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: transformers cannot prepare images so: {first_line(error)}") from None


def _check_sides(settings: Mapping[str, Any], where: str) -> None:
    """Refuse sizes that no model has, which would take all memory."""
    for key in ("size", "crop_size", "size_divisor"):
        value = settings.get(key)
        for side in value.values() if isinstance(value, Mapping) else () if value is None else (value,):
            if isinstance(side, bool) or not isinstance(side, int) or not 1 <= side <= LARGEST_SIDE:
                raise InputError(f"{where}: {key!r} has a side of {str(side)[:40]}, expected 1 to {LARGEST_SIDE}")


def _settings(processor: Any) -> dict[str, Any]:
    return {} if processor is None else {key: getattr(processor, key, None) for key in SETTINGS}


def _stacked(inputs: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([each[name] for each in inputs]) for name in inputs[0]}
