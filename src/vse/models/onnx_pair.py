"""Run a pair of ONNX files that others exported: transformers.js / optimum, immich, rclip. No torch.

The graphs differ in the names and types of their inputs and in whether their outputs have unit norm. Both are read from
the graphs, so that a pair behaves like an export of ours.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse._version import __version__
from vse.errors import InputError
from vse.inputs.tokenizer import TextTokenizer
from vse.models.devices import check_threads, onnx_device
from vse.models.foreign import Foreign, embedding_size, image_inputs, padded_length, text_inputs
from vse.models.onnx import FEW, IMAGE_FILE, OnnxConfig, OnnxModel
from vse.models.protocols import Capabilities, Vectors

OUTPUTS = ("image_embeds", "text_embeds", "embedding", "output", "pooler_output")
"""Names of the embedding among a graph's outputs; the first output of a graph that has none of them."""
INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
SHORTEST = 1e-12


class OnnxPair(OnnxModel):
    """Encode images and texts with two ONNX files of another project."""

    def __init__(self, folder: Path, config: OnnxConfig, found: Foreign, tokenizer: TextTokenizer, **run: Any) -> None:
        super().__init__(folder, config, **run)
        self._found = found
        self._text_inputs = tokenizer
        self._padded = padded_length(found, tokenizer)

    @classmethod
    def open(
        cls, folder: Path, found: Foreign, *, source: str, threads: int | None = None, device: str | None = None
    ) -> OnnxPair:
        """Load a pair.

        Args:
            folder: Its files.
            found: What they are, see :func:`vse.models.foreign.recognise_folder`.
            source: What the user calls it.
            threads: Of one call; all cores by default.
            device: Where ONNX Runtime computes.

        Raises:
            InputError: If files are missing or do not belong together.
        """
        how, tokenizer = image_inputs(folder, found), text_inputs(folder, found)
        foreign = {"source": source, "revision": None, "library": found.kind, "model_type": found.model_type}
        config = OnnxConfig(
            vse_version=__version__,
            fingerprint="",
            precision="fp32",
            embed_size=1,
            feature_size=1,
            preprocessing=how.to_json(),
            grid=None,
            largest_image_set=1,
            longest_text=tokenizer.max_length,
            vocabulary_size=tokenizer.vocab_size,
            explains=False,
            agreement={},
            source={"foreign": foreign, "image": {"kind": "dual"}, "text": {"kind": "dual"}},
        )
        run = {"threads": check_threads(threads), "device": onnx_device(device, threads)}
        return cls(folder, config, found, tokenizer, **run)

    @cached_property
    def embed_size(self) -> int:
        """Dimensions of an embedding, equal for both towers."""
        sizes = [_width(session) for session in (self._image_session, self._query_session)]
        known = embedding_size(self._found) if self._found.kind != "rclip" else None
        image, text = (size or known for size in sizes)
        if image != text or image is None:
            raise InputError(
                f"{self.folder}: the image tower has {image} dimensions and the text tower {text}: they belong to "
                "different models"
            )
        return image

    @property
    def capabilities(self) -> Capabilities:
        """What the pair can do: images, videos frame by frame, and texts."""
        return Capabilities(images=True, texts=True, videos=True, evidence=False, features=False)

    @property
    def tokenizer(self) -> TextTokenizer:
        """How texts become tokens."""
        return self._text_inputs

    def embed_images(self, batch: NDArray[Any], lengths: NDArray[np.int64] | None = None) -> Vectors:
        """Return the embeddings of one batch of pixels ``(B, 3, H, W)``."""
        session = self._parallel or self._image_session
        pixels = self._image_inputs(batch, lengths)["pixels"]
        return self._embed(session, {session.get_inputs()[0].name: pixels}, len(batch))

    def embed_tokens(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> Vectors:
        """Return the embeddings of one batch of tokens."""
        tokens, lengths = np.asarray(tokens, dtype=np.int64), np.asarray(lengths, dtype=np.int64)
        self._check_tokens(tokens, lengths)
        session = self._query_session if len(tokens) <= FEW and self._device.is_cpu else self._text_session
        fixed = session.get_inputs()[0].shape[1]  # a number in graphs that take one length only
        width = fixed if isinstance(fixed, int) else self._padded or tokens.shape[1]
        if width < int(lengths.max(initial=0)):
            raise InputError(f"{self.folder}: a text of {int(lengths.max())} tokens; the text tower reads {width}")
        ids = np.full((len(tokens), width), self.tokenizer.pad_id, np.int64)
        mask = np.arange(width) < lengths[:, None]
        ids[mask] = tokens[np.arange(tokens.shape[1]) < lengths[:, None]]
        given: dict[str, NDArray[Any]] = {}
        for each in session.get_inputs():
            if each.type not in INTEGERS:
                raise InputError(f"{self.folder}: the text tower takes {each.name!r} as {each.type}, expected integers")
            value = mask if "mask" in each.name else np.zeros_like(ids) if "type" in each.name else ids
            given[each.name] = value.astype(INTEGERS[each.type])
        return self._embed(session, given, len(tokens))

    def architecture(self) -> dict[str, Any]:
        """Return what is known of the model: where it comes from."""
        own = {"name": "own", "options": {}}
        network = {"kind": "dual", "library": self._found.kind, "architecture": self._found.config, "pooling": own}
        return {**self.config.source, "embed_size": self.embed_size, "image": network, "text": network}

    @cached_property
    def _mark(self) -> str:
        digest = hashlib.sha256()
        for name in self._found.needed:
            if not name.endswith(".json"):
                with (self.folder / name).open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        inputs = {"preprocessing": self.config.preprocessing, "tokenizer": self._text_inputs.to_json()}
        digest.update(json.dumps(inputs, sort_keys=True).encode())
        return digest.hexdigest()[:16]

    def fingerprint(self) -> str:
        """Return a hash of both files and of the inputs' preparation."""
        return self._mark

    def _embed(self, session: Any, inputs: dict[str, NDArray[Any]], count: int) -> Vectors:
        if not count:
            return np.zeros((0, self.embed_size), np.float32)
        outputs = [each.name for each in session.get_outputs()]
        name = next((known for known in OUTPUTS if known in outputs), outputs[0])
        fixed = session.get_inputs()[0].shape[0]  # a number in graphs that take a fixed number of inputs
        step = fixed if isinstance(fixed, int) else count
        if count % step:
            raise InputError(f"{self.folder}: its graph takes {step} inputs at a time; export it with a dynamic batch")
        parts = [
            self._run(session, {key: value[start : start + step] for key, value in inputs.items()}, [name])[0]
            for start in range(0, count, step)
        ]
        vectors = np.concatenate(parts).astype(np.float32, copy=False)
        if vectors.ndim != 2 or len(vectors) != count:
            raise InputError(f"{self.folder}: output {name!r} has shape {vectors.shape}, expected ({count}, D)")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(norms, SHORTEST)

    def _tower_file(self, name: str) -> Path:
        image, text = self._found.pair or ("", "")
        return self.folder / (image if name == IMAGE_FILE else text)

    def _check_outputs(self, found: list[NDArray[np.float32]], count: int) -> None:
        """Accept any shape: that of the embedding is checked when it is scaled."""

    def _verify(self, name: str) -> None:
        """Do nothing: the fingerprint is computed from the files themselves."""

    def _check_session(self, session: Any, name: str) -> None:
        """Accept any graph: files of others carry no fingerprint of ours."""


def _width(session: Any) -> int | None:
    """Return the width of a tower's embedding, if its graph says so."""
    outputs = {each.name: each.shape for each in session.get_outputs()}
    name = next((known for known in OUTPUTS if known in outputs), next(iter(outputs)))
    last = outputs[name][-1] if outputs[name] else None
    return last if isinstance(last, int) else None
