"""An exported model, run by ONNX Runtime. It has the methods of :class:`vse.model.VSEModel` and never loads torch.

The folder that ``vse export`` writes:

    config.json         sizes, preprocessing, precision, the configuration of the model it was made from
    image.onnx          pixels (B, 3, H, W), or features (B, N, F) and lengths (B,) → vectors (B, D)[, contributions]
    text.onnx           tokens (B, L), lengths (B,) → vectors (B, D)
    tokenizer.json, tokenizer_settings.json, README.md, pooling_curves.json, pooling.png
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from vse.encoding import BadImage, Images, Vectors, encode_images, encode_texts
from vse.errors import InputError
from vse.progress import ProgressReporter
from vse.strict import Strict, parse, read_json

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing
    from vse.inputs.tokenizer import TextTokenizer

Precision = Literal["fp32", "fp16", "int8"]
IMAGE_FILE = "image.onnx"
TEXT_FILE = "text.onnx"
QUIET = 3  # ONNX Runtime's level for errors alone


class OnnxConfig(Strict):
    """``config.json`` of an exported model."""

    format: Literal[1] = 1
    runtime: Literal["onnx"] = "onnx"
    vse_version: str
    fingerprint: str
    precision: Precision
    embed_size: PositiveInt
    feature_size: PositiveInt
    preprocessing: dict[str, Any] | None
    grid: tuple[PositiveInt, PositiveInt] | None
    largest_image_set: PositiveInt
    longest_text: PositiveInt
    explains: bool
    agreement: dict[str, float]
    source: dict[str, Any]


class OnnxModel:
    """Encodes images and texts with ONNX Runtime; a tower is loaded when it is first used."""

    def __init__(self, folder: Path, config: OnnxConfig, threads: int | None = None) -> None:
        self.folder = folder
        self.config = config
        self.threads = threads

    @classmethod
    def load(cls, folder: str | Path, *, threads: int | None = None) -> OnnxModel:
        """The exported model in ``folder``; ``threads`` limits what one call uses (default: all cores)."""
        folder = Path(folder)
        config = parse(OnnxConfig, read_json(folder / "config.json"), str(folder / "config.json"))
        for name in (IMAGE_FILE, TEXT_FILE):
            if not (folder / name).is_file():
                raise InputError(f"{folder}: {name} is missing; export the model again")
        return cls(folder, config, threads)

    @property
    def embed_size(self) -> int:
        """Dimensions of a vector."""
        return self.config.embed_size

    @property
    def feature_size(self) -> int:
        """The width of the features that the image tower takes or computes."""
        return self.config.feature_size

    @cached_property
    def preprocessing(self) -> ImagePreprocessing | None:
        """How pictures are prepared; None for a model of region features."""
        if self.config.preprocessing is None:
            return None
        from vse.inputs.preprocessing import ImagePreprocessing

        return ImagePreprocessing.from_json(self.config.preprocessing)

    @cached_property
    def tokenizer(self) -> TextTokenizer | None:
        """How sentences become tokens."""
        if not (self.folder / "tokenizer.json").is_file():
            return None
        from vse.inputs.tokenizer import TextTokenizer

        return TextTokenizer.load(self.folder)

    def encode_images(
        self,
        images: Images,
        *,
        batch_size: int = 32,
        progress: ProgressReporter | None = None,
        on_bad: Literal["report", "raise"] = "report",
        problems: list[BadImage] | None = None,
    ) -> Vectors:
        """Unit vectors ``(n, D)`` float32 of pictures or feature sets; see :func:`vse.encoding.encode_images`."""
        return encode_images(self, images, batch_size=batch_size, progress=progress, on_bad=on_bad, problems=problems)

    def encode_texts(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 128,
        progress: ProgressReporter | None = None,
        unknown: Literal["error", "allow"] = "error",
    ) -> Vectors:
        """Unit vectors ``(n, D)`` float32 of sentences; see :func:`vse.encoding.encode_texts`."""
        return encode_texts(self, texts, batch_size=batch_size, progress=progress, unknown=unknown)

    def embed_images(self, batch: NDArray[Any], lengths: NDArray[np.int64] | None = None) -> Vectors:
        """One batch of pixels ``(B, 3, H, W)`` or features ``(B, N, F)`` to unit vectors."""
        return self._run(self._image_session, self._image_inputs(batch, lengths), ["vectors"])[0]

    def embed_tokens(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> Vectors:
        """One batch of tokens to unit vectors."""
        if int(lengths.max(initial=0)) > self.config.longest_text:
            raise InputError(f"a text of {int(lengths.max())} tokens; this export reads {self.config.longest_text}")
        return self._run(self._text_session, {"tokens": tokens, "lengths": lengths}, ["vectors"])[0]

    def contributions(self, batch: NDArray[Any], lengths: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """What each cell adds to the embedding, ``(B, N, D)``; times a query vector, the evidence of each cell."""
        if not self.config.explains:
            raise InputError("this model's pooling does not weight ranks, so it has no evidence to show")
        return self._run(self._image_session, self._image_inputs(batch, lengths), ["contributions"])[0]

    def fingerprint(self) -> str:
        """A name for exactly these towers: that of the model they come from, and the precision."""
        return self.config.fingerprint

    def _image_inputs(self, batch: NDArray[Any], lengths: NDArray[np.int64] | None) -> dict[str, NDArray[Any]]:
        if self.config.preprocessing is not None:
            if batch.ndim != 4:
                raise InputError("this export reads pictures; cell features need the model it was made from")
            return {"pixels": np.ascontiguousarray(batch, dtype=np.float32)}
        if lengths is None:
            lengths = np.full(len(batch), batch.shape[1], dtype=np.int64)
        if batch.shape[1] > self.config.largest_image_set:
            limit = self.config.largest_image_set
            raise InputError(f"a set of {batch.shape[1]} features; this export holds a pooling table up to {limit}")
        if len(lengths) and int(lengths.min()) < 1:
            raise InputError(f"lengths[{int(lengths.argmin())}] is {int(lengths.min())}: a set needs an element")
        return {"features": np.ascontiguousarray(batch, dtype=np.float32), "lengths": lengths}

    def _run(self, session: Any, inputs: dict[str, NDArray[Any]], outputs: list[str]) -> list[NDArray[np.float32]]:
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True  # evidence costs nothing when only the embedding is asked for
        return session.run(outputs, inputs, options)

    @cached_property
    def _image_session(self) -> Any:
        return self._session(IMAGE_FILE)

    @cached_property
    def _text_session(self) -> Any:
        return self._session(TEXT_FILE)

    def _session(self, name: str) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = QUIET
        options.intra_op_num_threads = self.threads or os.cpu_count() or 1
        try:
            return onnxruntime.InferenceSession(
                str(self.folder / name), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 (ONNX Runtime's errors have no common base)
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InputError(f"{self.folder / name}: not a complete ONNX model ({reason}); export it again") from None
